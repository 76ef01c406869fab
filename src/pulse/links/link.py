"""What does the SDK need from the engine? These protocols: direct.py implements them with an engine in this process,
and remote/ with calls to a server over gRPC."""

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


class SchedulesLink(Protocol):
    """The part of a link that manages schedules: the use cases of engine/schedules."""

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


class AlarmsLink(Protocol):
    """The part of a link that manages alarms: the use cases of engine/alarms. The default owner is the caller."""

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


class ProducerLink(Protocol):
    """The part of a link that programs which enqueue jobs need."""

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]: ...
    async def get(self, job_id: UUID) -> Job: ...
    async def wait(self, job_id: UUID, *, seconds: float) -> Job:
        """Return the job once it is finished, or as it is after about this many seconds."""

    async def cancel(self, job_id: UUID, *, reason: str) -> Job: ...
    async def explain(self, job_id: UUID) -> Explanation:
        """Explain why the job is not running. A server requires the scope `read`, because the answer names workers."""

    @property
    def schedules(self) -> SchedulesLink: ...
    @property
    def alarms(self) -> AlarmsLink: ...


class HeartbeatLink(Protocol):
    """The link of the thread that renews leases, with a connection of its own."""

    async def heartbeat(self, leases: Sequence[Lease]) -> list[ReportStatus]: ...
    async def rest(self) -> None:
        """Close what costs others something, such as a connection, because no job is running now."""


class SlotPool(NamedTuple):
    """Free slots for handlers of one kind, and the topics whose jobs may need them."""

    topics: tuple[str, ...]
    free: int


class WorkerState(Protocol):
    """The state of a worker, as its link reads it."""

    @property
    def name(self) -> str: ...
    def slot_pools(self) -> list[SlotPool]:
        """Return the slot pools, always the same number in the same order."""

    def held(self) -> list[Lease]:
        """Return the leases of all jobs that the worker holds."""

    def end(self, lease: Lease) -> None:
        """End the run of a job that was cancelled."""


class Batch(NamedTuple):
    """Jobs leased to this worker together."""

    claims: Sequence[Claim]
    held_until: float  # on this process's monotonic clock, never later than their leases


class Link(ProducerLink, Protocol):
    """A link for workers, which can also enqueue."""

    @property
    def lease(self) -> float:
        """Return how many seconds a job is leased for, by the settings of the engine that leases it."""

    @property
    def heartbeat(self) -> float:
        """Return the seconds between two heartbeats."""

    @property
    def metrics(self) -> Metrics | None:
        """Return the metrics of the engine in this process, if there is one."""

    def start(self, state: WorkerState) -> None:
        """Begin to listen for new jobs, and to run the duties that every worker shares."""

    async def check(self) -> None:
        """Raise if no jobs can come at the moment."""

    async def check_access(self, worker: str, topics: Sequence[str]) -> None:
        """Raise if the token is unknown, or lacks the scope to work on one of these topics."""

    def on_ready(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a topic, or "*" for any, when jobs may be ready. It is a hint that may come too often or
        never."""

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        """Call `listener` with jobs that became dead letters because a lease or a deadline ended, if this worker is
        the one to handle them."""

    async def get_dead_letter(self, job_id: UUID) -> Job | None:
        """Return the job if it is a dead letter. It requires no more than the right to work on its topic."""

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        """Return which of the topics have jobs waiting, with one query for all of them."""

    async def claim(self, topic: str, *, worker: str, slots: int) -> Batch: ...
    async def stop_claiming(self) -> Sequence[Claim]:
        """Claim no more jobs. Return those that were leased to this worker and not returned by `claim`."""

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]: ...
    async def progress(self, progress: Sequence[Progress]) -> list[ReportStatus]: ...
    async def release(self, leases: Sequence[Lease]) -> list[ReportStatus]: ...
    def open_heartbeats(self) -> AbstractAsyncContextManager[HeartbeatLink]:
        """Open the link for heartbeats. It must be called on the event loop that sends them."""
