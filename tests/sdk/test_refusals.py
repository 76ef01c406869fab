"""Does one row that the database refuses, for now, take its neighbours with it?

Straight to Postgres and through a server, with a trigger that raises for one job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pulse import Pulse, Retry
from pulse.engine.engine import Engine
from pulse.model.jobs import JobStatus
from pulse.settings import Settings
from tests.refusals import Refusals, refusing
from tests.sdk.apps_here import working
from tests.waiting import until

# A lock, a timeout, a lost connection of the trigger's own, a mistake of Postgres, a right that the trigger lacks.
PASSING = ["55P03", "57014", "08006", "XX000", "42501"]
COUNT = 12
CULPRIT = 5
LONG = timedelta(seconds=20)  # a lease: so that nothing here ends because the machine is busy


@pytest.fixture
def app(settings: Settings) -> Pulse:
    return Pulse(settings=settings)


@pytest.fixture
async def rule(settings: Settings) -> AsyncIterator[Refusals]:
    async with refusing(settings) as rule:
        yield rule


class Held:
    """A task whose runs wait until they may go on."""

    def __init__(self, app: Pulse) -> None:
        self.go_on = asyncio.Event()
        self.started: list[int] = []

        @app.task(retry=Retry(1))
        async def work(n: int) -> int:
            self.started.append(n)
            await self.go_on.wait()
            return n

        self.work = work

    async def have_started(self, count: int) -> None:
        await until(lambda: _is(len(self.started) == count))


async def leases(engine: Engine, ids: Iterable[UUID]) -> list[datetime]:
    found = [(await engine.jobs.get(job_id)).lease_until for job_id in ids]
    return [lease_until for lease_until in found if lease_until is not None]


async def renewed(engine: Engine, ids: list[UUID]) -> None:
    before = await leases(engine, ids)
    assert len(before) == len(ids)

    async def are_renewed() -> bool:
        after = await leases(engine, ids)
        return len(after) == len(ids) and all(new > old for new, old in zip(after, before, strict=True))

    await until(are_renewed)


@pytest.mark.parametrize("code", PASSING)
async def test_a_heartbeat_that_is_refused_ends_no_other_lease(
    app: Pulse, engine: Engine, rule: Refusals, code: str
) -> None:
    held = Held(app)
    handles = await app.aenqueue_many(held.work.call(n) for n in range(COUNT))
    ids = [handle.id for handle in handles]
    culprit = ids[CULPRIT]
    neighbours = [job_id for job_id in ids if job_id != culprit]

    async with working(app, lease=LONG):
        await held.have_started(COUNT)
        await rule.refuse(culprit, "heartbeat", code)
        [before] = await leases(engine, [culprit])
        for _ in range(3):
            await renewed(engine, neighbours)
        [since] = await leases(engine, [culprit])
        await rule.lift()
        await renewed(engine, [culprit])
        held.go_on.set()
        results = [await handle.aresult(10) for handle in handles]

    assert results == list(range(COUNT))
    assert since - before < timedelta(seconds=1), "at most the beat under way when the rule was made"
    assert {(await engine.jobs.get(job_id)).attempt for job_id in ids} == {1}


@pytest.mark.parametrize("code", [*PASSING, "40001"])
async def test_a_result_that_is_refused_for_now_holds_up_no_other(
    app: Pulse, engine: Engine, rule: Refusals, code: str
) -> None:
    held = Held(app)
    handles = await app.aenqueue_many(held.work.call(n) for n in range(COUNT))
    culprit = handles[CULPRIT]

    async with working(app, lease=LONG):
        await held.have_started(COUNT)
        await rule.refuse(culprit.id, "complete", code)
        held.go_on.set()
        first = [await handle.aresult(5) for handle in handles if handle is not culprit]
        later = [
            await handle.aresult(5) for handle in await app.aenqueue_many(held.work.call(n) for n in range(20, 26))
        ]
        assert (await engine.jobs.get(culprit.id)).status is JobStatus.RUNNING
        await rule.lift()
        assert await culprit.aresult(10) == CULPRIT

    assert (first, later) == ([n for n in range(COUNT) if n != CULPRIT], list(range(20, 26)))
    assert sorted(held.started) == [*range(COUNT), *range(20, 26)], "nothing runs twice"


async def _is(what: Any) -> bool:
    return bool(what)
