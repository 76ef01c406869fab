"""Which worker learns of a job that a server's duty has dead-lettered? One that takes its topic and asked for that.

If this server has none, the other servers are notified once. As without servers, this is a hint: a notification that is
lost is not repeated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.engine.dispatch.dispatcher import Dispatcher
    from pulse.engine.engine import Engine

log = logging.getLogger("pulse.dispatch")

MAX_WAITING = 10_000  # in a flood of dead letters, an alert says more than ten thousand calls of a hook


class DeadLetters:
    """Passes the dead letters of one server on to workers."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher) -> None:
        self._jobs = engine.jobs
        self._notifications = engine.notifications
        self._dispatcher = dispatcher
        self._waiting: dict[UUID, bool] = {}  # true: other servers are to be notified if no worker is here
        self._notifying: asyncio.Task[None] | None = None
        engine.duties.on_dead_letter(lambda job_id: self._add(job_id, found_here=True))
        engine.notifications.on_dead_letter(lambda job_id: self._add(job_id, found_here=False))

    def _add(self, job_id: UUID, *, found_here: bool) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting[job_id] = found_here
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify(), name="pulse dead letters")

    async def _notify(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            try:
                left = self._dispatcher.notify_dead_letters(await self._jobs.topics_of(list(batch)))
                await self._notifications.notify_dead_letters([job_id for job_id in left if batch[job_id]])
            except PulseError as error:
                log.warning("no worker could be notified of %d dead letters: %s", len(batch), error)
