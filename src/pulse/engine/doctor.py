"""Is everything in order with the database, the schema, and the workers and servers? Checks all, and changes nothing.

It does not need an open engine, since it also has to find what keeps one from opening.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pulse.engine.masks import mask_one
from pulse.model.doctor import diagnoses as judge
from pulse.model.doctor.findings import Broken, Finding, Lateness
from pulse.model.errors import PulseError
from pulse.model.jobs import JobStatus
from pulse.store import doctor as store
from pulse.store.connections.pool import Database
from pulse.store.connections.redacted_url import place_of
from pulse.store.duties.peeks import peek_duties
from pulse.store.jobs import changes
from pulse.store.schema.migrate import load_migrations, mismatch, newest, read_age
from pulse.store.statistics.counts import count_jobs
from pulse.store.tokens import list_tokens
from pulse.store.workers import list_workers
from pulse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.model.redaction import Redaction
    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection

PATIENCE = timedelta(seconds=5)
ARRIVAL_PATIENCE = 2.0  # seconds for a notification to arrive
MAX_PINS = 5
MAX_COUNTED = 200_000  # jobs in one state whose rows are counted: this takes a few hundredths of a second
MAX_MISCOUNTS = 20

Check = Callable[[], Awaitable[list[Finding]]]


async def examine(settings: Settings, *, pinned: timedelta = judge.PINNED) -> list[Finding]:
    """Return all findings about an installation, in the order in which they should be dealt with."""
    settings = replace(settings, patience=min(settings.patience, PATIENCE))
    async with Database(settings) as database:
        return await Doctor(database, pinned=pinned).examine()


class Doctor:
    """The checks of one database. Each is cheap, and one that fails does not keep the others from running."""

    def __init__(self, database: Database, *, pinned: timedelta) -> None:
        self._database = database
        self._settings = database.settings
        self._pinned = pinned
        self._buckets: list[int] = []

    async def examine(self) -> list[Finding]:
        try:
            found = await self._server()
        except PulseError as error:
            place = place_of(self._settings.database_url)
            return [judge.fail("database", str(error), f"Looked for{place}." if place else "")]
        found += await self._run("schema", self._schema)
        found += await self._run("pooler", self._pooler)
        if self._buckets:  # the schema exists
            for name, check in self._checks():
                found += await self._run(name, check)
        return found

    def _checks(self) -> list[tuple[str, Check]]:
        return [
            ("durability", self._durability),
            ("clock", self._clock),
            ("horizon", self._horizon),
            ("bloat", self._bloat),
            ("connections", self._connections),
            ("wraparound", self._wraparound),
            ("notifier", self._notifier),
            ("duties", self._duties),
            ("counts", self._counts),
            ("workers", self._workers),
            ("schedules", self._schedules),
            ("tokens", self._tokens),
        ]

    async def _run(self, name: str, check: Check) -> list[Finding]:
        try:
            return await check()
        except PulseError as error:
            return [judge.warn(name, f"this could not be checked: {error}")]

    async def _server(self) -> list[Finding]:
        return judge.judge_server(await self._database.run(store.read_server))

    async def _schema(self) -> list[Finding]:
        state = await read_age(self._settings)
        if problem := mismatch(state, self._settings.schema):
            return [judge.fail("schema", problem)]
        self._buckets = list(range(state.buckets))
        missing = [f"{each.version:04}_{each.name}" for each in load_migrations() if each.version > state.version]
        if missing:
            return [judge.warn("schema", f"not applied yet: {', '.join(missing)}", "Run `pulse migrate`.")]
        behind = f"; this release knows {newest()}" if state.version > newest() else ""
        return [judge.ok("schema", f"{self._settings.schema!r} is at version {state.version}{behind}")]

    async def _pooler(self) -> list[Finding]:
        return judge.judge_pooler(
            is_pooled=await store.is_pooled(self._settings),
            is_configured=self._settings.pgbouncer,
            has_listen_url=self._settings.listen_url is not None,
        )

    async def _durability(self) -> list[Finding]:
        return judge.judge_durability(await self._database.run(store.read_durability))

    async def _clock(self) -> list[Finding]:
        await self._database.run(store.read_time_source)  # opens the connection, so that only the next one is timed
        return judge.judge_clock(await self._database.run(store.read_time_source))

    async def _horizon(self) -> list[Finding]:
        pins = await self._database.run(lambda conn: store.list_pins(conn, limit=MAX_PINS))
        if self._settings.redaction:  # the query of a session may contain a payload
            pins = [pin._replace(query=None) for pin in pins]
        return judge.judge_pins(pins, datetime.now(UTC), self._pinned)

    async def _bloat(self) -> list[Finding]:
        return judge.judge_tables(await self._database.run(store.list_tables), datetime.now(UTC))

    async def _connections(self) -> list[Finding]:
        return judge.judge_connections(await self._database.run(store.count_connections))

    async def _wraparound(self) -> list[Finding]:
        return judge.judge_ages(await self._database.run(store.read_ages))

    async def _notifier(self) -> list[Finding]:
        settings = self._settings
        usage = await self._database.run(store.read_queue_usage)
        listens = settings.notify and (settings.listen_url or not settings.pgbouncer)
        has_arrived = await store.does_notification_arrive(self._database, within=ARRIVAL_PATIENCE) if listens else None
        return judge.judge_notifier(has_arrived=has_arrived, usage=usage)

    async def _duties(self) -> list[Finding]:
        async def work(conn: Connection) -> Lateness:
            peeks = await peek_duties(conn, buckets=self._buckets)
            return Lateness(
                promote=_late([peek.until_due for peek in peeks]),
                expire=_late([peek.until_late for peek in peeks]),
                fire=_late([peek.until_fire for peek in peeks]),
                wake=_late([peek.until_wake for peek in peeks]),
                reap=await store.oldest_lapsed(conn, buckets=self._buckets),
            )

        lateness = await self._database.run(work)
        workers = await self._database.run(list_workers)
        return judge.judge_lateness(lateness, workers, self._settings.lease)

    async def _counts(self) -> list[Finding]:
        counts = await self._database.run(count_jobs)
        totals = {status: sum(states.get(status, 0) for states in counts.values()) for status in JobStatus}
        compared = [status for status, jobs in totals.items() if jobs <= MAX_COUNTED]
        miscounts = await self._database.run(
            lambda conn: store.miscounts(conn, buckets=self._buckets, statuses=compared, limit=MAX_MISCOUNTS)
        )
        return judge.judge_counts(miscounts, [status.value for status in JobStatus if status not in compared])

    async def _workers(self) -> list[Finding]:
        workers = await self._database.run(list_workers)
        counts = await self._database.run(count_jobs)
        paused = {pause.topic for pause in await self._database.run(changes.list_pauses)}
        waiting = {
            topic: jobs
            for topic, states in counts.items()
            if (jobs := states.get(JobStatus.PENDING, 0)) and not paused & {topic, "*"}
        }
        return judge.judge_workers(workers, waiting, __version__)

    async def _schedules(self) -> list[Finding]:
        broken = await self._database.run(store.broken_schedules)
        if broken is not None:
            broken = await mask_one(self._settings.redaction, _masked, broken)
        zones = await self._database.run(store.zones_in_use)
        return judge.judge_schedules(broken, [tz for tz in zones if not _is_known(tz)])

    async def _tokens(self) -> list[Finding]:
        return judge.judge_tokens(await self._database.run(list_tokens), datetime.now(UTC))


def _masked(redaction: Redaction, broken: Broken) -> Broken:
    return broken._replace(error=redaction.text(broken.error, broken.payload))


def _late(waits: Sequence[timedelta | None]) -> timedelta | None:
    """Return how late the latest of them is: a wait is negative once its instant has passed."""
    past = [-wait for wait in waits if wait is not None and wait < timedelta()]
    return max(past, default=None)


def _is_known(tz: str) -> bool:
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError):  # not found, not a name, or a directory
        return False
    return True
