"""How are schedules used through a server? With the methods of engine.schedules.

Values that a message cannot carry are refused here, by the engine's own checks: a limit of 0, for example, would be
read as the default.
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

SLOW = 60.0  # seconds for calls that may touch ten thousand rows


class RemoteSchedules:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._mint = Mint()

    # --- reading

    async def get(self, name: str | UUID) -> Schedule:
        request = pb.GetScheduleRequest(name=_write_name(name))
        return wire.read_schedule(await self._call(lambda service: service.GetSchedule, request))

    async def list_page(
        self, wanted: ScheduleFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> SchedulePage:
        check_limit(limit)
        filtering = wire.write_schedule_filter(wanted or ScheduleFilter())
        request = pb.ListSchedulesRequest(filter=filtering, after=after or "", limit=limit)
        answer = await self._call(lambda service: service.ListSchedules, request, timeout=SLOW)
        return SchedulePage([wire.read_schedule(each) for each in answer.schedules], _read_next(answer))

    async def fires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage:
        check_limit(limit)
        request = pb.ListFiresRequest(name=_write_name(name), after=after or "", limit=limit)
        answer = await self._call(lambda service: service.ListFires, request)
        return FirePage([wire.read_fire(fire) for fire in answer.fires], _read_next(answer))

    async def preview(self, name: str | UUID, *, n: int = 10) -> list[Occurrence]:
        check_preview(n)
        return await self._preview(pb.PreviewScheduleRequest(name=_write_name(name), n=n))

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
        request = pb.EditScheduleRequest(name=_write_name(name), definition=wire.write_changes(changes), fields=changes)
        return wire.read_schedule(await self._call(lambda service: service.EditSchedule, request))

    async def pause(self, name: str | UUID, *, reason: str = "") -> Schedule:
        if reason:
            check_text("reason", reason, 2_000)
        request = pb.PauseScheduleRequest(name=_write_name(name), reason=reason)
        return wire.read_schedule(await self._call(lambda service: service.PauseSchedule, request))

    async def resume(self, name: str | UUID) -> Schedule:
        request = pb.ResumeScheduleRequest(name=_write_name(name))
        return wire.read_schedule(await self._call(lambda service: service.ResumeSchedule, request))

    async def delete(self, name: str | UUID) -> Schedule:
        """Delete a schedule by its id: if the answer is lost, a repeated call must not delete a newer one of that name.
        If the repeated call finds no schedule, the first one has deleted it."""
        schedule = await self.get(name)
        request = pb.DeleteScheduleRequest(name=str(schedule.id))
        try:
            return wire.read_schedule(await self._call(lambda service: service.DeleteSchedule, request))
        except ScheduleNotFound:
            return schedule

    # --- firing by hand

    async def trigger(self, name: str | UUID, *, job_id: UUID | None = None) -> Fire:
        """Make a job now. Its id is minted here, so that a call whose answer was lost can be repeated."""
        own = job_id or self._mint.ids([0])[0]
        request = pb.TriggerScheduleRequest(name=_write_name(name), id=str(own))
        return wire.read_fire(await self._call(lambda service: service.TriggerSchedule, request))

    async def backfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill:
        check_stretch(start, end, limit)
        request = pb.BackfillScheduleRequest(
            name=_write_name(name),
            start=convert.write_instant(start),
            end=convert.write_instant(end),
            limit=limit,
            dry_run=dry_run,
        )
        return wire.read_backfill(await self._call(lambda service: service.BackfillSchedule, request, timeout=SLOW))

    # --- declared schedules

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


def _write_name(name: str | UUID) -> str:
    return str(name) if isinstance(name, UUID) else check_name("schedule", name)


def _read_next(answer: Any) -> str | None:  # noqa: ANN401
    return convert.read_text(answer, "next")
