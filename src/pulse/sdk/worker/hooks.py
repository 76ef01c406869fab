"""When are the hooks of an app called? When its worker starts, when it stops, and for each dead letter."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.links.link import Link
    from pulse.sdk.app import Pulse

log = logging.getLogger("pulse.worker")

HOOKS_AT_ONCE = 16  # dead letters handled at once: a thousand jobs may fail together


class Hooks:
    """A context manager that calls startup hooks on entry and shutdown hooks on exit."""

    def __init__(self, app: Pulse, link: Link) -> None:
        self._app = app
        self._link = link
        self._turns = asyncio.Semaphore(HOOKS_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for hook in self._app.startup_hooks:
            await _call(hook)
        return self

    async def __aexit__(self, *_: object) -> None:
        for hook in reversed(self._app.shutdown_hooks):
            try:
                await _call(hook)
            except Exception:
                log.exception("a shutdown hook failed")

    def on_dead_letter(self, job_id: UUID) -> None:
        """Call the dead letter hooks with this job in the background, if it is a dead letter."""
        if self._app.dead_letter_hooks:
            task = asyncio.create_task(self._run_dead_letter_hooks(job_id))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def drain(self) -> None:
        """Return once the dead letter hooks that are running have ended."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run_dead_letter_hooks(self, job_id: UUID) -> None:
        try:
            async with self._turns:
                if job := await self._link.get_dead_letter(job_id):
                    for hook in self._app.dead_letter_hooks:
                        await _call(hook, job)
        except asyncio.CancelledError:
            raise
        except BaseException:  # whatever a hook raises, the worker goes on
            log.exception("a dead letter hook failed")


async def _call(hook: Callable[..., Any], *args: object) -> None:
    """Call a hook. Sync ones run on a thread: they may open connections, and must not block the loop."""
    if inspect.iscoroutinefunction(hook):
        await hook(*args)
    else:
        await asyncio.to_thread(hook, *args)
