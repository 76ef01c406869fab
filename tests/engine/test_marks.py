"""Does a claim start where the last one ended, and still find what stands before it?"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs.low_water_marks import SCAN_EVERY, SCAN_SHARE, START, LowWaterMarks
from pulse.model.ids import bucket_of_topic
from pulse.model.jobs import Claim
from pulse.store.connections.pool import connect_options
from pulse.store.jobs.rows import Mark
from pulse.store.statements import load_statements
from tests.factories import a_new_job, a_report, submit_one

if TYPE_CHECKING:
    from pulse.settings import Settings
    from pulse.store.connections.pool import Database

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def now() -> Clock:
    return Clock()


@pytest.fixture
def marks(now: Clock) -> LowWaterMarks:
    return LowWaterMarks(clock=now)


def a_claim(number: int = 1, *, priority: int = 0, ready_at: datetime = NOON) -> Claim:
    rest: list[Any] = [NOON, NOON, None, None, None]
    return Claim(UUID(int=number), 1, "w1", "mail", "mail", "{}", 1, 3, 0, priority, ready_at, *rest)


def a_scan(marks: LowWaterMarks, claims: list[Claim], *, took: float = 0.0, topic: str = "mail") -> None:
    assert marks.where(topic) is START
    marks.claimed(topic, START, took, claims)


# --- where a claim starts


def test_the_first_claim_of_a_topic_starts_at_the_very_start(marks: LowWaterMarks) -> None:
    assert marks.where("mail") is START


def test_the_next_one_starts_behind_the_last_job_claimed(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(1), a_claim(2, priority=-3)])

    assert marks.where("mail") == Mark(3, NOON, UUID(int=2))


def test_the_mark_moves_with_every_claim(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(1)])
    marks.claimed("mail", marks.where("mail"), 0.0, [a_claim(2), a_claim(3)])

    assert marks.where("mail") == Mark(0, NOON, UUID(int=3))


def test_a_claim_that_found_nothing_leaves_the_mark(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(5)])
    marks.claimed("mail", marks.where("mail"), 0.0, [])

    assert marks.where("mail") == Mark(0, NOON, UUID(int=5))


def test_topics_do_not_share_a_mark(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(5)])

    assert marks.where("reports") is START
    assert marks.where("mail") is not START


# --- when it starts from the very start again


def test_having_found_too_few_it_looks_from_the_start(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim()])

    assert marks.where("mail", found_too_few=True) is START


def test_after_a_second_it_looks_from_the_start(marks: LowWaterMarks, now: Clock) -> None:
    a_scan(marks, [a_claim()])

    now.at += SCAN_EVERY - 0.01
    assert marks.where("mail") is not START
    now.at += 0.01
    assert marks.where("mail") is START
    marks.claimed("mail", START, 0.0, [a_claim()])
    assert marks.where("mail") is not START, "and then not for another second"


def test_a_claim_from_the_mark_does_not_count_as_a_look_from_the_start(marks: LowWaterMarks, now: Clock) -> None:
    a_scan(marks, [a_claim()])
    now.at += SCAN_EVERY - 0.01
    marks.claimed("mail", marks.where("mail"), 0.0, [a_claim(2)])

    now.at += 0.01

    assert marks.where("mail") is START


def test_more_urgent_work_makes_it_look_from_the_start_once(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(priority=5)])

    marks.overtaken("mail", 6)

    assert marks.where("mail") is START
    marks.claimed("mail", START, 0.0, [a_claim(2, priority=6)])
    assert marks.where("mail") is not START


@pytest.mark.parametrize("priority", [5, 4, -100])
def test_work_that_is_no_more_urgent_stands_behind_the_mark_anyway(marks: LowWaterMarks, priority: int) -> None:
    a_scan(marks, [a_claim(priority=5)])

    marks.overtaken("mail", priority)

    assert marks.where("mail") is not START


def test_the_most_urgent_of_several_counts(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim(priority=5)])

    marks.overtaken("mail", 6)
    marks.overtaken("mail", 1)

    assert marks.where("mail") is START


def test_urgent_work_elsewhere_does_not_matter_here(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim()])

    marks.overtaken("reports", 100)

    assert marks.where("mail") is not START


def test_urgent_work_anywhere_matters_everywhere(marks: LowWaterMarks) -> None:
    a_scan(marks, [a_claim()])
    a_scan(marks, [a_claim()], topic="reports")

    marks.overtaken("*", 100)

    assert marks.where("mail") is START
    assert marks.where("reports") is START


def test_what_is_heard_about_a_topic_never_claimed_from_is_not_kept(marks: LowWaterMarks) -> None:
    for number in range(1_000):
        marks.overtaken(f"topic {number}", 100)

    assert not marks._places


# --- never more than a small share of the time


@pytest.mark.parametrize("reason", ["found too few", "overtaken", "a second has passed"])
def test_a_scan_that_was_slow_is_repeated_less(marks: LowWaterMarks, now: Clock, reason: str) -> None:
    took = 2.0
    a_scan(marks, [a_claim()], took=took)
    if reason == "overtaken":
        marks.overtaken("mail", 100)

    now.at += took / SCAN_SHARE - 0.1
    assert marks.where("mail", found_too_few=reason == "found too few") is not START
    now.at += 0.2
    assert marks.where("mail", found_too_few=reason == "found too few") is START


def test_urgent_work_is_not_forgotten_while_a_scan_is_too_dear(marks: LowWaterMarks, now: Clock) -> None:
    took = 0.02
    a_scan(marks, [a_claim()], took=took)
    marks.overtaken("mail", 100)
    marks.claimed("mail", marks.where("mail"), 0.0, [a_claim(2)])

    now.at += took / SCAN_SHARE + 0.01  # less than a second, so only the urgency asks for it

    assert marks.where("mail") is START


def test_a_fast_scan_makes_the_next_one_affordable_again(marks: LowWaterMarks, now: Clock) -> None:
    a_scan(marks, [a_claim()], took=1.0)
    now.at += 21
    a_scan(marks, [a_claim()], took=0.001)

    now.at += 0.03

    assert marks.where("mail", found_too_few=True) is START


# --- on Postgres


async def _look(conn: asyncpg.Connection, settings: Settings, mark: Mark) -> tuple[int, int]:
    """How many buffers a claim of one job touches, and how many jobs it finds; nothing is kept of it."""
    statement = load_statements(settings.schema)["claim_jobs"]
    given = {
        "bucket": bucket_of_topic("mail", settings.buckets),
        "topic": "mail",
        "workers": ["w1"],
        "limit": 1,
        "lease": timedelta(seconds=30),
        "mark_urgency": mark.urgency,
        "mark_ready_at": mark.ready_at,
        "mark_id": mark.id,
    }
    transaction = conn.transaction()
    await transaction.start()
    plan = await conn.fetchval(
        f"explain (analyze, buffers, format json) {statement.sql}", *[given[name] for name in statement.parameters]
    )
    await transaction.rollback()
    top = json.loads(plan)[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"], top["Actual Rows"]


async def test_dead_entries_that_an_old_snapshot_pins_are_not_walked_over(
    database: Database, settings: Settings
) -> None:
    engine = Engine(database, buckets=settings.buckets)
    old = await asyncpg.connect(settings.database_url)
    conn = await asyncpg.connect(**connect_options(settings))
    try:
        await engine.jobs.submit([a_new_job() for _ in range(2_000)])
        await old.execute("begin isolation level repeatable read; select count(*) from pulse.jobs")
        claims: list[Claim] = []
        for _ in range(4):
            batch = await engine.claims.claim("mail", worker="w1", slots=500)
            await engine.claims.report([a_report(claim) for claim in batch])
            claims += batch
        assert len(claims) == 2_000
        await submit_one(engine)
        mark = engine.claims._marks._places["mail"].mark
        assert mark == Mark(*claims[-1].order)

        from_start, found_from_start = await _look(conn, settings, START)
        from_mark, found_from_mark = await _look(conn, settings, mark)

        assert found_from_start == found_from_mark == 1
        assert from_mark * 5 <= from_start, f"{from_mark} buffers from the mark, {from_start} from the start"
    finally:
        conn.terminate()
        old.terminate()


async def _warm(database: Database) -> tuple[Engine, Clock]:
    """An engine whose first claim is behind it (the driver looks up types then), with a clock for its marks.

    MovedJob by 0.9 s, a scan is affordable again but not yet due for that reason alone.
    """
    now = Clock()
    engine = Engine(database, buckets=database.settings.buckets)
    engine.claims._marks = LowWaterMarks(clock=now)
    await engine.claims.claim("other", worker="w1", slots=2)
    return engine, now


async def test_a_job_that_stands_before_the_mark_is_found(database: Database, settings: Settings) -> None:
    """As one does that became ready first and was committed last."""
    engine, now = await _warm(database)
    late = await asyncpg.connect(settings.database_url)
    try:
        await late.execute("begin")
        late_id = await late.fetchval("select pulse.enqueue('mail')")
        await engine.jobs.submit([a_new_job() for _ in range(4)])
        first = await engine.claims.claim("mail", worker="w1", slots=2)
        now.at += 0.9
        await late.execute("commit")

        then = await engine.claims.claim("mail", worker="w1", slots=2)
        last = await engine.claims.claim("mail", worker="w1", slots=2)

        assert len(first) == len(then) == 2
        assert late_id not in {claim.id for claim in [*first, *then]}, "it was passed by, behind the mark"
        assert [claim.id for claim in last] == [late_id], "and found once a claim came back with too few"
    finally:
        late.terminate()


async def test_more_urgent_work_overtakes_at_once(database: Database, settings: Settings) -> None:
    engine, now = await _warm(database)
    await engine.jobs.submit([a_new_job() for _ in range(4)])
    await engine.claims.claim("mail", worker="w1", slots=2)
    now.at += 0.9

    urgent = await submit_one(engine, priority=10)

    [claim] = await engine.claims.claim("mail", worker="w1", slots=1)
    assert claim.id == urgent
    [claim] = await engine.claims.claim("mail", worker="w1", slots=1)
    assert claim.priority == 0
