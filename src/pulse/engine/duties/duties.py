"""Which duties does every process perform? Promote, fire, wake, reap, prune and tally, without a leader.

Each duty is a step that any number of processes may take at any time: rows are locked with SKIP LOCKED and guarded by
their state, so processes share the work and never repeat it. A step returns how long to sleep after it. All duties of a
process share one connection, so that an idle process needs no more: each is short, and gives up soon when another
transaction holds a lock.
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
from pulse.engine.duties.refused_rows import MoveStatements, RowMover
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
APART_FOR = 10.0  # seconds for which jobs are promoted apart, after a lock on the table of schedules or alarms
TALLY_EVERY = timedelta(seconds=2)
TALLY_IDLE = timedelta(seconds=30)  # counts are exact without tallying, which only keeps reading them cheap


class Duties:
    """The duties of one process."""

    def __init__(
        self, database: Database, notifications: Notifications, *, buckets: int, instruments: Instruments | None = None
    ) -> None:
        instruments = instruments or Instruments()
        self._database = database
        self._notifications = notifications
        self._settings = database.settings
        self._buckets = list(range(buckets))
        self._apart_until = 0.0  # on this process's monotonic clock
        self._last_look_failed = False
        self._pruned_up_to = FIRST_ID
        self.fires = FireDuty(database, notifications, instruments)
        self._fire = Loop("fire", self.fires.step)
        self.deliveries = DeliveryDuty(database, notifications, instruments)
        self._schedule_poll = Poll(self._settings.schedule_tick, lambda: notifications.is_listening)
        self._alarm_poll = Poll(self._settings.alarm_tick, lambda: notifications.is_listening)
        self._dead_letter_listeners: list[Callable[[UUID], None]] = []
        self._promoting, self._expiring, self._reaping = (
            [RowMover(action) for _ in self._buckets] for action in ("promoted", "expired", "reaped")
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
        self._notifications.on_due_soon(lambda _: self._poll_now())
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

    def _poll_now(self) -> None:
        """Look for due schedules and alarms at the next step: a notification does not say what is due."""
        self._schedule_poll.reset()
        self._alarm_poll.reset()

    async def promote(self) -> timedelta:
        """Move due jobs to PENDING, dead-letter waiting ones past their deadline, and return how long until more is
        due."""

        if time.monotonic() < self._apart_until:
            return await self._promote_apart()
        try:
            return await self._promote(self._peek)
        except Conflict as error:
            log.warning("jobs are promoted apart from schedules and alarms for %d s: %s", APART_FOR, error)
            self._apart_until = time.monotonic() + APART_FOR
            return await self._promote_apart()

    async def _promote_apart(self) -> timedelta:
        """Promote jobs only, while a lock on schedules or alarms would delay them. The duties of these look for due
        ones themselves, and wait longer each time while their own table is locked."""
        for loop in (self._fire, self.deliveries.loop):
            if not loop.failures:
                loop.run_within(AT_ONCE)
        return await self._promote(self._peek_jobs)

    async def _peek(self, conn: Connection) -> list[DutyPeek]:
        schedules, alarms = self._schedule_poll.begin(), self._alarm_poll.begin()
        return await peeks.peek_duties(conn, buckets=self._buckets, schedules=schedules, alarms=alarms)

    async def _peek_jobs(self, conn: Connection) -> list[DutyPeek]:
        return await peeks.peek_jobs(conn, buckets=self._buckets)

    async def _promote(self, peek_buckets: Callable[[Connection], Awaitable[list[DutyPeek]]]) -> timedelta:
        async def work(conn: Connection) -> tuple[list[timedelta], list[ReadyTopic]]:
            sleeps, ready = [self._longest_sleep()], []
            for peek in await peek_buckets(conn):
                sleeps += [self._run_fire_duty(peek), self._run_wake_duty(peek)]
                sleep, topics = await self._promote_bucket(conn, peek)
                sleeps.append(sleep)
                ready += topics
            return sleeps, ready

        sleeps, ready = await self._database.run_duty(work)
        self._notifications.notify_ready(ready)
        return min(sleeps)

    def _run_fire_duty(self, peek: DutyPeek) -> timedelta:
        """Run the fire duty if a schedule is due, so that it need not ask while none is. Return how long to sleep."""
        if peek.until_fire is not None and peek.until_fire <= AT_ONCE:
            self._fire.run_within(AT_ONCE)
        elif peek.is_buffering:
            self._fire.run_within(self._settings.schedule_tick)
        return self._schedule_poll.end(peek.until_fire)

    def _run_wake_duty(self, peek: DutyPeek) -> timedelta:
        """Run the wake duty if an alarm is due. Return how long to sleep."""
        if peek.until_wake is not None and peek.until_wake <= AT_ONCE:
            self.deliveries.loop.run_within(AT_ONCE)
        return self._alarm_poll.end(peek.until_wake)

    def _longest_sleep(self) -> timedelta:
        """Return how long to sleep at most: longer while this process listens and is notified of what is due soon."""
        return max(SOON, self._settings.tick) if self._notifications.is_listening else self._settings.tick

    async def _promote_bucket(self, conn: Connection, peek: DutyPeek) -> tuple[timedelta, list[ReadyTopic]]:
        """Promote and expire the due jobs of one bucket. Return how long until more is due, and the ready topics."""
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
        # If jobs are due but none was moved, others have locked the rows, so look again at the next tick.
        ahead = [wait for wait in (peek.until_due, peek.until_late) if wait is not None and wait > AT_ONCE]
        if self._promoting[peek.bucket].has_refused or self._expiring[peek.bucket].has_refused:
            ahead.append(self._settings.tick)  # the peek sees only the refused rows, not those due after them
        return min(ahead, default=timedelta.max), ready

    async def _expire_bucket(self, conn: Connection, bucket: int) -> list[UUID]:
        statements = MoveStatements(
            lambda: duties.expire_jobs(conn, bucket=bucket, limit=BATCH),
            lambda more: duties.ids_to_expire(conn, bucket=bucket, limit=BATCH + more),
            lambda ids: duties.expire_jobs_among(conn, bucket=bucket, ids=ids),
        )
        return [job_id for moved in await self._expiring[bucket].move(statements) for job_id in moved]

    async def _promote_due(self, conn: Connection, bucket: int) -> tuple[int, list[ReadyTopic]]:
        statements = MoveStatements(
            lambda: duties.promote_jobs(conn, bucket=bucket, limit=BATCH),
            lambda more: duties.ids_to_promote(conn, bucket=bucket, limit=BATCH + more),
            lambda ids: duties.promote_jobs_among(conn, bucket=bucket, ids=ids),
        )
        moves = await self._promoting[bucket].move(statements)
        return sum(promoted for promoted, _ in moves), [topic for _, ready in moves for topic in ready]

    async def _reap_bucket(self, conn: Connection, bucket: int, ended_before: datetime) -> list[MovedJob]:
        statements = MoveStatements(
            lambda: duties.reap_jobs(conn, bucket=bucket, limit=BATCH, ended_before=ended_before),
            lambda more: duties.ids_to_reap(conn, bucket=bucket, limit=BATCH + more, ended_before=ended_before),
            lambda ids: duties.reap_jobs_among(conn, bucket=bucket, ended_before=ended_before, ids=ids),
        )
        return [job for moved in await self._reaping[bucket].move(statements) for job in moved]

    async def watch(self) -> timedelta:
        """Record that a watchdog is at work, reap the expired leases that may be reaped now, and return how long to
        sleep. After an outage of the database, or a time without any watchdog, leases of living workers have expired,
        too."""
        try:
            look = await self._database.run_duty(self._look)
            if self._last_look_failed:  # workers that were cut off as well have time until the next look
                self._last_look_failed = False
                return self._pause_after(look)
            reaped = await self.reap(look)
        except Exception:
            self._last_look_failed = True
            raise
        return AT_ONCE if reaped >= BATCH else self._pause_after(look)

    async def _look(self, conn: Connection) -> Look:
        settings = self._settings
        # A lease that is renewed at every heartbeat always has this much left. If the watchdog looks less often than
        # that, it can only notice an absence that is longer than its own pause.
        longest_gap = max(settings.lease - settings.heartbeat, settings.watchdog * 1.5)
        spacing = min(settings.watchdog, longest_gap) / 4
        return await look_at_leases(
            conn, buckets=self._buckets, lease=settings.lease, longest_gap=longest_gap, spacing=spacing
        )

    def _pause_after(self, look: Look) -> timedelta:
        """Return how long to sleep: less while leases may not be reaped yet, so that a process that ends early has
        still counted as watching until shortly before."""
        watchdog = self._settings.watchdog
        if not look.until_steady:
            return watchdog
        return min(watchdog / 2 if look.buckets else watchdog, look.until_steady)

    async def reap(self, look: Look | None = None) -> int:
        """Take expired leases away, in the same way as a reported failure, and return how many. Without a look, all
        expired leases are taken."""

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
        """Delete rows whose retention has ended, in limited batches, and return how long to sleep."""

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
        """Delete old lines from the logs of the next schedules, and tell whether these have more."""
        keep = self._settings.keep_fires
        last, lines = await prune_fires(conn, after=self._pruned_up_to, schedules=BATCH, keep=keep, limit=BATCH)
        if lines == BATCH:
            return True
        self._pruned_up_to = last or FIRST_ID
        return False

    async def tally(self) -> timedelta:
        """Add the tallies to the counts, and return how long to sleep."""

        async def work(conn: Connection) -> list[int]:
            return [
                await counts.roll_tallies(conn, bucket=bucket, limit=TALLY_BATCH)
                for bucket in await counts.tallied_buckets(conn)
            ]

        rolled = await self._database.run_duty(work)
        if TALLY_BATCH in rolled:
            return AT_ONCE
        return TALLY_EVERY if any(rolled) else TALLY_IDLE
