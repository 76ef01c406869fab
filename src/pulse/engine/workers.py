"""Who is connected? A server says so of its workers, a worker without one of itself, and everyone can tell of all."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.errors import PulseError
from pulse.model.workers import Presence, WorkerSeen
from pulse.store import workers as store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pulse.engine.dispatch.worker_stream import WorkerStream
    from pulse.engine.duties.loops import Step
    from pulse.store.connections.pool import Database

log = logging.getLogger("pulse.workers")

NOTE_EVERY = timedelta(seconds=5)
QUIET = timedelta(seconds=15)  # where nothing changed
LEAVE_PATIENCE = 1.0  # seconds that saying goodbye may hold up an end


class Workers:
    """The presence of workers, over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.server = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._said: list[tuple[str, int, int]] = []
        self._said_at = 0.0
        self._has_left = False

    async def list(self) -> list[WorkerSeen]:
        return await self._database.run(store.list_workers)

    def duty(self, streams: Callable[[], Iterable[WorkerStream]]) -> Step:
        """A step that says who sits here."""
        return self._noting(self.server, lambda now: [_presence(stream, now) for stream in streams()])

    def own_duty(self, worker: str, present: Callable[[timedelta], Presence]) -> Step:
        """The same of a worker that has no server: it stands for itself. `present` is given its age."""
        since = time.monotonic()
        return self._noting(worker, lambda now: [present(timedelta(seconds=now - since))])

    def _noting(self, server: str, find: Callable[[float], Sequence[Presence]]) -> Step:
        """While all is as it was, it says so less often."""

        async def note() -> timedelta:
            now = time.monotonic()
            here = [] if self._has_left else find(now)
            said = [(each.name, each.busy, each.slots) for each in here]
            if said != self._said or (here and now - self._said_at > QUIET.total_seconds()):
                await self._note(server, here)
                self._said, self._said_at = said, now  # only now: what failed is said again
            return NOTE_EVERY

        return note

    async def take(self, stream: WorkerStream) -> None:
        """Write down that a worker's stream is here now, for servers that believe to have it. Where that cannot be
        written, theirs ends for want of a reader."""
        presence = _presence(stream, time.monotonic())
        try:
            await self._database.run(lambda conn: store.move_worker(conn, server=self.server, worker=presence))
        except PulseError as error:
            log.warning("other servers cannot be told that %s is here now: %s", stream.worker, error)

    async def moved(self, streams: Sequence[WorkerStream]) -> set[str]:
        """Return the names of those who have come to another server since they came here."""
        now = time.monotonic()
        names, ages = (
            [stream.worker for stream in streams],
            [timedelta(seconds=now - stream.connected_at) for stream in streams],
        )
        found = await self._database.run(
            lambda conn: store.moved_workers(conn, server=self.server, names=names, ages=ages)
        )
        return set(found)

    async def leave(self, server: str) -> None:
        """Nobody is here any more. Only a courtesy: whoever does not say so is gone within a minute."""
        self._said, self._has_left = [], True
        with suppress(PulseError, TimeoutError):
            async with asyncio.timeout(LEAVE_PATIENCE):
                await self._note(server, [])

    async def _note(self, server: str, workers: Sequence[Presence]) -> None:
        await self._database.run_duty(lambda conn: store.note_workers(conn, server=server, workers=workers))


def _presence(stream: WorkerStream, now: float) -> Presence:
    return Presence(
        name=stream.worker,
        version=stream.version,
        topics=stream.topics,
        slots=stream.slots,
        busy=len(stream.held),
        age=timedelta(seconds=now - stream.connected_at),
    )
