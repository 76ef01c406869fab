"""Which calls are there for schedules over gRPC?

A schedule submits jobs, so creating or editing one needs the right to submit to its topic. Looking at it needs the
right to follow jobs of that topic, and pausing, triggering or deleting it the right to manage them. A call first finds
the schedule by its name and checks its topic. Then it acts on the schedule by its id, since another schedule may have
taken the name meanwhile.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pulse.doors.access import check_logged
from pulse.doors.grpc.errors import Context, handle_errors
from pulse.doors.grpc.jobs import Check, allow
from pulse.doors.page_size import how_many_fit
from pulse.model.decisions.schedule_changes import topic_after
from pulse.model.errors import AccessDenied, InvalidInput, InvalidOption
from pulse.model.ids import check_given_id
from pulse.model.jobs import check_size
from pulse.wire import convert
from pulse.wire import convert_schedules as wire
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from pulse.engine.engine import Engine
    from pulse.model.schedules import Schedule

PAGE = 50
PREVIEWED = 10  # occurrences, where the request does not say how many
BACKFILLED = 100  # likewise


class SchedulesDoor(pb_grpc.SchedulesServicer):
    def __init__(self, engine: Engine, *, check: Check = allow) -> None:
        self._schedules = engine.schedules
        self._page_bytes = engine.settings.message_limit // 2  # the other half is for what the sizes do not count
        self._check = check

    @handle_errors
    async def CreateSchedule(self, request: pb.CreateScheduleRequest, _context: Context) -> pb.CreateScheduleResponse:
        new = wire.read_new_schedule(request.schedule)
        self._check("submit", new.job.routed_topic)
        schedule, is_new = await self._schedules.disclosing_to(self._may_follow).create(new)
        return pb.CreateScheduleResponse(schedule=wire.write_schedule(schedule), created=is_new)

    @handle_errors
    async def GetSchedule(self, request: pb.GetScheduleRequest, _context: Context) -> pb.Schedule:
        return wire.write_schedule(await self._find(request.name))

    @handle_errors
    async def ListSchedules(self, request: pb.ListSchedulesRequest, _context: Context) -> pb.ListSchedulesResponse:
        wanted = wire.read_schedule_filter(request.filter)
        self._check("view", wanted.topic or "*")
        after = request.after or None
        page = await self._schedules.list_page(wanted, after=after, limit=request.limit or PAGE)
        schedules = [wire.write_schedule(schedule) for schedule in page.schedules]
        if len(schedules) > (fitting := how_many_fit((each.ByteSize() for each in schedules), self._page_bytes)):
            page = await self._schedules.list_page(wanted, after=after, limit=fitting)
            schedules = [wire.write_schedule(schedule) for schedule in page.schedules]
        return pb.ListSchedulesResponse(schedules=schedules, next=page.next)

    @handle_errors
    async def EditSchedule(self, request: pb.EditScheduleRequest, _context: Context) -> pb.Schedule:
        changes = wire.read_changes(request.definition, request.fields)
        schedule = await self._find(request.name, "submit")
        self._check("submit", topic_after(schedule, changes))
        return wire.write_schedule(
            await self._schedules.checked_for(schedule.job.routed_topic).edit(schedule.id, changes)
        )

    @handle_errors
    async def PauseSchedule(self, request: pb.PauseScheduleRequest, _context: Context) -> pb.Schedule:
        schedule = await self._find(request.name, "manage")
        return wire.write_schedule(
            await self._schedules.checked_for(schedule.job.routed_topic).pause(schedule.id, reason=request.reason)
        )

    @handle_errors
    async def ResumeSchedule(self, request: pb.ResumeScheduleRequest, _context: Context) -> pb.Schedule:
        schedule = await self._find(request.name, "manage")
        return wire.write_schedule(await self._schedules.checked_for(schedule.job.routed_topic).resume(schedule.id))

    @handle_errors
    async def DeleteSchedule(self, request: pb.DeleteScheduleRequest, _context: Context) -> pb.Schedule:
        schedule = await self._find(request.name, "manage")
        return wire.write_schedule(await self._schedules.checked_for(schedule.job.routed_topic).delete(schedule.id))

    @handle_errors
    async def TriggerSchedule(self, request: pb.TriggerScheduleRequest, _context: Context) -> pb.Fire:
        job_id = convert.read_id(request.id) if request.id else None
        check_given_id("id", job_id)
        schedule = await self._find(request.name, "manage")
        return wire.write_fire(
            await self._schedules.checked_for(schedule.job.routed_topic).trigger(schedule.id, job_id=job_id)
        )

    @handle_errors
    async def BackfillSchedule(
        self, request: pb.BackfillScheduleRequest, _context: Context
    ) -> pb.BackfillScheduleResponse:
        start, end = _read_required(request, "start"), _read_required(request, "end")
        schedule = await self._find(request.name, "manage")
        backfill = await self._schedules.checked_for(schedule.job.routed_topic).backfill(
            schedule.id,
            start=start,
            end=end,
            limit=request.limit or BACKFILLED,
            dry_run=request.dry_run,
        )
        return wire.write_backfill(backfill)

    @handle_errors
    async def PreviewSchedule(
        self, request: pb.PreviewScheduleRequest, _context: Context
    ) -> pb.PreviewScheduleResponse:
        n = request.n or PREVIEWED
        match request.WhichOneof("subject"):
            case "name":
                schedule = await self._find(request.name)
                occurrences = await self._schedules.preview(schedule.id, n=n)
            case "definition":
                new = wire.read_new_schedule(request.definition)
                self._check("follow", new.job.routed_topic)
                occurrences = await self._schedules.preview_new(new, n=n)
            case _:
                raise InvalidInput("give either name or definition")
        return pb.PreviewScheduleResponse(occurrences=[wire.write_occurrence(each) for each in occurrences])

    @handle_errors
    async def ListFires(self, request: pb.ListFiresRequest, _context: Context) -> pb.ListFiresResponse:
        own_id, topic = await self._schedules.find_logged(request.name)
        check_logged(self._check, request.name, topic)
        page = await self._schedules.fires(own_id, after=request.after or None, limit=request.limit or PAGE)
        return pb.ListFiresResponse(fires=[wire.write_fire(fire) for fire in page.fires], next=page.next)

    @handle_errors
    async def SyncSchedules(self, request: pb.SyncSchedulesRequest, _context: Context) -> pb.SyncSchedulesResponse:
        """Sync the schedules of an app.

        It needs the right to submit to every topic: a schedule that the app no longer declares may be of any topic, and
        so may a new one.
        """
        self._check("submit", "*")
        check_size("schedules", request.schedules)
        report = await self._schedules.sync(
            request.app,
            [wire.read_declared(declared) for declared in request.schedules],
            deploy=request.deploy if request.HasField("deploy") else None,
            prune=request.prune,
            dry_run=request.dry_run,
        )
        return wire.write_sync_report(report)

    def _may_follow(self, topic: str) -> bool:
        try:
            self._check("follow", topic)
        except AccessDenied:
            return False
        return True

    async def _find(self, name: str, right: str = "follow") -> Schedule:
        """Return the schedule of this name, after checking that the caller has this right for its topic."""
        schedule = await self._schedules.get(name)
        self._check(right, schedule.job.routed_topic)
        return schedule


def _read_required(message: pb.BackfillScheduleRequest, field: str) -> datetime:
    found = convert.read_instant(message, field)
    if found is None:
        raise InvalidOption(field, None, "be given, as an instant")
    return found
