"""What do the scenarios measure? Each runs one round of the same operations by Pulse and by bare SQL, side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulse.bench.app import PAYLOAD, app, noop, stamp, stumble, sync_noop
from pulse.bench.probes import Ceiling, Probe
from pulse.bench.results import Result, percentiles
from pulse.bench.servers import run_server
from pulse.bench.workers import run_workers
from pulse.engine.engine import Engine, open_engine
from pulse.model.ids import Mint
from pulse.model.jobs import JobStatus

if TYPE_CHECKING:
    from pulse.sdk.task import Task
    from pulse.settings import Settings

FILL = 5_000  # jobs in one enqueue_many
CEILING_CONNECTIONS = 4
CEILING_BATCH = 100
ENQUEUE_ONE_BY_ONE = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of one `pulse bench`."""

    settings: Settings
    jobs: int
    processes: int
    sync: bool = False
    rate: float = 20.0
    notify: bool = True
    background: str = ""
    rows: int = 1_000_000
    server: bool = False  # workers and producers use a server instead of the database

    @property
    def task(self) -> Task[..., Any, Any]:
        return sync_noop if self.sync else noop

    def describe(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "processes": self.processes,
            "concurrency": settings.concurrency,
            "threads": settings.threads,
            "task": "sync" if self.sync else "async",
            "notify": self.notify,
            "server": self.server,
        }


async def drain(plan: Plan) -> Result:
    """Measure how fast worker processes complete a backlog, against the same operations in bare SQL; through a server,
    against the same without one."""
    if not plan.server:
        return await drain_once(plan, await drain_ceiling(plan))
    direct = await drain_once(plan, 1.0)
    async with run_server(plan.settings) as settings:
        return await drain_once(replace(plan, settings=settings), direct.rate or 0)


async def drain_once(plan: Plan, ceiling: float) -> Result:
    async with bench_engine(plan.settings) as (engine, probe):
        await engine.jobs.pause(plan.task.topic)
        async with run_workers(plan.settings, count=plan.processes, topics=[plan.task.topic]):
            await fill(engine, plan.task, plan.jobs)
            await probe.vacuum()
            before = await probe.transactions()
            started = await probe.now()
            await engine.jobs.resume(plan.task.topic)
            seconds = await wait_until_done(engine, probe, plan.task.topic, plan.jobs, started)
            after = await probe.transactions()
    rate = plan.jobs / seconds
    return Result(
        scenario="drain",
        jobs=plan.jobs,
        seconds=seconds,
        rate=rate,
        ceiling_rate=ceiling,
        ratio=rate / ceiling,
        tx_per_job=(after.commits - before.commits) / plan.jobs,
        rollbacks=after.rollbacks - before.rollbacks,
        settings=plan.describe(),
    )


async def live(plan: Plan) -> Result:
    """Measure enqueueing and working at the same time, each as fast as possible."""
    async with settings_of(plan) as settings, bench_engine(settings) as (engine, probe):
        async with run_workers(settings, count=plan.processes, topics=[plan.task.topic]):
            before = await probe.transactions()
            started = await probe.now()
            await fill(engine, plan.task, plan.jobs, size=500)
            seconds = await wait_until_done(engine, probe, plan.task.topic, plan.jobs, started)
            after = await probe.transactions()
        waits = await probe.waits(plan.task.topic)
    return Result(
        scenario="live",
        jobs=plan.jobs,
        seconds=seconds,
        rate=plan.jobs / seconds,
        tx_per_job=(after.commits - before.commits) / plan.jobs,
        rollbacks=after.rollbacks - before.rollbacks,
        **percentiles(waits),
        settings=plan.describe(),
    )


async def latency(plan: Plan) -> Result:
    """Measure the time from the call of `aenqueue` to the handler's first line, with an idle worker in another
    process."""
    async with (
        settings_of(plan) as settings,
        bench_engine(settings),
        run_workers(settings, count=1, topics=[stamp.topic]),
    ):
        for _ in range(3):  # the first call starts the link thread, the second begins to open a link on this loop
            await stamp.aenqueue()
            await asyncio.sleep(0.5)
        took = [ms async for ms in repeat_paced(plan, lambda: time_one(stamp))]
    settings_shown = plan.describe() | {"rate": plan.rate}
    return Result(scenario="latency", jobs=plan.jobs, **percentiles(took), settings=settings_shown)


async def delayed(plan: Plan) -> Result:
    """Measure how long after its instant a delayed job begins."""
    async with bench_engine(plan.settings) as (_, probe), run_workers(plan.settings, count=1, topics=[stamp.topic]):
        handles = [
            await stamp.using(delay=timedelta(milliseconds=500 + 13 * number % 2_000)).aenqueue()
            for number in range(plan.jobs)
        ]
        for handle in handles:
            await handle.aresult(60)
        lateness = await probe.lateness(stamp.topic)
    return Result(scenario="delayed", jobs=plan.jobs, **percentiles(lateness), settings=plan.describe())


async def retries(plan: Plan) -> Result:
    """Measure how long after its instant a retry begins."""
    async with bench_engine(plan.settings) as (_, probe), run_workers(plan.settings, count=1, topics=[stumble.topic]):
        handles = [await stumble.aenqueue(time.time()) for _ in range(plan.jobs)]
        for handle in handles:
            await handle.aresult(60)
        lateness = await probe.lateness(stumble.topic)
    return Result(scenario="retries", jobs=plan.jobs, **percentiles(lateness), settings=plan.describe())


