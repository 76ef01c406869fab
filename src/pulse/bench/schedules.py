"""How fast do schedules fire when many are due at once, and how late when few are?"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pulse.bench.app import PAYLOAD, noop, stamp
from pulse.bench.probes import ScheduleProbe
from pulse.bench.results import Result, percentiles
from pulse.bench.scenarios import Plan, bench_engine
from pulse.bench.workers import run_workers

BURST, OTHERS = "burst ", "other "
COUNT_OF_OTHERS = 400
LEAD = timedelta(seconds=3)  # after the last one is written
SPACING = timedelta(milliseconds=25)
ROWS_AT_ONCE = 2_000  # rows of one raw insert, as many as one transaction fires


async def fire(plan: Plan) -> Result:
    """Measure how fast one process fires schedules that are all due at once, against a raw insert of their jobs.

    Other schedules fall due meanwhile, one after the other, and must not be delayed.
    """
    payload = noop.call(**PAYLOAD).job.payload
    async with bench_engine(plan.settings) as (engine, _), ScheduleProbe.open(plan.settings) as probe:
        due_in = LEAD + timedelta(seconds=plan.jobs / 20_000)  # more time to write more schedules
        await probe.fill(BURST, plan.jobs, noop.topic, payload, due_in=due_in)
        await probe.fill(OTHERS, COUNT_OF_OTHERS, stamp.topic, "{}", due_in=LEAD, spacing=SPACING)
        await probe.vacuum()
        engine.start()
        await wait_until_fired(probe)
        seconds = await probe.fire_seconds(BURST)
        await engine.stop()
        raw_seconds = await probe.insert_raw(noop.topic, payload, ROWS_AT_ONCE)
        late = await probe.fire_lateness(OTHERS)
    return Result(
        scenario="fire",
        jobs=plan.jobs,
        seconds=seconds,
        rate=plan.jobs / seconds,
        ceiling_rate=plan.jobs / raw_seconds,
        ratio=raw_seconds / seconds,
        **percentiles(late),
        settings={"others": COUNT_OF_OTHERS, "milliseconds": "lateness of the others"},
    )


async def on_time(plan: Plan) -> Result:
    """Measure how late jobs of schedules begin on an idle system, with one worker, which also fires the schedules."""
    async with (
        bench_engine(plan.settings),
        ScheduleProbe.open(plan.settings) as probe,
        run_workers(plan.settings, count=1, topics=[stamp.topic]),
    ):
        await probe.fill(OTHERS, plan.jobs, stamp.topic, "{}", due_in=LEAD, spacing=4 * SPACING)
        await wait_until_fired(probe)
        await asyncio.sleep(1)
        made = percentiles(await probe.fire_lateness(OTHERS))
        begun = percentiles(await probe.start_lateness(stamp.topic))
    settings = {"milliseconds": "from its instant to its start", "made_p50_ms": made["p50_ms"]}
    return Result(scenario="on-time", jobs=plan.jobs, **begun, settings=settings | {"made_p99_ms": made["p99_ms"]})


async def wait_until_fired(probe: ScheduleProbe) -> None:
    while await probe.has_unfired():  # noqa: ASYNC110
        await asyncio.sleep(0.25)
