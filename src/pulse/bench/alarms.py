"""How fast are alarms delivered when many are due at once, some to bad hosts, and how late when few are?"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from pulse.bench.endpoints import HOSTILE, Arrival, Endpoints, endpoints
from pulse.bench.probes import AlarmProbe
from pulse.bench.results import Result, percentiles
from pulse.bench.scenarios import Plan, bench_engine
from pulse.bench.wakers import Task, post_bare, waker

if TYPE_CHECKING:
    from pulse.bench.probes import Standing

BURST, OTHERS = "burst", "others"
PAYLOAD = '{"order_id": 12345, "to": "someone@example.com"}'
COUNT_OF_OTHERS = 400
SHARE_OF_HOSTILE = 0.05
LEAD = timedelta(seconds=3)
SPACING = timedelta(milliseconds=50)
PATIENCE = 60.0  # seconds without an arrival, or without a record, after which the rest counts as lost


class Body(msgspec.Struct):
    """What of a wake's body is looked at."""

    occurrence: datetime
    owner: str


async def wake(plan: Plan) -> Result:
    """Alarms that are all due at one instant, delivered by one process, against a bare HTTP client for as many.

    Some go to hosts that hang, fail or reset. Others fall due meanwhile, one after the other, at hosts of their own,
    and must not be kept waiting.
    """
    hostile = round(plan.jobs * SHARE_OF_HOSTILE)
    good = plan.jobs - hostile
    async with bench_engine(plan.settings), AlarmProbe.open(plan.settings) as probe, endpoints() as there:
        bad_urls = [url for group in zip(*(there.urls[manner] for manner in HOSTILE), strict=True) for url in group]
        due_at = await probe.now() + (LEAD + timedelta(seconds=plan.jobs / 20_000)).total_seconds()
        await probe.fill(BURST, good, there.urls["good"], PAYLOAD, due_at=due_at)
        await probe.fill(BURST, hostile, bad_urls, PAYLOAD, due_at=due_at)
        await probe.fill(OTHERS, COUNT_OF_OTHERS, there.urls["other"], PAYLOAD, due_at=due_at, spacing=SPACING)
        await probe.settle()
        async with waker(plan.settings) as process:
            await until_arrived(there, good + COUNT_OF_OTHERS, due_at)
            await until_recorded(probe)
            standing = await probe.standing()
            cost = await process.stop()
        arrivals = await there.report()
        await there.forget()
        bare = await post_bare(plan.settings, Task(there.urls["good"], good, body_like(arrivals)))
    ours = [each for each in arrivals if each.manner == "good"]
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
            "hostile": hostile,
            "duplicates": duplicates(arrivals),
            **described(standing),
            "peak_mb": cost.peak_mb,
            "bare_peak_mb": bare.peak_mb,
            "cpu_us_per_wake": round(cost.cpu_seconds / len(arrivals) * 1e6),
            "bare_cpu_us_per_wake": round(bare.cpu_seconds / good * 1e6),
        },
    )


async def wake_on_time(plan: Plan) -> Result:
    """How late alarms arrive on an idle system, one after the other."""
    async with bench_engine(plan.settings), AlarmProbe.open(plan.settings) as probe, endpoints() as there:
        async with waker(plan.settings) as process:
            due_at = await probe.now() + LEAD.total_seconds()
            await probe.fill(OTHERS, plan.jobs, there.urls["other"][:1], PAYLOAD, due_at=due_at, spacing=2 * SPACING)
            await until_arrived(there, plan.jobs, due_at)
            await until_recorded(probe)
            await process.stop()
        arrivals = await there.report()
    settings = {"milliseconds": "from its instant to its arrival", "duplicates": duplicates(arrivals)}
    return Result(scenario="wake-on-time", jobs=plan.jobs, **percentiles(lateness(arrivals, OTHERS)), settings=settings)


async def until_arrived(there: Endpoints, wakes: int, due_at: float) -> None:
    """Until so many have come, or no more come."""
    seen, moved_at = -1, due_at
    while True:
        counts = await there.count()
        arrived = counts.get("good", 0) + counts.get("other", 0)
        if arrived != seen:
            seen, moved_at = arrived, max(due_at, time.time())
        if arrived >= wakes or time.time() - moved_at > PATIENCE:
            return
        await asyncio.sleep(0.25)


async def until_recorded(probe: AlarmProbe) -> None:
    """Until every alarm has been delivered, or says why it has not."""
    give_up_at = time.monotonic() + PATIENCE
    while await probe.has_unheard() and time.monotonic() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


def body_like(arrivals: list[Arrival]) -> str:
    """That of one of ours."""
    return bytes(next(each.body for each in arrivals if each.manner == "good")).decode()


def lateness(arrivals: list[Arrival], owner: str) -> list[float]:
    """Milliseconds from its instant until each wake came first."""
    first: dict[str, float] = {}
    for each in sorted(arrivals, key=lambda each: each.at):
        body = msgspec.json.decode(each.body, type=Body)
        if body.owner == owner:
            first.setdefault(each.wake_id, (each.at - body.occurrence.timestamp()) * 1_000)
    return list(first.values())


def duplicates(arrivals: list[Arrival]) -> int:
    """Wakes that came again after they had been answered well."""
    came = Counter(each.wake_id for each in arrivals if each.manner not in HOSTILE)
    return sum(times - 1 for times in came.values())


def described(standing: Standing) -> dict[str, int]:
    return {"delivered": standing.delivered, "retried": standing.retried, "deferred": standing.deferred} | {
        "lost": standing.lost
    }
