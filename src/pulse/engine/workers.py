"""Who is connected? Each server says so of its own workers, and every server can tell of all."""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.workers import Presence, WorkerSeen
from pulse.store import workers as store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulse.engine.loops import Step
    from pulse.engine.seats import Seat
    from pulse.store.pool import Database

NOTE_EVERY = timedelta(seconds=5)
QUIET = timedelta(seconds=15)  # where nothing changed


class Workers:
    """The presence of workers, over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.server = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._said: list[tuple[str, int, int]] = []
        self._said_at = 0.0

    async def list(self) -> list[WorkerSeen]:
        return await self._database.run(store.list_workers)

    def duty(self, seats: Callable[[], Iterable[Seat]]) -> Step:
        """A step that says who sits here; while all is as it was, less often."""

        async def note() -> timedelta:
            now = time.monotonic()
            here = [_presence(seat, now) for seat in seats()]
            said = [(each.name, each.busy, each.slots) for each in here]
            if said != self._said or (here and now - self._said_at > QUIET.total_seconds()):
                self._said, self._said_at = said, now
                await self._database.run(
                    lambda conn: store.note_workers(conn, server=self.server, workers=here), reserved=True
                )
            return NOTE_EVERY

        return note


def _presence(seat: Seat, now: float) -> Presence:
    return Presence(
        name=seat.worker,
        version=seat.version,
        topics=seat.topics,
        slots=seat.slots,
        busy=len(seat.held),
        age=timedelta(seconds=now - seat.connected_at),
    )
