"""How is a call about many claims read, so that a mistake in one item does not refuse the others?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pulse.model.errors import PulseError
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulse.model.jobs import ReportStatus

T = TypeVar("T")

ID_LIMIT = 100  # characters of an id that cannot be read, as the refusal repeats it


class Items(Generic[T]):
    """The items of a call that could be read, and a refusal for each of the others."""

    def __init__(self, messages: Sequence[Any], read: Callable[[Any], T]) -> None:
        self.values: list[T] = []
        self.refusals: list[pb.Refusal] = []
        self._refused_positions: set[int] = set()
        for position, message in enumerate(messages):
            try:
                self.values.append(read(message))
            except PulseError as error:
                self._refused_positions.add(position)
                refusal = pb.Refusal(id=message.job_id[:ID_LIMIT], code=error.code, message=str(error))
                self.refusals.append(refusal)

    def write_answers(self, answers: Sequence[ReportStatus]) -> list[Any]:
        """Return the answers in the order of the call, with REFUSED for each item that could not be read."""
        written = convert.write_answers(answers)
        if not self._refused_positions:
            return written
        rest = iter(written)
        count = len(written) + len(self._refused_positions)
        return [pb.REFUSED if position in self._refused_positions else next(rest) for position in range(count)]
