"""How are schedules used through a server? In the words of engine.schedules, so that nobody need know.

What a field of a message cannot say is refused here, by the engine's own checks: a limit of 0 would be the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.engine.schedules.use_cases import check_deploy, check_limit, check_preview, check_stretch
from pulse.links.remote.servers import CALL_TIMEOUT
from pulse.model.errors import ScheduleNotFound
from pulse.model.ids import Mint
from pulse.model.schedules import FirePage, ScheduleFilter, SchedulePage
from pulse.model.text import check_name, check_text
from pulse.wire import convert
from pulse.wire import convert_schedules as wire
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.links.remote.servers import Servers
    from pulse.model.schedules import Backfill, Declared, Fire, NewSchedule, Schedule, SyncReport
    from pulse.timing.cron import Occurrence

SLOW = 60.0  # seconds for what may touch ten thousand rows


class RemoteSchedules:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._mint = Mint()

    # --- reading

    async def get(self, name: str | UUID) -> Schedule:
        request = pb.GetScheduleRequest(name=_named(name))
        return wire.read_schedule(await self._call(lambda service: service.GetSchedule, request))

    async def list_page(
        self, wanted: ScheduleFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> SchedulePage:
        check_limit(limit)
        filtering = wire.write_schedule_filter(wanted or ScheduleFilter())
        request = pb.ListSchedulesRequest(filter=filtering, after=after or "", limit=limit)
        answer = await self._call(lambda service: service.ListSchedules, request, timeout=SLOW)
        return SchedulePage([wire.read_schedule(each) for each in answer.schedules], _next(answer))

    async def fires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage:
        check_limit(limit)
        request = pb.ListFiresRequest(name=_named(name), after=after or "", limit=limit)
        answer = await self._call(lambda service: service.ListFires, request)
        return FirePage([wire.read_fire(fire) for fire in answer.fires], _next(answer))

    async def preview(self, name: str | UUID, *, n: int = 10) -> list[Occurrence]:
        check_preview(n)
        return await self._preview(pb.PreviewScheduleRequest(name=_named(name), n=n))

    async def preview_new(self, new: NewSchedule, *, n: int = 10) -> list[Occurrence]:
        check_preview(n)
        return await self._preview(pb.PreviewScheduleRequest(definition=wire.write_new_schedule(new), n=n))

    async def _preview(self, request: pb.PreviewScheduleRequest) -> list[Occurrence]:
        answer = await self._call(lambda service: service.PreviewSchedule, request)
        return [wire.read_occurrence(each) for each in answer.occurrences]

    # --- changing

    async def create(self, new: NewSchedule) -> tuple[Schedule, bool]:
        request = pb.CreateScheduleRequest(schedule=wire.write_new_schedule(new))
        answer = await self._call(lambda service: service.CreateSchedule, request)
        return wire.read_schedule(answer.schedule), answer.created

    async def edit(self, name: str | UUID, changes: Mapping[str, Any]) -> Schedule:
        request = pb.EditScheduleRequest(name=_named(name), definition=wire.write_changes(changes), fields=changes)
        return wire.read_schedule(await self._call(lambda service: service.EditSchedule, request))

    async def pause(self, name: str | UUID, *, reason: str = "") -> Schedule:
        if reason:
            check_text("reason", reason, 2_000)
        request = pb.PauseScheduleRequest(name=_named(name), reason=reason)
        return wire.read_schedule(await self._call(lambda service: service.PauseSchedule, request))

    async def resume(self, name: str | UUID) -> Schedule:
        request = pb.ResumeScheduleRequest(name=_named(name))
        return wire.read_schedule(await self._call(lambda service: service.ResumeSchedule, request))

    async def delete(self, name: str | UUID) -> Schedule:
        """By its id: where the answer is lost, the next try must not find another one under its name. That it then
        finds none is what was wanted."""
        schedule = await self.get(name)
        request = pb.DeleteScheduleRequest(name=str(schedule.id))
        try:
            return wire.read_schedule(await self._call(lambda service: service.DeleteSchedule, request))
        except ScheduleNotFound:
            return schedule

    # --- firing by hand

    async def trigger(self, name: str | UUID, *, job_id: UUID | None = None) -> Fire:
        """The job's id is minted here, so that a call whose answer was lost can be repeated."""
        own = job_id or self._mint.ids([0])[0]
        request = pb.TriggerScheduleRequest(name=_named(name), id=str(own))
        return wire.read_fire(await self._call(lambda service: service.TriggerSchedule, request))

    async def backfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill:
        check_stretch(start, end, limit)
        request = pb.BackfillScheduleRequest(
            name=_named(name),
            start=convert.write_instant(start),
            end=convert.write_instant(end),
            limit=limit,
            dry_run=dry_run,
        )
        return wire.read_backfill(await self._call(lambda service: service.BackfillSchedule, request, timeout=SLOW))

    # --- what code declares

    async def sync(
        self,
        app: str,
        declared: Sequence[Declared],
        *,
        deploy: int | None = None,
        prune: bool = False,
        dry_run: bool = False,
    ) -> SyncReport:
        check_name("app", app)
        check_deploy(deploy)
        request = pb.SyncSchedulesRequest(
            app=app,
            schedules=[wire.write_declared(each) for each in declared],
            deploy=deploy,
            prune=prune,
            dry_run=dry_run,
        )
        return wire.read_sync_report(await self._call(lambda service: service.SyncSchedules, request, timeout=SLOW))

    async def _call(self, pick: Callable[[Any], Any], request: object, *, timeout: float = CALL_TIMEOUT) -> Any:  # noqa: ANN401
        return await self._servers.call(lambda server: pick(server.schedules), request, timeout=timeout)


def _named(name: str | UUID) -> str:
    return str(name) if isinstance(name, UUID) else check_name("schedule", name)


def _next(answer: Any) -> str | None:  # noqa: ANN401
    return convert.read_text(answer, "next")
