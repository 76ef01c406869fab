"""How is a call about many claims read, so that a mistake in one of them is that one's alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pulse.model.errors import PulseError
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulse.model.jobs import ReportStatus

T = TypeVar("T")

ID_LIMIT = 100  # characters of an id that is none, as it is sent back


class Items(Generic[T]):
    """The items of a call as far as they could be read, and a refusal for each of the others."""

    def __init__(self, messages: Sequence[Any], read: Callable[[Any], T]) -> None:
        self.read: list[T] = []
        self.refusals: list[pb.Refusal] = []
        self._refused: set[int] = set()
        for place, message in enumerate(messages):
            try:
                self.read.append(read(message))
            except PulseError as error:
                self._refused.add(place)
                refusal = pb.Refusal(id=message.job_id[:ID_LIMIT], code=error.code, message=str(error))
                self.refusals.append(refusal)

    def write_answers(self, answers: Sequence[ReportStatus]) -> list[Any]:
        """Return the answers to what was read, with the refused ones in their places."""
        written = convert.write_answers(answers)
        if not self._refused:
            return written
        rest = iter(written)
        count = len(written) + len(self._refused)
        return [pb.REFUSED if place in self._refused else next(rest) for place in range(count)]
