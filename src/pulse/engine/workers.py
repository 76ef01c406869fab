"""Which workers are connected? Servers record their workers, and a worker without a server records itself."""

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
QUIET = timedelta(seconds=15)  # between two records while nothing changes
LEAVE_PATIENCE = 1.0  # seconds for which `leave` may delay the end of a process


class Workers:
    """The presence of workers, over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.server = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(3)}"
        self._recorded: list[tuple[str, int, int]] = []
        self._recorded_at = 0.0
        self._has_left = False

    async def list(self) -> list[WorkerSeen]:
        return await self._database.run(store.list_workers)

    def duty(self, streams: Callable[[], Iterable[WorkerStream]]) -> Step:
        """Return a step that records the workers with a stream to this server."""
        return self._record_step(self.server, lambda now: [_presence(stream, now) for stream in streams()])

    def own_duty(self, worker: str, present: Callable[[timedelta], Presence]) -> Step:
        """Return a step that records a worker without a server. `present` gets its age."""
        since = time.monotonic()
        return self._record_step(worker, lambda now: [present(timedelta(seconds=now - since))])

    def _record_step(self, server: str, find: Callable[[float], Sequence[Presence]]) -> Step:
        """Return a step that records what `find` returns. While nothing changes, it does so less often."""

        async def record() -> timedelta:
            now = time.monotonic()
            here = [] if self._has_left else find(now)
            current = [(each.name, each.busy, each.slots) for each in here]
            if current != self._recorded or (here and now - self._recorded_at > QUIET.total_seconds()):
                await self._record(server, here)
                self._recorded, self._recorded_at = current, now  # after the write, so that one that fails is repeated
            return NOTE_EVERY

        return record

    async def record_stream(self, stream: WorkerStream) -> None:
        """Record that a worker has its stream here now, for servers that still have an older one. If this cannot be
        written, that older stream ends once nobody reads it."""
        presence = _presence(stream, time.monotonic())
        try:
            await self._database.run(lambda conn: store.move_worker(conn, server=self.server, worker=presence))
        except PulseError as error:
            log.warning("other servers cannot be notified that %s is here now: %s", stream.worker, error)

    async def moved(self, streams: Sequence[WorkerStream]) -> set[str]:
        """Return the names of workers that have connected to another server since they connected here."""
        now = time.monotonic()
        names, ages = (
            [stream.worker for stream in streams],
            [timedelta(seconds=now - stream.connected_at) for stream in streams],
        )
        moved = await self._database.run(
            lambda conn: store.moved_workers(conn, server=self.server, names=names, ages=ages)
        )
        return set(moved)

    async def leave(self, server: str) -> None:
        """Record that no worker is here any more. This is a courtesy: without it they count as gone within a minute."""
        self._recorded, self._has_left = [], True
        with suppress(PulseError, TimeoutError):
            async with asyncio.timeout(LEAVE_PATIENCE):
                await self._record(server, [])

    async def _record(self, server: str, workers: Sequence[Presence]) -> None:
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
