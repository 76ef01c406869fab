"""Which queries does `pulse bench` run, and how fast is bare SQL on the same database?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from uuid import UUID

from pulse.model.ids import bucket_of_topic
from pulse.store.connections.pool import Connection, connect
from pulse.store.statements import load_statements

if TYPE_CHECKING:
    from pulse.settings import Settings

LEASE = timedelta(seconds=30)
STATISTICS_LAG = 1.2  # seconds until every backend has reported its statistics


class Transactions(NamedTuple):
    commits: int
    rollbacks: int


class Background(NamedTuple):
    """A kind of rows beside which a drain must not be slower."""

    status: str
    other_topics: int = 0
    ready: bool = False
    due_in: timedelta = timedelta()
    finished: bool = False


BACKGROUNDS = {
    "ready": Background("PENDING", ready=True),
    "future": Background("SCHEDULED", due_in=timedelta(days=30)),
    "finished": Background("COMPLETED", finished=True),
    "topics": Background("PENDING", other_topics=100, ready=True),
}


class Probe:
    """A connection with which a benchmark prepares and reads the database."""

    def __init__(self, raw: Any, settings: Settings, buckets: int) -> None:  # noqa: ANN401
        self._raw = raw
        self._conn = Connection(raw, load_statements(settings.schema, "pulse.bench"), is_pooled=settings.pgbouncer)
        self._schema = settings.schema
        self._buckets = buckets

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Self]:
        raw = await connect(settings, command_timeout=600)
        try:
            buckets = await raw.fetchval(f'select buckets from "{settings.schema}".installation')  # noqa: S608
            yield cls(raw, settings, buckets)
        finally:
            raw.terminate()

    async def empty(self) -> None:
        await self._conn.rows("empty_jobs")
        await self._conn.rows("empty_schedules")
        await self._conn.rows("empty_alarms")

    async def vacuum(self) -> None:
        """Vacuum, analyze and write everything to disk, so that every round starts in the same state."""
        await self._raw.execute(f'vacuum (analyze) "{self._schema}".jobs')
        await self._raw.execute("checkpoint")

    async def now(self) -> float:
        return await self._one("bench_now")

    async def last_finished(self, topic: str) -> float:
        return await self._one("last_finished", topic)

    async def completed(self, topic: str) -> int:
        return int(await self._one("count_completed", topic))

    async def wait_until_completed(self, topic: str, jobs: int, started: float) -> float:
        """Wait until this many jobs are completed, and return the seconds until the last one was.

        `jobs` includes those that were completed before.
        """
        while await self.completed(topic) < jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.25)
        return await self.last_finished(topic) - started

    async def lateness(self, topic: str) -> list[float]:
        return await self._all("bench_lateness", topic)

    async def waits(self, topic: str) -> list[float]:
        return await self._all("bench_waits", topic)

    async def fill_background(self, kind: str, topic: str, rows: int) -> None:
        background = BACKGROUNDS[kind]._asdict()
        for start in range(0, rows, 100_000):
            part = min(100_000, rows - start)
            await self._conn.rows("fill_background", bucket=self._bucket(topic), topic=topic, rows=part, **background)

    async def transactions(self) -> Transactions:
        await asyncio.sleep(STATISTICS_LAG)
        return Transactions(*(await self._conn.rows("transactions"))[0])

    def _bucket(self, topic: str) -> int:
        return bucket_of_topic(topic, self._buckets)

    async def _one(self, statement: str, topic: str | None = None) -> float:
        return (await self._all(statement, topic))[0]

    async def _all(self, statement: str, topic: str | None) -> list[float]:
        given = {} if topic is None else {"bucket": self._bucket(topic), "topic": topic}
        return [float(row[0]) for row in await self._conn.rows(statement, **given)]


class ScheduleProbe(Probe):
    """A probe for schedules."""

    async def fill(
        self,
        name: str,
        schedules: int,
        task: str,
        payload: str,
        *,
        due_in: timedelta,
        spacing: timedelta = timedelta(),
    ) -> None:
        """Write schedules whose names begin with `name`, due together or one after the other."""
        await self._conn.rows(
            "fill_schedules",
            name=name,
            schedules=schedules,
            due_in=due_in,
            spacing=spacing,
            task=task,
            bucket=self._bucket(task),
            payload=payload,
        )

    async def vacuum(self) -> None:
        await super().vacuum()
        await self._raw.execute(f'vacuum (analyze) "{self._schema}".schedules, "{self._schema}".fires')

    async def has_unfired(self) -> bool:
        return bool((await self._conn.rows("has_unfired"))[0][0])

    async def fire_seconds(self, name: str) -> float:
        return float((await self._conn.rows("fire_seconds", name=name))[0][0])

    async def fire_lateness(self, name: str) -> list[float]:
        return [float(row[0]) for row in await self._conn.rows("fire_lateness", name=name)]

    async def start_lateness(self, topic: str) -> list[float]:
        return await self._all("start_lateness", topic)

    async def insert_raw(self, topic: str, payload: str, size: int) -> float:
        """Insert the rows of these jobs into a copy of their table, `size` rows at a time, and return the seconds."""
        bucket = self._bucket(topic)
        rows = await self._conn.rows("list_made_jobs", bucket=bucket, topic=topic)
        await self._conn.execute(self._conn.text("create_copy"))
        started = time.perf_counter()
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            count = len(part)
            await self._conn.rows(
                "insert_copy",
                ids=[row["id"] for row in part],
                topics=[topic] * count,
                buckets=[bucket] * count,
                payloads=[payload] * count,
                instants=[row["scheduled_for"] for row in part],
            )
        seconds = time.perf_counter() - started
        await self._conn.execute(self._conn.text("drop_copy"))
        return seconds


class AlarmCounts(NamedTuple):
    """The number of alarms of each kind after a burst."""

    delivered: int
    retried: int
    deferred: int  # because their destination is known to be down
    lost: int  # must be 0


class AlarmProbe(Probe):
    """A probe for alarms."""

    async def fill(
        self,
        owner: str,
        alarms: int,
        destinations: Sequence[str],
        payload: str,
        *,
        due_at: float,
        spacing: timedelta = timedelta(),
    ) -> None:
        """Write alarms of this owner, due together or one after the other."""
        await self._conn.rows(
            "fill_alarms",
            owner=owner,
            alarms=alarms,
            due_at=due_at,
            spacing=spacing,
            destinations=destinations,
            payload=payload,
        )

    async def vacuum(self) -> None:
        await super().vacuum()
        await self._raw.execute(f'vacuum (analyze) "{self._schema}".alarms, "{self._schema}".deliveries')

    async def has_unfinished_alarms(self) -> bool:
        return bool((await self._conn.rows("has_unfinished_alarms"))[0][0])

    async def counts(self) -> AlarmCounts:
        return AlarmCounts(*(await self._conn.rows("count_alarms"))[0])


class Ceiling:
    """The same operations in the leanest SQL, over a few connections."""

    def __init__(self, conns: list[Connection]) -> None:
        self._conns = conns

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, connections: int) -> AsyncIterator[Ceiling]:
        statements = load_statements(settings.schema, "pulse.bench")
        raws = [await connect(settings) for _ in range(connections)]
        ceiling = cls([Connection(raw, statements, is_pooled=settings.pgbouncer) for raw in raws])
        try:
            yield ceiling
        finally:
            await raws[0].execute(statements["drop_lean"].sql)
            for raw in raws:
                raw.terminate()

    async def create(self) -> None:
        statement = self._conns[0].text("create_lean")
        await self._conns[0].execute(statement)

    async def fill(self, topic: str, jobs: int, payload: str) -> None:
        await self._conns[0].rows("fill_lean", topic=topic, jobs=jobs, payload=payload)
        await self._conns[0].execute(self._conns[0].text("vacuum_lean"))
        await self._conns[0].execute("checkpoint")

    async def drain(self, topic: str, jobs: int, batch: int) -> float:
        started = time.perf_counter()
        done = sum(await asyncio.gather(*[_drain(conn, topic, batch) for conn in self._conns]))
        assert done == jobs, f"bare SQL drained {done} of {jobs}"
        return time.perf_counter() - started

    async def insert(self, topic: str, ids: Sequence[UUID], payload: str) -> float:
        started = time.perf_counter()
        count = len(ids)
        await self._conns[0].rows("insert_lean", ids=ids, topics=[topic] * count, payloads=[payload] * count)
        return time.perf_counter() - started


async def _drain(conn: Connection, topic: str, batch: int) -> int:
    done = 0
    while rows := await conn.rows("claim_lean", topic=topic, limit=batch, worker="bench", lease=LEASE):
        ids, lease_ids = [row["id"] for row in rows], [row["lease_id"] for row in rows]
        await conn.rows("complete_lean", ids=ids, lease_ids=lease_ids, results=["true"] * len(ids))
        done += len(rows)
    return done