async def backlog(plan: Plan) -> Result:
    """Measure the rate of a drain beside a million other rows, against the rate beside a hundred."""
    crowded = await drain_beside(plan, plan.background, plan.rows)
    alone = await drain_beside(plan, plan.background, 100)
    return Result(
        scenario="backlog",
        jobs=plan.jobs,
        seconds=plan.jobs / crowded,
        rate=crowded,
        ceiling_rate=alone,
        ratio=crowded / alone,
        settings=plan.describe() | {"background": plan.background, "rows": plan.rows},
    )


async def enqueue(plan: Plan) -> Result:
    """Measure enqueueing many jobs at once, against a bare insert of the same rows, and one job at a time."""
    async with bench_engine(plan.settings):
        payload = noop.call(**PAYLOAD).job.payload
        few = min(plan.jobs, ENQUEUE_ONE_BY_ONE)
        await aenqueue_one_by_one(few // 10)  # opens all connections
        rates = {
            "one_by_one_rate": round(await aenqueue_one_by_one(few)),
            "one_by_one_sync_rate": round(await asyncio.to_thread(enqueue_one_by_one, few)),
        }
        seconds = insert_seconds = 0.0
        async with Ceiling.open(plan.settings, 1) as ceiling:
            await ceiling.create()
            for _ in range(0, plan.jobs, FILL):  # both take turns, so that other load on the machine affects both
                seconds += await asyncio.to_thread(enqueue_slice, FILL)
                insert_seconds += await ceiling.insert(noop.topic, Mint().ids([0] * FILL), payload)
    return Result(
        scenario="enqueue",
        jobs=plan.jobs,
        seconds=seconds,
        rate=plan.jobs / seconds,
        ceiling_rate=plan.jobs / insert_seconds,
        ratio=insert_seconds / seconds,
        settings=plan.describe() | rates,
    )


# --- parts


@asynccontextmanager
async def settings_of(plan: Plan) -> AsyncIterator[Settings]:
    """Return the settings of the plan, with a server running for it if it wants one."""
    settings = replace(plan.settings, notify=plan.notify)
    if not plan.server:
        yield settings
        return
    async with run_server(settings) as remote:
        yield remote


@asynccontextmanager
async def bench_engine(settings: Settings) -> AsyncIterator[tuple[Engine, Probe]]:
    """Empty the schema, and connect the tasks of the benchmark to it."""
    app.close()
    app.settings = settings
    async with open_engine(settings) as engine, Probe.open(settings) as probe:
        await probe.empty()
        engine.notifications.start(listen=False)  # otherwise the workers would notice the start only at their next tick
        try:
            yield engine, probe
        finally:
            app.close()


async def fill(engine: Engine, task: Task[..., Any, Any], jobs: int, *, size: int = FILL) -> None:
    for start in range(0, jobs, size):
        calls = [task.call(**PAYLOAD) for _ in range(min(size, jobs - start))]
        await engine.jobs.submit([call.job for call in calls])


async def wait_until_done(engine: Engine, probe: Probe, topic: str, jobs: int, started: float) -> float:
    """Wait for the jobs, and return the seconds from `started` to the last completion, by the database's clock."""
    while True:
        counts = next((each.counts for each in await engine.jobs.counts() if each.topic == topic), {})
        if counts.get(JobStatus.COMPLETED, 0) >= jobs:
            return await probe.last_finished(topic) - started
        if counts.get(JobStatus.DEAD_LETTERED):
            raise RuntimeError("a job of the benchmark failed: `pulse jobs list --status dead_lettered` says why")
        await asyncio.sleep(0.05)


async def drain_ceiling(plan: Plan) -> float:
    async with Ceiling.open(plan.settings, CEILING_CONNECTIONS) as ceiling:
        await ceiling.create()
        await ceiling.fill(plan.task.topic, plan.jobs, plan.task.call(**PAYLOAD).job.payload)
        return plan.jobs / await ceiling.drain(plan.task.topic, plan.jobs, CEILING_BATCH)


async def drain_beside(plan: Plan, background: str, rows: int) -> float:
    async with bench_engine(plan.settings) as (engine, probe):
        await probe.fill_background(background, plan.task.topic, rows)
        await engine.jobs.pause(plan.task.topic)
        async with run_workers(plan.settings, count=plan.processes, topics=[plan.task.topic]):
            await fill(engine, plan.task, plan.jobs)
            await probe.vacuum()
            already = await probe.completed(plan.task.topic)
            started = await probe.now()
            await engine.jobs.resume(plan.task.topic)
            return plan.jobs / await probe.wait_until_completed(plan.task.topic, already + plan.jobs, started)


async def repeat_paced(plan: Plan, one: Callable[[], Awaitable[float]]) -> AsyncIterator[float]:
    for _ in range(plan.jobs):
        began = time.monotonic()
        yield await one()
        await asyncio.sleep(max(0.0, 1 / plan.rate - (time.monotonic() - began)))


async def time_one(task: Task[[], float, Any]) -> float:
    called_at = time.clock_gettime(time.CLOCK_MONOTONIC)
    handle = await task.aenqueue()
    began_at = await handle.aresult(30)
    return (began_at - called_at) * 1_000


async def aenqueue_one_by_one(jobs: int) -> float:
    started = time.perf_counter()
    for _ in range(jobs):
        await noop.aenqueue(**PAYLOAD)
    return jobs / (time.perf_counter() - started)


def enqueue_one_by_one(jobs: int) -> float:
    started = time.perf_counter()
    for _ in range(jobs):
        noop.enqueue(**PAYLOAD)
    return jobs / (time.perf_counter() - started)


def enqueue_slice(jobs: int) -> float:
    started = time.perf_counter()
    app.enqueue_many(noop.call(**PAYLOAD) for _ in range(jobs))
    return time.perf_counter() - started
