"""What can callers do with schedules? Each use case is one transaction over the rows it names, by the database's time.

A schedule is looked up by its name or its id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pulse.engine.list_pages import search_schedules
from pulse.engine.masks import mask_each, mask_one, mask_schedule, refuse_masked_each
from pulse.engine.schedules.fires import has_fired, log_passed_over, resume_at
from pulse.engine.schedules.sync import Sync
from pulse.model.decisions.firing import is_owed
from pulse.model.decisions.schedule_changes import apply_changes, differences, is_retimed, make_schedule, redefine
from pulse.model.errors import (
    Conflict,
    InvalidFilter,
    InvalidOption,
    InvalidSchedule,
    ScheduleExists,
    ScheduleNotFound,
    ScheduleOwned,
)
from pulse.model.ids import Mint, bucket_of_topic, fire_id, in_bucket
from pulse.model.jobs import EARLIEST, PAGE_LIMIT, check_int, check_kind
from pulse.model.schedules import (
    MAX_BACKFILLED,
    MAX_PREVIEWED,
    Backfill,
    Declared,
    Fire,
    FireOutcome,
    FirePage,
    NewSchedule,
    Schedule,
    ScheduleFilter,
    SchedulePage,
    ScheduleStatus,
    SyncReport,
    Timed,
)
from pulse.model.text import check_name, check_text
from pulse.store.installation import read_clock
from pulse.store.jobs.lookups import get_jobs
from pulse.store.jobs.submits import compare_payloads
from pulse.store.schedules import changes as changes_store
from pulse.store.schedules import fire_log, fires, lists
from pulse.store.schedules.fires import JobToFire
from pulse.timing.cron import InvalidCron
from pulse.timing.timetable import MOMENT

if TYPE_CHECKING:
    from pulse.model.jobs import Job
    from pulse.model.list_filters import ScheduleSearch
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.jobs.rows import ReadyTopic
    from pulse.timing.cron import Occurrence

T = TypeVar("T")
LAST = (datetime.max.replace(tzinfo=UTC), "")


class Schedules:
    """The use cases of schedules, over one database."""

    def __init__(self, database: Database, notifications: Notifications, *, buckets: int) -> None:
        self.buckets = buckets
        self._database = database
        self._notifications = notifications
        self._redaction = database.settings.redaction
        self._mint = Mint()
        self._topic: str | None = None
        self._may_see: Callable[[str], bool] = lambda _topic: True

    # --- callers whose rights are limited

    def checked_for(self, topic: str) -> Schedules:
        """Return these use cases for a caller whose right was checked for jobs of a topic. The topic was read from the
        row before, so a schedule that has moved to another topic meanwhile is refused."""
        own = copy(self)
        own._topic = topic
        return own

    def disclosing_to(self, may_see: Callable[[str], bool]) -> Schedules:
        """Return these use cases for a caller who may learn how an existing schedule differs only if it may see jobs of
        that topic. The names of the differing fields would let anybody guess the payload."""
        own = copy(self)
        own._may_see = may_see
        return own

    # --- reading

    async def get(self, name: str | UUID) -> Schedule:
        async def work(conn: Connection) -> Schedule:
            found = await lists.find_schedules(conn, *_key(name))
            return _only(found, name)

        return await self._masked(await self._database.run(work))

    async def list_page(
        self, wanted: ScheduleFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> SchedulePage:
        """Return a page of schedules, by name."""
        check_limit(limit)
        wanted = wanted or ScheduleFilter()
        found = await self._database.run(
            lambda conn: lists.list_schedules(conn, wanted, after=after or "", limit=limit + 1)
        )
        following = found[limit - 1].name if len(found) > limit else None
        return SchedulePage(await self._each_masked(found[:limit]), following)

    async def search(self, wanted: ScheduleSearch, *, after: str | None = None, limit: int = 50) -> SchedulePage:
        """Return a page of search results, by name. A page reads a limited number of rows, so it may be short and not
        the last."""
        page = await self._database.run(lambda conn: search_schedules(conn, wanted, after=after, limit=limit))
        return SchedulePage(await self._each_masked(page.schedules), page.next)

    async def due_until(self, until: timedelta, *, limit: int) -> tuple[datetime, list[Schedule]]:
        """Return the time, and the schedules that fire next within `until` from then."""

        async def work(conn: Connection) -> tuple[datetime, list[Schedule]]:
            now = await read_clock(conn)
            found = await lists.next_schedules(conn, until=now + until, limit=limit)
            return now, found

        now, found = await self._database.run(work)
        return now, await self._each_masked(found)

    async def lateness(self, schedules: Sequence[Schedule]) -> dict[UUID, timedelta]:
        """Return how late each of them last fired, if the log still has it."""
        fired = {each.id: each.last_run_at for each in schedules if each.last_run_at is not None}
        seen = await self._database.run(
            lambda conn: fire_log.last_fires(conn, ids=list(fired), occurrences=list(fired.values()))
        )
        return {own_id: max(timedelta(), at - fired[own_id]) for own_id, at in seen.items()}

    async def fires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage:
        """Return the outcomes of its occurrences, newest first. Those of a deleted schedule can be read by its id as
        long as the log is kept."""
        check_limit(limit)
        before = _read_cursor(after) if after else LAST

        async def work(conn: Connection) -> list[Fire]:
            own_id, _ = await _find_logged(conn, name)
            return await fire_log.list_fires(conn, schedule_id=own_id, before=before, limit=limit + 1)

        found = await self._database.run(work)
        return FirePage(found[:limit], _write_cursor(found[limit - 1]) if len(found) > limit else None)

    async def find_logged(self, name: str | UUID) -> tuple[UUID, str | None]:
        """Return the id of a schedule and the topic of its jobs. The topic is None if it was deleted and only the log
        still has it."""
        return await self._database.run(lambda conn: _find_logged(conn, name))

    async def preview(self, name: str | UUID, *, n: int = 10) -> list[Occurrence]:
        """Return the next occurrences of a schedule if nothing changes."""

        async def work(conn: Connection) -> list[Occurrence]:
            schedule = _only(await lists.find_schedules(conn, *_key(name)), name)
            left = n if schedule.max_occurrences is None else min(n, schedule.max_occurrences - schedule.fired)
            if schedule.next_run_at is None:
                return []
            now = await read_clock(conn)
            is_due = schedule.paused_at is None and schedule.next_run_at <= now  # it is about to fire
            is_due = is_due or (is_owed(schedule, now) and not await has_fired(conn, schedule))
            return _preview(schedule.timed, left, schedule.next_run_at - MOMENT if is_due else now)

        check_preview(n)
        return await self._database.run(work)

    async def preview_new(self, new: NewSchedule, *, n: int = 10) -> list[Occurrence]:
        """Return the occurrences that a schedule would have if it were made now."""
        check_preview(n)
        now = await self._database.run(read_clock)
        timed = new.timed(now)
        timed.first_after(now)
        return _preview(timed, n if new.max_occurrences is None else min(n, new.max_occurrences), now)

    # --- changing

    async def create(self, new: NewSchedule) -> tuple[Schedule, bool]:
        """Return the schedule, and whether it is new. To create the same schedule again changes nothing."""
        await refuse_masked_each(self._redaction, [new.job.payload])
        schedule_id = self.mint_id()

        async def work(conn: Connection) -> tuple[Schedule, bool]:
            now = await read_clock(conn)
            found = await lists.find_schedules(conn, [new.name])
            if not found:
                schedule = make_schedule(new, schedule_id, now)
                if made := await changes_store.insert_schedules(conn, [schedule], buckets=[self.bucket_of(schedule)]):
                    return made[0], True
                found = await lists.find_schedules(conn, [new.name])
            known = _only(found, new.name)
            if not self._may_see(known.job.routed_topic):
                raise ScheduleExists(new.name)
            if known.app is not None:
                raise ScheduleOwned(new.name, known.app, "choose another name")
            [is_same_payload] = await compare_payloads(conn, [(known.job.payload, new.job.payload)])
            if differs := differences(known, new, now, is_same_payload=is_same_payload):
                raise ScheduleExists(new.name, " and ".join(differs))
            return known, known.id == schedule_id  # an earlier try of this call made it if the ids are equal

        schedule, is_new = await self._database.run_together(work)
        return await self._masked(self._notify(schedule)), is_new

    async def edit(self, name: str | UUID, changes: Mapping[str, Any]) -> Schedule:
        """Change some fields of a schedule. A new timetable counts from now."""
        if isinstance(payload := changes.get("payload"), str):
            await refuse_masked_each(self._redaction, [payload], is_edit=True)

        async def work(conn: Connection, schedule: Schedule) -> None:
            if schedule.app is not None:
                raise ScheduleOwned(schedule.name, schedule.app, "change it in the code and sync")
            now = await read_clock(conn)
            changed = _apply_edit(schedule, changes, now)
            if changed.next_run_at != schedule.next_run_at:
                await log_passed_over(conn, [schedule], "edited", now)
            await changes_store.update_schedules(conn, [changed], buckets=[self.bucket_of(changed)])

        return self._notify(await self._change(name, work))

    async def pause(self, name: str | UUID, *, reason: str = "") -> Schedule:
        """Pause a schedule: it does not fire until it is resumed."""
        check_kind("reason", reason, str)
        if reason:
            check_text("reason", reason, 2_000)

        async def work(conn: Connection, schedule: Schedule) -> None:
            await changes_store.pause_schedule(conn, id=schedule.id, reason=reason)

        return await self._change(name, work)

    async def resume(self, name: str | UUID) -> Schedule:
        """Resume a schedule with its first occurrence after now. Occurrences during the pause are skipped, except that
        of a once schedule."""

        async def work(conn: Connection, schedule: Schedule) -> None:
            if schedule.paused_at is None:
                return
            following, status = schedule.next_run_at, schedule.status
            if following is not None:
                with _as_invalid_schedule():
                    following = await resume_at(conn, schedule, await read_clock(conn))
                status = ScheduleStatus.ACTIVE if following else ScheduleStatus.COMPLETED
            await changes_store.resume_schedule(conn, id=schedule.id, next=following, status=status)

        return self._notify(await self._change(name, work))

    async def delete(self, name: str | UUID) -> Schedule:
        """Delete a schedule. The jobs it has made stay."""

        async def work(conn: Connection) -> Schedule:
            schedule = await self._lock(conn, name)
            if schedule.app is not None and schedule.status is not ScheduleStatus.DISABLED:
                raise ScheduleOwned(schedule.name, schedule.app, "remove it from the code and sync, or pause it")
            await changes_store.delete_schedules(conn, ids=[schedule.id])
            return schedule

        return await self._masked(await self._database.run_together(work))

    async def _change(self, name: str | UUID, work: Callable[[Connection, Schedule], Awaitable[None]]) -> Schedule:
        """Call `work` with the schedule's row locked, and return the schedule as it is afterwards."""

        async def inside(conn: Connection) -> Schedule:
            schedule = await self._lock(conn, name)
            await work(conn, schedule)
            return _only(await lists.find_schedules(conn, ids=[schedule.id]), name)

        return await self._masked(await self._database.run_together(inside))

    # --- firing by hand

    async def trigger(self, name: str | UUID, *, job_id: UUID | None = None) -> Fire:
        """Make a job now, in addition to the timetable, regardless of pause and overlap. A call repeated with the same
        id makes only one. The last twelve bits of the id become the bucket of its topic."""
        minted = job_id or self.mint_id()  # made here, since `work` may run twice

        async def work(conn: Connection) -> tuple[Fire, list[ReadyTopic]]:
            schedule = await self._lock(conn, name)
            bucket = self.bucket_of(schedule)
            own = in_bucket(minted, bucket)
            if known := (await get_jobs(conn, bucket=bucket, ids=[own])).get(own):
                return _repeated_trigger(schedule, known), []
            now = await read_clock(conn)
            if _is_occurrence(schedule, now):  # that instant belongs to the timetable
                now += MOMENT
            while await fire_log.fired_occurrences(conn, schedule_id=schedule.id, occurrences=[now]):
                now += MOMENT  # an instant makes only one job, and this one has one
            _, ready = await self._make_jobs(conn, schedule, [now], cause="trigger", job_id=own)
            return _trigger_fire(now, own), ready

        return await self._run_and_notify(work)

    async def backfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill:
        """Make the missing jobs of past occurrences, from `start` up to but not including `end`."""
        check_stretch(start, end, limit)

        async def work(conn: Connection) -> tuple[Backfill, list[ReadyTopic]]:
            schedule = await self._lock(conn, name)
            if end > (now := await read_clock(conn)):
                raise InvalidOption("end", end.isoformat(), f"be now or earlier (now is {now.isoformat()})")
            with _as_invalid_schedule():
                occurrences = _occurrences_between(schedule, start, end, limit)
            fired = await fire_log.fired_occurrences(conn, schedule_id=schedule.id, occurrences=occurrences)
            left = [occurrence for occurrence in occurrences if occurrence not in fired]
            if dry_run or not left:
                return Backfill(occurrences=left, job_ids=[], dry_run=dry_run), []
            job_ids, ready = await self._make_jobs(conn, schedule, left, cause="backfill")
            return Backfill(occurrences=left, job_ids=job_ids, dry_run=False), ready

        return await self._run_and_notify(work)

    async def _make_jobs(
        self,
        conn: Connection,
        schedule: Schedule,
        occurrences: Sequence[datetime],
        *,
        cause: str,
        job_id: UUID | None = None,
    ) -> tuple[list[UUID], list[ReadyTopic]]:
        bucket = self.bucket_of(schedule)
        jobs = [
            JobToFire(schedule.id, each, job_id or fire_id(schedule.id, each, bucket), None) for each in occurrences
        ]
        try:
            fired = await fires.fire_schedules(conn, plans=[], jobs=jobs, notes=[], cause=cause)
        except fires.RefusedByDatabase as error:
            raise InvalidSchedule(f"the database refuses a job of {schedule.name!r}: {error}") from error
        return [item.job_id for item in jobs], fired.ready

    async def _run_and_notify(self, work: Callable[[Connection], Awaitable[tuple[T, list[ReadyTopic]]]]) -> T:
        answer, ready = await self._database.run_together(work)
        self._notifications.notify_ready(ready)
        return answer

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
        """Make the schedules of an app what its code declares. Schedules of others and pauses stay as they are."""
        check_name("app", app)
        check_deploy(deploy)
        await refuse_masked_each(self._redaction, [each.schedule.job.payload for each in declared])
        sync = Sync(app, declared, mint=self.mint_id, bucket_of=self.bucket_of)
        report = await self._database.run_together(
            lambda conn: sync.run(conn, deploy=deploy, prune=prune, dry_run=dry_run)
        )
        for schedule in sync.written:
            self._notify(schedule)
        return report

    # --- shared

    async def _lock(self, conn: Connection, name: str | UUID) -> Schedule:
        schedule = _only(await changes_store.lock_schedules(conn, *_key(name)), name)
        if self._topic not in (None, schedule.job.routed_topic):
            raise Conflict(f"schedule {schedule.name!r} was moved to another topic meanwhile: look at it and try again")
        return schedule

    def mint_id(self) -> UUID:
        return self._mint.ids([0])[0]

    def bucket_of(self, schedule: Schedule) -> int:
        return bucket_of_topic(schedule.job.routed_topic, self.buckets)

    async def _masked(self, schedule: Schedule) -> Schedule:
        return await mask_one(self._redaction, mask_schedule, schedule)

    async def _each_masked(self, schedules: Sequence[Schedule]) -> list[Schedule]:
        if not self._redaction:
            return list(schedules)
        return await mask_each(lambda schedule: mask_schedule(self._redaction, schedule), schedules)

    def _notify(self, schedule: Schedule) -> Schedule:
        """Notify the processes that fire schedules, so that none sleeps past its first occurrence."""
        if schedule.next_run_at is not None and schedule.paused_at is None:
            self._notifications.notify_due_soon(schedule.next_run_at - schedule.updated_at)
        return schedule


