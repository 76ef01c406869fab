"""How is what people look at written on the wire, and read from it: why a job does not run?"""

from __future__ import annotations

from pulse.model.explaining import Explanation, Reason
from pulse.wire.convert import STATUS_FROM_WIRE, STATUS_TO_WIRE, read_id, read_instant, read_text, write_instant
from pulse.wire.v1 import pulse_pb2 as pb


def write_explanation(found: Explanation) -> pb.Explanation:
    return pb.Explanation(
        job_id=str(found.job_id),
        status=STATUS_TO_WIRE[found.status],
        topic=found.topic,
        reason=found.reason.value,
        text=found.text,
        worker=found.worker,
        ahead=found.ahead,
        expected_at=write_instant(found.expected_at),
    )


def read_explanation(message: pb.Explanation) -> Explanation:
    known = message.reason in Reason.__members__
    return Explanation(
        job_id=read_id(message.job_id),
        status=STATUS_FROM_WIRE[message.status],
        topic=message.topic,
        reason=Reason(message.reason) if known else Reason.OTHER,
        text=message.text,
        worker=read_text(message, "worker"),
        ahead=message.ahead if message.HasField("ahead") else None,
        expected_at=read_instant(message, "expected_at"),
    )
