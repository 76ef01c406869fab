"""How fast are alarms delivered when many are due at once, some to bad hosts, and how late when few are?"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from pulse.bench.delivery_processes import Task, delivery_process, post_bare
from pulse.bench.endpoints import FAILING, Arrival, Endpoints, run_endpoints
from pulse.bench.probes import AlarmProbe
from pulse.bench.results import Result, percentiles
from pulse.bench.scenarios import Plan, bench_engine

if TYPE_CHECKING:
    from pulse.bench.probes import AlarmCounts

BURST, OTHERS = "burst", "others"
PAYLOAD = '{"order_id": 12345, "to": "someone@example.com"}'
COUNT_OF_OTHERS = 400
SHARE_OF_FAILING = 0.05
LEAD = timedelta(seconds=3)
SPACING = timedelta(milliseconds=50)
PATIENCE = 60.0  # seconds without an arrival, or without a record, after which the rest counts as lost


class Body(msgspec.Struct):
    """The fields of a wake's body that the benchmark reads."""

    occurrence: datetime
    owner: str


async def wake(plan: Plan) -> Result:
    """Measure how fast one process delivers alarms that are all due at once, against a bare HTTP client.

    Some go to hosts that hang, fail or reset the connection. Other alarms fall due meanwhile, one after the other, at
    hosts of their own, and must not be delayed.
    """
    failing = round(plan.jobs * SHARE_OF_FAILING)
    good = plan.jobs - failing
    async with bench_engine(plan.settings), AlarmProbe.open(plan.settings) as probe, run_endpoints() as endpoints:
        bad_urls = [
            url for group in zip(*(endpoints.urls[behaviour] for behaviour in FAILING), strict=True) for url in group
        ]
        due_at = await probe.now() + (LEAD + timedelta(seconds=plan.jobs / 20_000)).total_seconds()
        await probe.fill(BURST, good, endpoints.urls["good"], PAYLOAD, due_at=due_at)
        await probe.fill(BURST, failing, bad_urls, PAYLOAD, due_at=due_at)
        await probe.fill(OTHERS, COUNT_OF_OTHERS, endpoints.urls["other"], PAYLOAD, due_at=due_at, spacing=SPACING)
        await probe.vacuum()
        async with delivery_process(plan.settings) as process:
            await wait_until_arrived(endpoints, good + COUNT_OF_OTHERS, due_at)
            await wait_until_recorded(probe)
            counts = await probe.counts()
            cost = await process.stop()
        arrivals = await endpoints.report()
        await endpoints.forget()
        bare = await post_bare(plan.settings, Task(endpoints.urls["good"], good, body_of_one(arrivals)))
    ours = [each for each in arrivals if each.behaviour == "good"]
    seconds = max(each.at for each in ours) - due_at
    rate, bare_rate = len(ours) / seconds, good / bare.seconds
    return Result(
        scenario="wake",
        jobs=plan.jobs,
        seconds=seconds,
        rate=rate,
        ceiling_rate=bare_rate,
        ratio=rate / bare_rate,
        **percentiles(lateness(arrivals, OTHERS)),
        settings={
            "others": COUNT_OF_OTHERS,
            "milliseconds": "lateness of the others",
            "hostile": failing,
            "duplicates": duplicates(arrivals),
            **describe(counts),
            "peak_mb": cost.peak_mb,
            "bare_peak_mb": bare.peak_mb,
            "cpu_us_per_wake": round(cost.cpu_seconds / len(arrivals) * 1e6),
            "bare_cpu_us_per_wake": round(bare.cpu_seconds / good * 1e6),
        },
    )


async def wake_on_time(plan: Plan) -> Result:
    """Measure how late alarms arrive on an idle system, one after the other."""
    async with bench_engine(plan.settings), AlarmProbe.open(plan.settings) as probe, run_endpoints() as endpoints:
        async with delivery_process(plan.settings) as process:
            due_at = await probe.now() + LEAD.total_seconds()
            await probe.fill(
                OTHERS, plan.jobs, endpoints.urls["other"][:1], PAYLOAD, due_at=due_at, spacing=2 * SPACING
            )
            await wait_until_arrived(endpoints, plan.jobs, due_at)
            await wait_until_recorded(probe)
            await process.stop()
        arrivals = await endpoints.report()
    settings = {"milliseconds": "from its instant to its arrival", "duplicates": duplicates(arrivals)}
    return Result(scenario="wake-on-time", jobs=plan.jobs, **percentiles(lateness(arrivals, OTHERS)), settings=settings)


async def wait_until_arrived(endpoints: Endpoints, wakes: int, due_at: float) -> None:
    """Wait until this many wakes have arrived, or none has for a while."""
    seen, moved_at = -1, due_at
    while True:
        counts = await endpoints.count()
        arrived = counts.get("good", 0) + counts.get("other", 0)
        if arrived != seen:
            seen, moved_at = arrived, max(due_at, time.time())
        if arrived >= wakes or time.time() - moved_at > PATIENCE:
            return
        await asyncio.sleep(0.25)


async def wait_until_recorded(probe: AlarmProbe) -> None:
    """Wait until every alarm was delivered or has an error that says why not."""
    give_up_at = time.monotonic() + PATIENCE
    while await probe.has_unfinished_alarms() and time.monotonic() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


def body_of_one(arrivals: list[Arrival]) -> str:
    """Return the body of a wake that Pulse delivered."""
    return bytes(next(each.body for each in arrivals if each.behaviour == "good")).decode()


def lateness(arrivals: list[Arrival], owner: str) -> list[float]:
    """Return the milliseconds from its instant to its first arrival, for each wake."""
    first: dict[str, float] = {}
    for each in sorted(arrivals, key=lambda each: each.at):
        body = msgspec.json.decode(each.body, type=Body)
        if body.owner == owner:
            first.setdefault(each.wake_id, (each.at - body.occurrence.timestamp()) * 1_000)
    return list(first.values())


def duplicates(arrivals: list[Arrival]) -> int:
    """Count the wakes that arrived again after they had been answered with success."""
    came = Counter(each.wake_id for each in arrivals if each.behaviour not in FAILING)
    return sum(times - 1 for times in came.values())


def describe(counts: AlarmCounts) -> dict[str, int]:
    return {"delivered": counts.delivered, "retried": counts.retried, "deferred": counts.deferred} | {
        "lost": counts.lost
    }
