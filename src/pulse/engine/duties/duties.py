"""Which work does every process do beside its own? Promote, fire, wake, reap, prune and tally, without a leader.

Each duty is a step that any number of processes may take at any time: rows are locked with SKIP LOCKED and guarded
by their state, so processes share the work and never repeat it. A step answers with how long to sleep after it. All of
them take turns on one connection: each is short, gives up soon where somebody holds a lock, and an idle process holds
no more connections than it needs.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.engine.alarms.deliveries import DeliveryDuty
from pulse.engine.duties.loops import Loop
from pulse.engine.duties.polls import Poll
from pulse.engine.duties.refused_rows import Apart, Steps
from pulse.engine.instruments import Instruments
from pulse.engine.schedules.fires import FireDuty
from pulse.engine.sessions import IDLE
from pulse.model.errors import Conflict
from pulse.model.jobs import JobStatus
from pulse.store.alarms.duties import prune_alarms
from pulse.store.connections.notifications import SOON
from pulse.store.duties import peeks
from pulse.store.duties.watchdog import Look, look_at_leases
from pulse.store.installation import read_clock
from pulse.store.jobs import duties
from pulse.store.schedules.fire_log import prune_fires
from pulse.store.sessions import prune_sessions
from pulse.store.statistics import counts
from pulse.store.statistics.series import forget_series, prune_series

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from datetime import datetime

    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.duties.peeks import DutyPeek
    from pulse.store.jobs.duties import MovedJob
    from pulse.store.jobs.rows import ReadyTopic

log = logging.getLogger("pulse.duties")

BATCH = 1_000
FIRST_ID = UUID(int=0)
TALLY_BATCH = 5_000
AT_ONCE = timedelta()
PRUNE_EVERY = timedelta(seconds=60)
APART_FOR = 10.0  # seconds for which jobs are looked at alone, after somebody's lock on another table
TALLY_EVERY = timedelta(seconds=2)
TALLY_IDLE = timedelta(seconds=30)  # counts are exact without it: it only keeps the reading of them cheap


class Duties:
    """The steps of one process."""

    def __init__(
        self, database: Database, notifications: Notifications, *, buckets: int, instruments: Instruments | None = None
    ) -> None:
        instruments = instruments or Instruments()
        self._database = database
        self._notifications = notifications
        self._settings = database.settings
        self._buckets = list(range(buckets))
        self._apart_until = 0.0  # on this process's monotonic clock
        self._failed_to_look = False  # the last time
        self._pruned_up_to = FIRST_ID
        self.fires = FireDuty(database, notifications, instruments)
        self._fire = Loop("fire", self.fires.step)
        self.deliveries = DeliveryDuty(database, notifications, instruments)
        self._schedule_poll = Poll(self._settings.schedule_tick, lambda: notifications.is_listening)
        self._alarm_poll = Poll(self._settings.alarm_tick, lambda: notifications.is_listening)
        self._dead_letter_listeners: list[Callable[[UUID], None]] = []
        self._promoting, self._expiring, self._reaping = (
            [Apart(deed) for _ in self._buckets] for deed in ("promoted", "expired", "reaped")
        )

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        """Call `listener` with each job that a duty of this process dead-letters. It must not block."""
        self._dead_letter_listeners.append(listener)

    def _notify_dead_letters(self, job_ids: Iterable[UUID]) -> None:
        for job_id in job_ids:
            for listener in self._dead_letter_listeners:
                listener(job_id)

    def loops(self) -> list[Loop]:
        promote = Loop("promote", self.promote)
        self._notifications.on_due_soon(lambda _: self._expect())
        self._notifications.on_due_soon(promote.run_within)
        return [
            promote,
            self._fire,
            self.deliveries.loop,
            self.deliveries.ready_loop,
            self.deliveries.records.loop,
            Loop("reap", self.watch),
            Loop("prune", self.prune),
            Loop("tally", self.tally),
        ]

    def _expect(self) -> None:
        """A wake-up came, of whatever it is: look for everything."""
        self._schedule_poll.wake()
        self._alarm_poll.wake()

    async def promote(self) -> timedelta:
        """Move due jobs to PENDING, dead-letter waiting ones past their deadline, sleep until the next instant."""

        if time.monotonic() < self._apart_until:
            return await self._promote_apart()
        try:
            return await self._promote(self._peek)
        except Conflict as error:
            log.warning("jobs are promoted apart from schedules and alarms for %d s: %s", APART_FOR, error)
            self._apart_until = time.monotonic() + APART_FOR
            return await self._promote_apart()

    async def _promote_apart(self) -> timedelta:
        """Promote while somebody's lock on schedules or alarms would hold jobs up. Those are then looked at by their
        own duties, which wait longer each time if it is theirs that is locked."""
        for loop in (self._fire, self.deliveries.loop):
            if not loop.failures:
                loop.run_within(AT_ONCE)
        return await self._promote(self._peek_jobs)

    async def _peek(self, conn: Connection) -> list[DutyPeek]:
        schedules, alarms = self._schedule_poll.begin(), self._alarm_poll.begin()
        return await peeks.peek_duties(conn, buckets=self._buckets, schedules=schedules, alarms=alarms)

    async def _peek_jobs(self, conn: Connection) -> list[DutyPeek]:
        return await peeks.peek_jobs(conn, buckets=self._buckets)

    async def _promote(self, look: Callable[[Connection], Awaitable[list[DutyPeek]]]) -> timedelta:
        async def work(conn: Connection) -> tuple[list[timedelta], list[ReadyTopic]]:
            sleeps, ready = [self._longest_sleep()], []
            for peek in await look(conn):
                sleeps += [self._look_at_schedules(peek), self._look_at_alarms(peek)]
                sleep, topics = await self._promote_bucket(conn, peek)
                sleeps.append(sleep)
                ready += topics
            return sleeps, ready

        sleeps, ready = await self._database.run_duty(work)
        self._notifications.notify_ready(ready)
        return min(sleeps)

    def _look_at_schedules(self, peek: DutyPeek) -> timedelta:
        """Wake the fire duty when something is due, so that it need not ask while nothing is."""
        if peek.until_fire is not None and peek.until_fire <= AT_ONCE:
            self._fire.run_within(AT_ONCE)
        elif peek.is_buffering:
            self._fire.run_within(self._settings.schedule_tick)
        return self._schedule_poll.end(peek.until_fire)

    def _look_at_alarms(self, peek: DutyPeek) -> timedelta:
        if peek.until_wake is not None and peek.until_wake <= AT_ONCE:
            self.deliveries.loop.run_within(AT_ONCE)
        return self._alarm_poll.end(peek.until_wake)

    def _longest_sleep(self) -> timedelta:
        """While it listens, this process is told of everything that falls due sooner."""
        return max(SOON, self._settings.tick) if self._notifications.is_listening else self._settings.tick

    async def _promote_bucket(self, conn: Connection, peek: DutyPeek) -> tuple[timedelta, list[ReadyTopic]]:
        """What is due in one bucket, and how long until the next is."""
        ready: list[ReadyTopic] = []
        moved = 0
        if peek.until_late is not None and peek.until_late <= AT_ONCE:
            expired = await self._expire_bucket(conn, peek.bucket)
            self._notify_dead_letters(expired)
            moved += len(expired)
        if peek.until_due is not None and peek.until_due <= AT_ONCE:
            promoted, ready = await self._promote_due(conn, peek.bucket)
            moved += promoted
        if moved:
            return AT_ONCE, ready
        # Due, yet nothing moved: another process or a handler holds the rows, so look again at the next tick.
        ahead = [wait for wait in (peek.until_due, peek.until_late) if wait is not None and wait > AT_ONCE]
        if self._promoting[peek.bucket].has_refused or self._expiring[peek.bucket].has_refused:
            ahead.append(self._settings.tick)  # what is refused hides from the peek what is due after it
        return min(ahead, default=timedelta.max), ready

    async def _expire_bucket(self, conn: Connection, bucket: int) -> list[UUID]:
        steps = Steps(
            lambda: duties.expire_jobs(conn, bucket=bucket, limit=BATCH),
            lambda more: duties.ids_to_expire(conn, bucket=bucket, limit=BATCH + more),
            lambda ids: duties.expire_jobs_among(conn, bucket=bucket, ids=ids),
        )
        return [job_id for moved in await self._expiring[bucket].move(steps) for job_id in moved]

    async def _promote_due(self, conn: Connection, bucket: int) -> tuple[int, list[ReadyTopic]]:
        steps = Steps(
            lambda: duties.promote_jobs(conn, bucket=bucket, limit=BATCH),
            lambda more: duties.ids_to_promote(conn, bucket=bucket, limit=BATCH + more),
            lambda ids: duties.promote_jobs_among(conn, bucket=bucket, ids=ids),
        )
        moves = await self._promoting[bucket].move(steps)
        return sum(promoted for promoted, _ in moves), [topic for _, ready in moves for topic in ready]

    async def _reap_bucket(self, conn: Connection, bucket: int, ended_before: datetime) -> list[MovedJob]:
        steps = Steps(
            lambda: duties.reap_jobs(conn, bucket=bucket, limit=BATCH, ended_before=ended_before),
            lambda more: duties.ids_to_reap(conn, bucket=bucket, limit=BATCH + more, ended_before=ended_before),
            lambda ids: duties.reap_jobs_among(conn, bucket=bucket, ended_before=ended_before, ids=ids),
        )
        return [job for moved in await self._reaping[bucket].move(steps) for job in moved]

    async def watch(self) -> timedelta:
        """Note that leases are looked after, and reap those that may be judged: after an absence of the database or of
        everybody who watches, those of the living look expired, too."""
        try:
            look = await self._database.run_duty(self._look)
            if self._failed_to_look:  # whoever was cut off as well gets until the next look
                self._failed_to_look = False
                return self._pause_after(look)
            reaped = await self.reap(look)
        except Exception:
            self._failed_to_look = True
            raise
        return AT_ONCE if reaped >= BATCH else self._pause_after(look)

    async def _look(self, conn: Connection) -> Look:
        settings = self._settings
        # A lease that is renewed at every heartbeat has this much left at any time. Where the watchdog looks more
        # seldom than that, only an absence that is longer than its own pause can be told.
        longest_gap = max(settings.lease - settings.heartbeat, settings.watchdog * 1.5)
        spacing = min(settings.watchdog, longest_gap) / 4
        return await look_at_leases(
            conn, buckets=self._buckets, lease=settings.lease, longest_gap=longest_gap, spacing=spacing
        )

    def _pause_after(self, look: Look) -> timedelta:
        """Sooner while leases wait to be judged, so that a life that is cut short counts for as long as it was."""
        watchdog = self._settings.watchdog
        if not look.until_steady:
            return watchdog
        return min(watchdog / 2 if look.buckets else watchdog, look.until_steady)

    async def reap(self, look: Look | None = None) -> int:
        """Take expired leases away, through the same path as a reported failure; answers with how many. Without a look,
        whatever has expired."""

        async def work(conn: Connection) -> int:
            ended_before = look.ended_before if look else await read_clock(conn)
            reaped = 0
            for bucket in look.buckets if look else self._buckets:
                moved = await self._reap_bucket(conn, bucket, ended_before)
                self._notify_dead_letters(job.id for job in moved if job.status is JobStatus.DEAD_LETTERED)
                if waits := [job.wait for job in moved if job.wait is not None]:
                    self._notifications.notify_due_soon(min(waits))
                reaped += len(moved)
            return reaped

        return await self._database.run_duty(work)

    async def prune(self) -> timedelta:
        """Remove what retention no longer keeps, in bounded batches."""

        async def work(conn: Connection) -> bool:
            is_full = False
            for bucket in self._buckets:
                pruned = await duties.prune_jobs(conn, bucket=bucket, keep=self._settings, limit=BATCH)
                cleared = await duties.prune_results(conn, bucket=bucket, limit=BATCH)
                charted = await prune_series(conn, bucket=bucket, limit=TALLY_BATCH)
                is_full |= max(pruned, cleared) == BATCH or charted == TALLY_BATCH
            await counts.forget_counts(conn)
            await forget_series(conn, buckets=self._buckets, limit=TALLY_BATCH)
            await prune_sessions(conn, idle=IDLE)
            alarms = await prune_alarms(
                conn, keep=self._settings.keep_alarms, keep_deliveries=self._settings.keep_deliveries, limit=BATCH
            )
            return await self._prune_fires(conn) or is_full or BATCH in alarms

        return AT_ONCE if await self._database.run_duty(work) else PRUNE_EVERY

    async def _prune_fires(self, conn: Connection) -> bool:
        """Old lines of the next so many schedules; answers with whether they have more of them."""
        keep = self._settings.keep_fires
        last, lines = await prune_fires(conn, after=self._pruned_up_to, schedules=BATCH, keep=keep, limit=BATCH)
        if lines == BATCH:
            return True
        self._pruned_up_to = last or FIRST_ID
        return False

    async def tally(self) -> timedelta:
        """Fold the tallies into the counts."""

        async def work(conn: Connection) -> list[int]:
            return [
                await counts.roll_tallies(conn, bucket=bucket, limit=TALLY_BATCH)
                for bucket in await counts.tallied_buckets(conn)
            ]

        rolled = await self._database.run_duty(work)
        if TALLY_BATCH in rolled:
            return AT_ONCE
        return TALLY_EVERY if any(rolled) else TALLY_IDLE
