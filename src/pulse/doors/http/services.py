"""What do the routes call? The engine, and the parts of the server between the engine and its callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends
from starlette.requests import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pulse.doors.access import Gate
    from pulse.engine.engine import Engine
    from pulse.engine.jobs.waiters import Waiters
    from pulse.model.jobs import NewJob, Submitted
    from pulse.model.workers import WorkerSeen
    from pulse.settings import Settings
    from pulse.telemetry.health import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    engine: Engine
    gate: Gate
    waiters: Waiters
    submit: Callable[[Sequence[NewJob]], Awaitable[list[Submitted]]]  # the server's, which knows the waiting workers
    workers: Callable[[], Awaitable[Iterable[WorkerSeen]]]
    health: Health
    name: str  # of this server

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    @property
    def page_bytes(self) -> int:
        """Return the largest page of a list, the same as at the other doors. The largest job fits into it twice."""
        return self.settings.message_limit // 2


async def _services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


InjectedServices = Annotated[Services, Depends(_services)]
