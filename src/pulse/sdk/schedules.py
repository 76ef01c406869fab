"""What can a program do with schedules? Create and change them at any time, or declare them beside its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pulse.model.errors import InvalidArguments, InvalidSchedule, InvalidTask
from pulse.model.jobs import NewJob, check_kind
from pulse.model.redaction import MASK
from pulse.model.schedules import JOB_FIELDS, Declared, NewSchedule
from pulse.model.text import check_name
from pulse.sdk.arguments import Result, write_json
from pulse.sdk.handle import JobHandle
from pulse.sdk.options import read_aliases
from pulse.sdk.schedule_options import ScheduleOptions, WantedSchedules, read_options, read_schedule_filter
from pulse.sdk.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import datetime
    from typing import Unpack
    from uuid import UUID

    from pulse.links.link import SchedulesLink
    from pulse.model.schedules import Backfill, FirePage, Schedule, SchedulePage, SyncReport
    from pulse.sdk.app import Pulse
    from pulse.sdk.options import Length
    from pulse.timing.cron import Occurrence

    AnyTask = Task[..., Any, Any]
    DeclaredList = list[Declared]  # a class below has a method named list, which hides the type
    OccurrenceList = list[Occurrence]

T = TypeVar("T")


class Schedules:
    """`app.schedules`. Each method that uses the database has a twin for coroutines, with an `a` in front.

    A schedule is found by its name or its id. One of `cron`, `every`, `at` and `after` sets when it occurs; the other
    options are in docs/reference/schedules.md.
    """

    def __init__(self, app: Pulse) -> None:
        self._app = app
        self._declared: dict[str, Declared] = {}
        self._names: set[str] = set()  # of declared schedules, with their former names

    # --- making and changing

    def create(
        self,
        name: str,
        task: AnyTask | str,
        *,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create a schedule. Creating the same one again changes nothing; a different one of that name is refused."""
        new = self._new(name, task, payload, options)
        return self._call(lambda link: link.create(new))[0]

    async def acreate(
        self,
        name: str,
        task: AnyTask | str,
        *,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        new = self._new(name, task, payload, options)
        return (await self._acall(lambda link: link.create(new)))[0]

    def edit(
        self,
        name: str | UUID,
        *,
        task: AnyTask | str | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Change the given options and nothing else. None removes an end, a start, a limit or a jitter.

        With a task, its options apply to the jobs to come: `edit("report", task=send.using(priority=5))`.
        """
        changes = read_options(options)
        return self._call(lambda link: self._edit(link, name, task, payload, changes))

    async def aedit(
        self,
        name: str | UUID,
        *,
        task: AnyTask | str | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        changes = read_options(options)
        return await self._acall(lambda link: self._edit(link, name, task, payload, changes))

    async def _edit(
        self,
        link: SchedulesLink,
        name: str | UUID,
        task: AnyTask | str | None,
        payload: Mapping[str, Any] | None,
        changes: dict[str, Any],
    ) -> Schedule:
        if task is not None or payload is not None:
            job = (await link.get(name)).job
            changes = self._job_changes(job, task, payload) | changes
        return await link.edit(name, changes)

    def _job_changes(
        self, job: NewJob, task: AnyTask | str | None, payload: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the fields of the job to change. Arguments are checked if this program has the task that gets them."""
        if task is None:
            return {"payload": self._job(job.task, payload).payload}
        if payload is not None:
            new = self._job(task, payload)
        elif (known := self._find(task)) is not None:
            if MASK not in job.payload:  # the old arguments must fit the new task; masked ones cannot be checked
                known.arguments.unpack(job.payload)
            new = self._template(known, job.payload)
            return {name: getattr(new, name) for name in JOB_FIELDS if name != "payload"}
        else:
            return {"task": task}
        return {name: getattr(new, name) for name in JOB_FIELDS}

    def pause(self, name: str | UUID, *, reason: str = "") -> Schedule:
        """Pause the schedule: it makes no jobs until it is resumed."""
        return self._call(lambda link: link.pause(name, reason=reason))

    async def apause(self, name: str | UUID, *, reason: str = "") -> Schedule:
        return await self._acall(lambda link: link.pause(name, reason=reason))

    def resume(self, name: str | UUID) -> Schedule:
        """Resume the schedule with its first occurrence after now.

        Occurrences that fell due during the pause make no jobs, but `backfill` can make them. A schedule that runs once
        and whose instant has passed runs now, unless its catch-up is skip.
        """
        return self._call(lambda link: link.resume(name))

    async def aresume(self, name: str | UUID) -> Schedule:
        return await self._acall(lambda link: link.resume(name))

    def delete(self, name: str | UUID) -> None:
        """Delete the schedule. The jobs it has made stay."""
        self._call(lambda link: link.delete(name))

    async def adelete(self, name: str | UUID) -> None:
        await self._acall(lambda link: link.delete(name))

    # --- reading

    def get(self, name: str | UUID) -> Schedule:
        return self._call(lambda link: link.get(name))

    async def aget(self, name: str | UUID) -> Schedule:
        return await self._acall(lambda link: link.get(name))

    def list(self, *, after: str | None = None, limit: int = 50, **wanted: Unpack[WantedSchedules]) -> SchedulePage:
        """Return a page of schedules in order of their names. `after` is the `next` of the page before."""
        check_kind("after", after, str, None)
        chosen = read_schedule_filter(wanted)
        return self._call(lambda link: link.list_page(chosen, after=after, limit=limit))

    async def alist(
        self, *, after: str | None = None, limit: int = 50, **wanted: Unpack[WantedSchedules]
    ) -> SchedulePage:
        check_kind("after", after, str, None)
        chosen = read_schedule_filter(wanted)
        return await self._acall(lambda link: link.list_page(chosen, after=after, limit=limit))

    def preview(self, name: str | UUID, *, n: int = 10) -> OccurrenceList:
        """Return the next occurrences, as they stand if nothing is changed."""
        return self._call(lambda link: link.preview(name, n=n))

    async def apreview(self, name: str | UUID, *, n: int = 10) -> OccurrenceList:
        return await self._acall(lambda link: link.preview(name, n=n))

    def fires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage:
        """Return a page of what became of its occurrences, newest first."""
        check_kind("after", after, str, None)
        return self._call(lambda link: link.fires(name, after=after, limit=limit))

    async def afires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage:
        check_kind("after", after, str, None)
        return await self._acall(lambda link: link.fires(name, after=after, limit=limit))

    # --- firing by hand

    def trigger(self, name: str | UUID) -> JobHandle[Any]:
        """Make a job now, outside the timetable, even if the schedule is paused or its last job still runs."""
        return self._call(lambda link: self._trigger(link, name))

    async def atrigger(self, name: str | UUID) -> JobHandle[Any]:
        return await self._acall(lambda link: self._trigger(link, name))

    async def _trigger(self, link: SchedulesLink, name: str | UUID) -> JobHandle[Any]:
        task = self._app.find_task((await link.get(name)).job.task)
        job_id = (await link.trigger(name)).job_id
        assert job_id is not None
        return JobHandle(self._app, job_id, task.result if task else Result("", lambda: None))

    def backfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill:
        """Make the jobs of past occurrences, from `start` and before `end`, for which none was made."""
        check_kind("dry_run", dry_run, bool)
        return self._call(lambda link: link.backfill(name, start=start, end=end, limit=limit, dry_run=dry_run))

    async def abackfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill:
        check_kind("dry_run", dry_run, bool)
        return await self._acall(lambda link: link.backfill(name, start=start, end=end, limit=limit, dry_run=dry_run))

    # --- declaring

    def declare(
        self,
        name: str,
        task: AnyTask | str,
        *,
        payload: Mapping[str, Any] | None = None,
        aliases: Sequence[str] = (),
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Declare a schedule beside the tasks. `sync` creates it; the database is not used until then.

        `aliases` are its former names: a renamed schedule keeps its history, its pause and its place in the timetable.
        """
        self._declare(self._new(name, task, payload, options), aliases)

    def declare_for(self, task: AnyTask, *, cron: str | None, every: Length | None, tz: str | None) -> None:
        """Declare the schedule of `@app.task(cron=…)`, which has the name of the task, if cron or every is given."""
        if cron is None and every is None:
            if tz is not None:
                raise InvalidTask(f"task {task.name!r} has a tz but no schedule that uses it: give cron or every, too")
            return
        if needed := task.arguments.required:
            raise InvalidTask(
                f"task {task.name!r} needs {' and '.join(needed)}, which a schedule in its decorator cannot pass: use "
                "app.schedules.declare(name, task, payload={…}), or give the parameters defaults"
            )
        when: ScheduleOptions = {"cron": cron, "every": every, "tz": "UTC" if tz is None else tz}
        new = NewSchedule(name=task.name, job=self._template(task, "{}"), **read_options(when))
        self._declare(new, task.aliases)

    def _declare(self, new: NewSchedule, aliases: Sequence[str]) -> None:
        former = tuple(check_name("alias", alias) for alias in read_aliases(aliases))
        for name in (names := [new.name, *former]):
            if name in self._names or names.count(name) > 1:
                raise InvalidSchedule(f"two schedules are declared as {name!r}: give one of them another name")
        self._declared[new.name] = Declared(schedule=new, aliases=former)
        self._names.update(names)

    @property
    def declared(self) -> DeclaredList:
        """Return the declared schedules, in the order in which they were declared."""
        return [*self._declared.values()]

    def sync(
        self, app_name: str | None = None, *, deploy: int | None = None, prune: bool = False, dry_run: bool = False
    ) -> SyncReport:
        """Change the schedules of this app to those that its code declares: once per deploy, as `pulse schedules sync`.

        Schedules that it no longer declares are disabled, or deleted with `prune`. They belong to the given name, by
        default the module and the variable of the app. The twin for coroutines is `async_`.
        """
        name = self._name(app_name)
        check_kind("prune", prune, bool)
        check_kind("dry_run", dry_run, bool)
        return self._call(lambda link: link.sync(name, self.declared, deploy=deploy, prune=prune, dry_run=dry_run))

    async def async_(
        self, app_name: str | None = None, *, deploy: int | None = None, prune: bool = False, dry_run: bool = False
    ) -> SyncReport:
        """Sync like `sync`, from a coroutine. The underscore is there because `async` is a keyword of Python."""
        name = self._name(app_name)
        check_kind("prune", prune, bool)
        check_kind("dry_run", dry_run, bool)
        return await self._acall(
            lambda link: link.sync(name, self.declared, deploy=deploy, prune=prune, dry_run=dry_run)
        )

    def _name(self, given: str | None) -> str:
        from pulse.sdk.locate import name_of

        return name_of(self._app) if given is None else given

    # --- shared

    def _call(self, work: Callable[[SchedulesLink], Coroutine[Any, Any, T]]) -> T:
        return self._app.link_thread.call(lambda link: work(link.schedules))

    async def _acall(self, work: Callable[[SchedulesLink], Coroutine[Any, Any, T]]) -> T:
        return await self._app.link_thread.acall(lambda link: work(link.schedules))

    def _new(
        self, name: str, task: AnyTask | str, payload: Mapping[str, Any] | None, options: ScheduleOptions
    ) -> NewSchedule:
        return NewSchedule(name=name, job=self._job(task, payload), **read_options(options))

    def _job(self, task: AnyTask | str, payload: Mapping[str, Any] | None) -> NewJob:
        """Return the job that each occurrence makes. Its arguments are checked at once if the task is known here."""
        known = self._find(task)
        name = known.name if known else str(task)
        given: object = {} if payload is None else payload
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise InvalidArguments(name, 'payload must be a dict of arguments by name, such as {"order_id": 1}')
        if known is not None:
            return self._template(known, known.arguments.pack((), dict(given)))
        return NewJob(task=name, payload=write_json(dict(given), lambda why: InvalidArguments(name, why)))

    def _find(self, task: AnyTask | str) -> AnyTask | None:
        """Return the task of this app, or None if it is the name of another program's task."""
        if isinstance(task, str):
            return self._app.find_task(task)
        if not isinstance(task, Task):
            raise InvalidTask(f"{task!r} is not a task: give a task of this app, or the name of a task")
        if task.app is not self._app:
            raise InvalidTask(
                f"task {task.name!r} belongs to another app: use that app's schedules, or give its name as text"
            )
        return task

    def _template(self, task: AnyTask, payload: str) -> NewJob:
        if task.options.conn is not None:
            raise InvalidSchedule(
                "the job of a schedule must have no conn: each occurrence makes its job later, not in your transaction"
            )
        return task.make(payload)
