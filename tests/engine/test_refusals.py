"""Do the duties go on when a trigger of somebody's refuses to let one job move?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import pytest

from pulse.engine.duties import duties
from pulse.engine.duties import refused_rows as apart
from pulse.engine.engine import Engine
from pulse.model.jobs import JobStatus, RetryPolicy
from pulse.settings import Settings
from tests.clock import FrozenClock
from tests.factories import MINUTE, submit_one
from tests.refusals import Refusals, refusing

COUNT = 12
CULPRIT = 5
CODES = ["P0001", "55P03", "57014", "08006", "40001", "23505", "42501"]
SLOW = RetryPolicy(kind="fixed", base=3600, jitter=0)

Step = Callable[[Engine], Awaitable[object]]
Make = Callable[[Engine, FrozenClock], Awaitable[list[UUID]]]


@pytest.fixture
async def rule(settings: Settings) -> AsyncIterator[Refusals]:
    async with refusing(settings) as rule:
        yield rule


@pytest.fixture(autouse=True)
def again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "AGAIN_AFTER", 0.0)


async def delayed(engine: Engine, clock: FrozenClock) -> list[UUID]:
    ids = [await submit_one(engine, delay=MINUTE) for _ in range(COUNT)]
    await clock.advance(MINUTE)
    return ids


async def late(engine: Engine, clock: FrozenClock) -> list[UUID]:
    ids = [await submit_one(engine, deadline=clock.instant + MINUTE) for _ in range(COUNT)]
    await clock.advance(MINUTE)
    return ids


async def abandoned(engine: Engine, clock: FrozenClock) -> list[UUID]:
    for _ in range(COUNT):
        await submit_one(engine, retry=SLOW)
    claims = await engine.claims.claim("mail", worker="w1", slots=COUNT)
    await clock.advance(MINUTE)
    return [claim.id for claim in claims]


DUTIES: dict[str, tuple[Make, Step, JobStatus, JobStatus]] = {
    "promote": (delayed, lambda engine: engine.duties.promote(), JobStatus.SCHEDULED, JobStatus.PENDING),
    "expire": (late, lambda engine: engine.duties.promote(), JobStatus.PENDING, JobStatus.DEAD_LETTERED),
    "reap": (abandoned, lambda engine: engine.duties.reap(), JobStatus.RUNNING, JobStatus.RETRYING),
}


async def statuses(engine: Engine, ids: list[UUID]) -> list[JobStatus]:
    return [(await engine.jobs.get(job_id)).status for job_id in ids]


@pytest.mark.parametrize("move", DUTIES)
@pytest.mark.parametrize("code", CODES)
async def test_a_job_that_must_not_move_keeps_no_other_from_moving(
    engine: Engine, clock: FrozenClock, rule: Refusals, move: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, step, before, after = DUTIES[move]
    ids = await make(engine, clock)
    await rule.refuse(ids[CULPRIT], move, code)

    for _ in range(3):
        await step(engine)
    expected = [before if number == CULPRIT else after for number in range(COUNT)]
    assert await statuses(engine, ids) == expected
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1, "not at every tick"
    assert str(ids[CULPRIT]) in told[0]
    assert told[0].endswith(": not this one")

    await rule.lift()
    await step(engine)
    assert await statuses(engine, ids) == [after] * COUNT


@pytest.mark.parametrize("move", DUTIES)
async def test_more_of_them_than_a_batch_holds_keep_no_other_from_moving(
    engine: Engine, clock: FrozenClock, rule: Refusals, move: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 3)
    make, step, before, after = DUTIES[move]
    ids = await make(engine, clock)
    for culprit in ids[:7]:
        await rule.refuse(culprit, move, "P0001")

    for _ in range(6):
        await step(engine)

    assert await statuses(engine, ids) == [before] * 7 + [after] * 5


async def test_promote_comes_again_at_the_next_tick_while_one_is_refused(
    engine: Engine, clock: FrozenClock, rule: Refusals
) -> None:
    """What falls due after it is hidden behind it."""
    [culprit, *_] = await delayed(engine, clock)
    await rule.refuse(culprit, "promote", "P0001")
    await engine.duties.promote()

    assert await engine.duties.promote() == engine.settings.tick


async def test_a_refused_job_is_not_tried_at_every_step(
    engine: Engine, clock: FrozenClock, rule: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take half a second to be refused, while others fall due all the time."""
    monkeypatch.setattr(apart, "AGAIN_AFTER", 3600.0)
    ids = await delayed(engine, clock)
    await rule.refuse(ids[CULPRIT], "promote", "P0001")
    await engine.duties.promote()
    await rule.lift()

    await engine.duties.promote()

    assert (await statuses(engine, ids)).count(JobStatus.SCHEDULED) == 1
