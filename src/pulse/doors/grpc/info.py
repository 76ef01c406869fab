"""What does a gRPC client have to know about the server before its first call? Its versions and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulse
from pulse.doors.grpc.errors import Context, handle_errors
from pulse.engine.dispatch.worker_stream import SILENCE, SLOTS_LIMIT
from pulse.model.jobs import BATCH_LIMIT
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from pulse.engine.engine import Engine

CONTRACT = 6  # raised with every addition to the proto


class InfoDoor(pb_grpc.InfoServicer):
    def __init__(self, engine: Engine, *, name: str) -> None:
        settings = engine.settings
        self._info = pb.ServerInfo(
            version=pulse.__version__,
            server=name,
            contract=CONTRACT,
            buckets=engine.jobs.buckets,
            lease=convert.write_length(settings.lease),
            heartbeat=convert.write_length(settings.heartbeat),
            silence=convert.write_clock(SILENCE),
            batch_limit=BATCH_LIMIT,
            slots_limit=SLOTS_LIMIT,
            message_limit=settings.message_limit,
        )

    @handle_errors
    async def GetServerInfo(self, _request: pb.GetServerInfoRequest, _context: Context) -> pb.ServerInfo:
        return self._info