def _key(name: str | UUID) -> tuple[list[str], list[UUID]]:
    """Return the names and the ids that a name or the text of an id may mean."""
    if isinstance(name, UUID):
        return [], [name]
    check_name("schedule", name)
    try:
        return [name], [UUID(name)]
    except ValueError:
        return [name], []


def _only(found: Sequence[Schedule], name: str | UUID) -> Schedule:
    if not found:
        raise ScheduleNotFound(str(name))
    return found[0]


async def _find_logged(conn: Connection, name: str | UUID) -> tuple[UUID, str | None]:
    names, ids = _key(name)
    if found := await lists.find_schedules(conn, names, ids):
        return found[0].id, found[0].job.routed_topic
    if ids and await fire_log.list_fires(conn, schedule_id=ids[0], before=LAST, limit=1):
        return ids[0], None
    raise ScheduleNotFound(str(name))


def _is_occurrence(schedule: Schedule, instant: datetime) -> bool:
    try:
        return schedule.timed.next_after(instant - MOMENT) == instant
    except InvalidCron:
        return False


def _repeated_trigger(schedule: Schedule, job: Job) -> Fire:
    """Return the answer to a call that was answered before. Refuse an id that another job has."""
    if job.schedule_id != schedule.id or job.scheduled_for is None:
        raise InvalidOption("job_id", str(job.id), "be new for each trigger (another job has it)")
    return _trigger_fire(job.scheduled_for, job.id)


