"""A server as a client meets it: on a real socket, over the generated stubs and nothing of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest

from pulse.engine.engine import Engine
from pulse.server import Server
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc


class Client:
    """A channel with a stub for each service."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.jobs: Any = pb_grpc.JobsStub(channel)
        self.work: Any = pb_grpc.WorkStub(channel)
        self.operate: Any = pb_grpc.OperateStub(channel)
        self.schedules: Any = pb_grpc.SchedulesStub(channel)
        self.alarms: Any = pb_grpc.AlarmsStub(channel)
        self.admin: Any = pb_grpc.AdminStub(channel)
        self.info: Any = pb_grpc.InfoStub(channel)


@asynccontextmanager
async def connected(target: str, credentials: grpc.ChannelCredentials | None = None) -> AsyncIterator[Client]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield Client(channel)


@asynccontextmanager
async def served(server: Server, engine: Engine) -> AsyncIterator[Client]:
    await server.start()
    try:
        async with connected(str(server.address)) as client:
            yield client
    finally:
        await server.close()
        await engine.stop()


class Refused(NamedTuple):
    status: grpc.StatusCode
    code: str | None  # the trailer
    message: str


async def refused(call: Awaitable[object]) -> Refused:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    trailers = {str(key): str(value) for key, value in error.trailing_metadata()}
    return Refused(error.code(), trailers.get("pulse-error"), error.details() or "")
