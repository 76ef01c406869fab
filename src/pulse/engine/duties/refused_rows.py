"""How does a duty go on when the database refuses one of its rows? It leaves that row out and tries it again later.

A duty moves all due rows in one statement. If that is refused, it reads their ids and moves them in halves until the
row to blame stands alone. As long as there is such a row, the others are moved by their ids, so that it delays none.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from pulse.store.jobs.duties import RowRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

log = logging.getLogger("pulse.duties")

T = TypeVar("T")
AGAIN_AFTER = 1.0  # seconds between two tries of a refused row: it may take half a second to be refused
LOG_EVERY = 60.0  # seconds between two lines about one row


class MoveStatements(NamedTuple, Generic[T]):
    """The three statements by which a duty moves the jobs of one bucket."""

    together: Callable[[], Awaitable[T]]  # moves a batch of due jobs
    read: Callable[[int], Awaitable[list[UUID]]]  # returns the ids of a batch of due jobs, larger by this number
    among: Callable[[Sequence[UUID]], Awaitable[T]]  # moves those of these jobs that are due


class RowMover:
    """Moves the jobs of one bucket for one duty, apart from those that the database refuses."""

    def __init__(self, action: str) -> None:
        self._action = action
        self._refused: dict[UUID, float] = {}  # when each was last logged
        self._tried_at = 0.0

    @property
    def has_refused(self) -> bool:
        return bool(self._refused)

    async def move(self, statements: MoveStatements[T]) -> list[T]:
        """Move due jobs, and return the result of each statement."""
        if not self._refused:
            try:
                return [await statements.together()]
            except RowRefused:
                pass
        ids = await statements.read(len(self._refused))
        self._refused = {job_id: self._refused[job_id] for job_id in ids if job_id in self._refused}
        parts: list[Sequence[UUID]] = [[job_id for job_id in ids if job_id not in self._refused]]
        if time.monotonic() - self._tried_at >= AGAIN_AFTER:
            self._tried_at = time.monotonic()
            parts += [[job_id] for job_id in self._refused]
        return [moved for part in parts for moved in await self._move(statements, part)]

    async def _move(self, statements: MoveStatements[T], ids: Sequence[UUID]) -> list[T]:
        if not ids:
            return []
        try:
            moved = await statements.among(ids)
        except RowRefused as error:
            if len(ids) == 1:
                self._note_refused(ids[0], error)
                return []
            middle = len(ids) // 2
            return await self._move(statements, ids[:middle]) + await self._move(statements, ids[middle:])
        for job_id in ids:
            self._refused.pop(job_id, None)
        return [moved]

    def _note_refused(self, job_id: UUID, error: RowRefused) -> None:
        now = time.monotonic()
        if now - self._refused.get(job_id, float("-inf")) >= LOG_EVERY:
            self._refused[job_id] = now
            log.warning("job %s could not be %s, trying again: %s", job_id, self._action, error)