def _trigger_fire(at: datetime, job_id: UUID) -> Fire:
    return Fire(occurrence=at, outcome=FireOutcome.FIRED, cause="trigger", logged_at=at, newest=at, job_id=job_id)


def _apply_edit(schedule: Schedule, changes: Mapping[str, Any], now: datetime) -> Schedule:
    new = apply_changes(schedule.definition(), changes)
    limit = new.max_occurrences
    if limit is not None and "max_occurrences" in changes and schedule.fired >= limit:
        raise InvalidOption("max_occurrences", limit, f"be more than the {schedule.fired} times it has fired")
    # A delay counts from now each time it is given. Any other timetable that is given unchanged keeps the cursor.
    return redefine(schedule, new, now, retime=new.delay is not None or is_retimed(schedule, new, now))


def _preview(timed: Timed, n: int, now: datetime) -> list[Occurrence]:
    with _as_invalid_schedule():
        return timed.preview(n, now)


@contextmanager
def _as_invalid_schedule() -> Iterator[None]:
    """Raise InvalidSchedule for a cron expression that was valid once, but whose time zone is no longer known."""
    try:
        yield
    except InvalidCron as error:
        raise InvalidSchedule(str(error)) from None


def _occurrences_between(schedule: Schedule, start: datetime, end: datetime, limit: int) -> list[datetime]:
    occurrences: list[datetime] = []
    for occurrence in schedule.timed.after(start - MOMENT):
        if occurrence >= end:
            break
        if len(occurrences) == limit:
            raise InvalidOption(
                "limit",
                limit,
                f"be large enough for all occurrences from {start.isoformat()} (raise it, up to {MAX_BACKFILLED}, or "
                "backfill a shorter time)",
            )
        occurrences.append(occurrence)
    return occurrences


