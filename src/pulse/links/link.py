"""What does the SDK need from whoever holds the jobs? One protocol: direct.py is it over Postgres in this process,
remote.py over gRPC to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime, timedelta
    from uuid import UUID

    from pulse.engine.metrics import Metrics
    from pulse.model.alarms import Alarm, AlarmFilter, AlarmPage, DeliveryPage, NewAlarm, SetAlarm, WakeSecret
    from pulse.model.explain.facts import Explanation
    from pulse.model.jobs import Claim, Job, Lease, NewJob, Progress, Report, ReportStatus, Submitted
    from pulse.model.schedules import (
        Backfill,
        Declared,
        Fire,
        FirePage,
        NewSchedule,
        Schedule,
        ScheduleFilter,
        SchedulePage,
        SyncReport,
    )
    from pulse.timing.cron import Occurrence


class Scheduling(Protocol):
    """What code that has schedules needs: the use cases of engine/schedules."""

    async def get(self, name: str | UUID) -> Schedule: ...
    async def list_page(
        self, wanted: ScheduleFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> SchedulePage: ...
    async def fires(self, name: str | UUID, *, after: str | None = None, limit: int = 50) -> FirePage: ...
    async def preview(self, name: str | UUID, *, n: int = 10) -> list[Occurrence]: ...
    async def preview_new(self, new: NewSchedule, *, n: int = 10) -> list[Occurrence]: ...
    async def create(self, new: NewSchedule) -> tuple[Schedule, bool]: ...
    async def edit(self, name: str | UUID, changes: Mapping[str, Any]) -> Schedule: ...
    async def pause(self, name: str | UUID, *, reason: str = "") -> Schedule: ...
    async def resume(self, name: str | UUID) -> Schedule: ...
    async def delete(self, name: str | UUID) -> Schedule: ...
    async def trigger(self, name: str | UUID, *, job_id: UUID | None = None) -> Fire: ...
    async def backfill(
        self, name: str | UUID, *, start: datetime, end: datetime, limit: int = 100, dry_run: bool = False
    ) -> Backfill: ...
    async def sync(
        self,
        app: str,
        declared: Sequence[Declared],
        *,
        deploy: int | None = None,
        prune: bool = False,
        dry_run: bool = False,
    ) -> SyncReport: ...


class Waking(Protocol):
    """What code that has alarms needs: the use cases of engine/alarms. Without an owner it is the caller's."""

    async def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...
    async def list_page(
        self, wanted: AlarmFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> AlarmPage: ...
    async def deliveries(
        self, key: UUID | str, *, owner: str | None = None, after: str | None = None, limit: int = 50
    ) -> DeliveryPage: ...
    async def set(self, new: NewAlarm, *, own_id: UUID | None = None) -> SetAlarm: ...
    async def cancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...
    async def pause(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...
    async def resume(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...
    async def fire(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...
    async def secrets(self, owner: str | None = None) -> list[WakeSecret]: ...
    async def rotate_secret(self, *, overlap: timedelta = ..., owner: str | None = None) -> list[WakeSecret]: ...


class Producing(Protocol):
    """What code that enqueues needs."""

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]: ...
    async def get(self, job_id: UUID) -> Job: ...
    async def wait(self, job_id: UUID, *, seconds: float) -> Job:
        """The job once it is finished, or as it stands after about that long."""

    async def cancel(self, job_id: UUID, *, reason: str) -> Job: ...
    async def explain(self, job_id: UUID) -> Explanation:
        """Why it is not running. A server asks for the scope `read`: it names who else is there."""

    @property
    def schedules(self) -> Scheduling: ...
    @property
    def alarms(self) -> Waking: ...


class HeartbeatLink(Protocol):
    """What the thread that keeps leases needs. It has a connection of its own."""

    async def heartbeat(self, leases: Sequence[Lease]) -> list[ReportStatus]: ...
    async def rest(self) -> None:
        """Nothing runs for now: let go of what costs others something."""


class SlotPool(NamedTuple):
    """Room for handlers of one kind, and the topics whose jobs may need it."""

    topics: tuple[str, ...]
    free: int


class WorkerState(Protocol):
    """What a link may ask the worker it serves."""

    @property
    def name(self) -> str: ...
    def slot_pools(self) -> list[SlotPool]:
        """Always as many, in the same order."""

    def held(self) -> list[Lease]:
        """Everything it holds."""

    def end(self, lease: Lease) -> None:
        """Someone has cancelled this job."""


class Batch(NamedTuple):
    """Jobs leased to this worker together."""

    claims: Sequence[Claim]
    held_until: float  # on this process's monotonic clock, never later than their leases


class Link(Producing, Protocol):
    """What a worker needs, beside what it enqueues itself."""

    @property
    def lease(self) -> float:
        """Seconds for which a job is leased, by whoever leases it."""

    @property
    def heartbeat(self) -> float:
        """Seconds between two heartbeats."""

    @property
    def metrics(self) -> Metrics | None:
        """Of the engine in this process, if there is one."""

    def start(self, state: WorkerState) -> None:
        """Begin to hear of new work, and to do what every worker shares."""

    async def check(self) -> None:
        """Raise if jobs could not come just now."""

    async def check_access(self, worker: str, topics: Sequence[str]) -> None:
        """Raise if our token is unknown, or lacks the scope to work on one of these topics."""

    def on_ready(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a topic ("*": any) when work may have come. A hint; it may come too often or never."""

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        """Call `listener` with jobs that were dead-lettered because a lease or a deadline ended, as far as this
        worker is to tell of them."""

    async def get_dead_letter(self, job_id: UUID) -> Job | None:
        """The job, if it is one. It asks for no more than the right to work on its topic."""

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        """Which of the topics have work waiting: one question, however many there are."""

    async def claim(self, topic: str, *, worker: str, slots: int) -> Batch: ...
    async def stop_claiming(self) -> Sequence[Claim]:
        """Nothing more is wanted; answers with what was leased to this worker and not handed out by `claim`."""

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]: ...
    async def progress(self, progress: Sequence[Progress]) -> list[ReportStatus]: ...
    async def release(self, leases: Sequence[Lease]) -> list[ReportStatus]: ...
    def open_heartbeats(self) -> AbstractAsyncContextManager[HeartbeatLink]:
        """To be called on the event loop that will beat."""
