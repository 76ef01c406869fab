"""Who is told of a job that a duty of a server has dead-lettered? One worker that takes its topic and wants to know.

If none of that kind is at this server, the others are asked once. It is a hint, as it is without servers: what a
message was lost on is not told again.
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

MOST = 10_000  # that wait to be told of; in a flood of them an alert says more than ten thousand calls of a hook


class DeadLetters:
    """Of one server."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher) -> None:
        self._jobs = engine.jobs
        self._notifications = engine.notifications
        self._dispatcher = dispatcher
        self._found: dict[UUID, bool] = {}  # whether others are to be asked
        self._notifying: asyncio.Task[None] | None = None
        engine.duties.on_dead_letter(lambda job_id: self._add(job_id, found_here=True))
        engine.notifications.on_dead_letter(lambda job_id: self._add(job_id, found_here=False))

    def _add(self, job_id: UUID, *, found_here: bool) -> None:
        if len(self._found) < MOST:
            self._found[job_id] = found_here
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.create_task(self._notify(), name="pulse dead letters")

    async def _notify(self) -> None:
        while self._found:
            found, self._found = self._found, {}
            try:
                untold = self._dispatcher.notify_dead_letters(await self._jobs.topics_of(list(found)))
                await self._notifications.notify_dead_letters([job_id for job_id in untold if found[job_id]])
            except PulseError as error:
                log.warning("nobody could be told of %d dead letters: %s", len(found), error)