def check_stretch(start: datetime, end: datetime, limit: int) -> None:
    for name, instant in (("start", start), ("end", end)):
        check_kind(name, instant, datetime)
        if instant.tzinfo is None:
            raise InvalidOption(name, instant.isoformat(), "have a time zone, for example +00:00")
        if instant < EARLIEST:
            raise InvalidOption(name, instant.isoformat(), "be 1970 or later")
    if start >= end:
        raise InvalidOption("start", start.isoformat(), f"be before end ({end.isoformat()})")
    check_int("limit", limit, 1, MAX_BACKFILLED)


def check_preview(n: int) -> None:
    check_int("n", n, 1, MAX_PREVIEWED)


def check_deploy(deploy: int | None) -> None:
    if deploy is not None:
        check_int("deploy", deploy, 0, (1 << 63) - 1)


def check_limit(limit: int) -> None:
    check_int("limit", limit, 1, PAGE_LIMIT)


def _write_cursor(fire: Fire) -> str:
    return f"{fire.occurrence.isoformat()} {fire.outcome}"


def _read_cursor(text: str) -> tuple[datetime, str]:
    instant, _, outcome = str(text).partition(" ")
    try:
        found = datetime.fromisoformat(instant)
        if found.tzinfo is not None:
            return (found.astimezone(UTC), FireOutcome(outcome).value)
    except (ValueError, OverflowError):
        pass
    raise InvalidFilter(f"after must be the `next` of the previous page of fires, not {str(text)[:60]!r}")
