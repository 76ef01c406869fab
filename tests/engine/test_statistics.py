"""Do the figures say what happened, and cost no look at a job?"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import InvalidName
from pulse.model.jobs import JobStatus, Outcome, RetryPolicy
from pulse.model.statistics import (
    BOUNDS,
    UNKNOWN,
    ConcernKind,
    Event,
    Overview,
    Range,
    Sample,
    draw,
    quantile,
    took_class,
)
from pulse.model.workers import Presence
from pulse.store import workers as workers_store
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_job, a_new_job, a_report, claim_one, submit_one

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
AT_ONCE = RetryPolicy(kind="fixed", base=0, jitter=0)


async def roll(engine: Engine) -> None:
    await engine.duties.tally()


async def happened(engine: Engine) -> Counter[tuple[str, Event]]:
    found: Counter[tuple[str, Event]] = Counter()
    for total in await engine.statistics.totals():
        found[total.topic, total.event] += total.jobs
    return found


async def one_of_everything(engine: Engine, clock: FrozenClock) -> None:
    for status in sorted(JobStatus, key=lambda status: status is JobStatus.PENDING):
        await a_job(engine, clock, status)
    claim = await claim_one(engine)  # the pending one, which is the last
    await engine.claims.report([a_report(claim, Outcome.SNOOZE)])


# --- totals


@pytest.mark.parametrize("is_rolled", [False, True])
async def test_totals_are_exact_folded_or_not(engine: Engine, clock: FrozenClock, is_rolled: bool) -> None:
    await one_of_everything(engine, clock)
    if is_rolled:
        await roll(engine)

    assert await happened(engine) == Counter(
        {
            ("mail", Event.SUBMITTED): len(JobStatus),
            ("mail", Event.STARTED): 5,
            ("mail", Event.COMPLETED): 1,
            ("mail", Event.RETRIED): 1,
            ("mail", Event.DEAD_LETTERED): 1,
            ("mail", Event.CANCELLED): 1,
            ("mail", Event.SNOOZED): 1,
        }
    )


async def test_a_lease_that_ran_out_is_counted_as_reaped_and_its_length_is_not_known(
    engine: Engine, clock: FrozenClock
) -> None:
    await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(HOUR)
    await engine.duties.reap()

    totals = {total.event: total for total in await engine.statistics.totals()}

    assert totals[Event.REAPED].jobs == totals[Event.RETRIED].jobs == 1
    assert totals[Event.RETRIED].took == UNKNOWN


async def test_waiting_and_running_are_measured(engine: Engine, clock: FrozenClock) -> None:
    await submit_one(engine)
    await clock.advance(20 * SECOND)
    claim = await claim_one(engine)
    await clock.advance(0.3 * SECOND)
    await engine.claims.report([a_report(claim)])

    totals = {total.event: total for total in await engine.statistics.totals()}

    waited, ran = totals[Event.STARTED], totals[Event.COMPLETED]
    assert (waited.took, ran.took) == (took_class(20), took_class(0.3))
    assert [waited.seconds, ran.seconds] == pytest.approx([20, 0.3])


async def test_python_and_sql_agree_on_classes(conn: Connection) -> None:
    lengths = [0.0, *BOUNDS, *(bound - 0.001 for bound in BOUNDS), 1e6]
    rows = await conn.fetch(
        "select pulse.took_class(make_interval(secs => length)) from unnest($1::float8[]) as length", lengths
    )

    assert [row[0] for row in rows] == [took_class(length) for length in lengths]


async def test_a_release_that_did_not_measure_is_not_taken_for_reaping(engine: Engine, conn: Connection) -> None:
    await conn.execute(
        "insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at) "
        "values (0, 'mail', 'RUNNING', 'RETRYING', 3, pulse.now())"
    )
    before = await happened(engine)
    await roll(engine)

    assert before == await happened(engine) == Counter({("mail", Event.RETRIED): 3})


async def test_what_a_newer_release_counts_is_left_to_it(engine: Engine, conn: Connection) -> None:
    await submit_one(engine)
    await roll(engine)
    before = await engine.statistics.overview(), await engine.statistics.totals()
    await conn.execute(
        "insert into pulse.series (bucket, span, topic, at, event, took, jobs, seconds) "
        "select bucket, span, topic, at, 'teleported', 30, 1, 1 from pulse.series"
    )

    after = await engine.statistics.overview(), await engine.statistics.totals()

    assert (before[0].topics[0].topic, before[1]) == (after[0].topics[0].topic, after[1])
    assert sum(point.submitted for point in await engine.statistics.points(Range.HOUR)) == 1


async def test_forgotten_topics_leave_no_totals(engine: Engine, clock: FrozenClock, conn: Connection) -> None:
    await a_job(engine, clock, JobStatus.COMPLETED)
    await roll(engine)
    await clock.advance(timedelta(days=8))
    await engine.duties.prune()
    await roll(engine)
    await engine.duties.prune()

    assert await happened(engine) == Counter()
    assert {row[0] for row in await conn.fetch("select span from pulse.series")} == {"ever"}  # of all topics together


# --- charts


@pytest.mark.parametrize("shown", list(Range))
async def test_a_chart_has_a_point_for_every_span_and_all_that_happened(
    engine: Engine, clock: FrozenClock, shown: Range
) -> None:
    await a_job(engine, clock, JobStatus.COMPLETED)
    await a_job(engine, clock, JobStatus.DEAD_LETTERED)
    await roll(engine)

    points = await engine.statistics.points(shown)

    assert len(points) == shown.length / shown.span.length + 1
    assert (points[-1].submitted, points[-1].completed, points[-1].failed) == (2, 1, 1)
    assert all(point.submitted == 0 and point.run_p50 is None for point in points[:-1])
    assert points == await engine.statistics.points(shown, "mail")
    assert not any(point.submitted for point in await engine.statistics.points(shown, "other"))


async def test_charts_outlive_jobs_and_are_pruned_themselves(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    await a_job(engine, clock, JobStatus.COMPLETED)
    await roll(engine)
    await conn.execute("delete from pulse.jobs")
    await clock.advance(3 * HOUR)
    await engine.duties.prune()

    assert not any(point.completed for point in await engine.statistics.points(Range.HOUR))
    assert sum(point.completed for point in await engine.statistics.points(Range.DAY)) == 1
    assert sum(point.completed for point in await engine.statistics.points(Range.WEEK)) == 1
    assert not await conn.fetch("select from pulse.series where span = 'minute'")


async def test_a_chart_of_a_topic_that_cannot_be_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidName):
        await engine.statistics.points(Range.HOUR, "")


async def test_two_processes_that_fold_at_once_lose_nothing(engine: Engine, conn: Connection) -> None:
    await engine.jobs.submit([a_new_job(topic=f"topic {number % 3}") for number in range(30)])
    async with open_connection(engine.settings) as other:
        await other.execute("begin")
        await other.fetch("select from pulse.tallies limit 1 for update")
        await roll(engine)
        await other.execute("commit")
    await roll(engine)

    assert sum((await happened(engine)).values()) == 30
    assert not await conn.fetch("select from pulse.tallies")


def test_quantiles_lie_where_the_jobs_are() -> None:
    chance = random.Random(7)
    lengths = sorted(chance.expovariate(3) for _ in range(2_000))
    classes = Counter(took_class(length) for length in lengths)

    for share in (0.5, 0.95):
        found = quantile(classes, share)
        assert found is not None
        assert took_class(found) == took_class(lengths[int(share * len(lengths))])
    assert quantile({}, 0.5) is None
    assert quantile({len(BOUNDS): 5}, 0.5) == BOUNDS[-1]


def test_points_are_drawn_where_nothing_happened_too() -> None:
    samples = [Sample(NOON + MINUTE, Event.STARTED, 3, 4, 0.1), Sample(NOON + MINUTE, Event.SUBMITTED, UNKNOWN, 4, 0)]

    first, second, third = draw(samples, NOON, NOON + 2 * MINUTE, MINUTE)

    assert (first.submitted, second.submitted, third.submitted) == (0, 4, 0)
    assert second.wait_p50 is not None
    assert BOUNDS[2] <= second.wait_p50 <= BOUNDS[3]


# --- the overview


def concerns(overview: Overview) -> set[ConcernKind]:
    return {concern.kind for concern in overview.concerns}


async def test_an_empty_house_has_no_concerns(engine: Engine, clock: FrozenClock) -> None:
    overview = await engine.statistics.overview()

    assert (overview.topics, overview.workers, overview.concerns) == ([], [], [])
    assert (overview.rate_in, overview.failing) == (0, None)


async def test_the_overview_says_how_topics_are_doing(engine: Engine, clock: FrozenClock) -> None:
    await submit_one(engine, topic="later", priority=5)
    await submit_one(engine, topic="later", priority=-5)
    await one_of_everything(engine, clock)
    await clock.advance(10 * SECOND)
    await submit_one(engine, topic="later", priority=50)
    await roll(engine)

    overview = await engine.statistics.overview()

    later, mail = overview.topics
    assert later.oldest_at == clock.instant - 10 * SECOND
    assert later.counts == {JobStatus.PENDING: 3}
    assert mail.oldest_at is None
    assert mail.failing == pytest.approx(2 / 3)
    assert 0 < later.rate_in <= 3 / 60
    assert overview.rate_in == pytest.approx(later.rate_in + mail.rate_in)
    assert overview.count(JobStatus.DEAD_LETTERED) == 1


async def test_dead_letters_and_jobs_that_nobody_takes_are_concerns(engine: Engine, clock: FrozenClock) -> None:
    await a_job(engine, clock, JobStatus.DEAD_LETTERED)
    await submit_one(engine, topic="idle")
    await engine.jobs.pause("held")
    await clock.advance(6 * MINUTE)

    overview = await engine.statistics.overview()

    texts = [concern.text for concern in overview.concerns]
    assert texts == [
        "1 dead letter in mail",
        "no worker is connected for idle, where jobs wait",
        "the oldest job of idle has waited 6m",
        "held is paused, 0 jobs waiting",
    ]


async def test_many_concerns_of_a_kind_are_told_in_one(engine: Engine, clock: FrozenClock) -> None:
    for number in range(5):
        await submit_one(engine, topic=f"topic {number}")
    await clock.advance(90 * MINUTE + SECOND)

    overview = await engine.statistics.overview()

    assert [concern.text for concern in overview.concerns] == [
        "no worker is connected, though jobs wait, for 5 topics: topic 0, topic 1, topic 2 and 2 more",
        "jobs have waited up to 1h30m in 5 topics: topic 0, topic 1, topic 2 and 2 more",
    ]


async def test_a_connected_worker_is_nothing_to_worry_about(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    await submit_one(engine)
    worker = Presence(name="w1", version="1", topics=["mail"], slots=5, busy=0, age=MINUTE)
    await workers_store.note_workers(conn, server="s1", workers=[worker])

    overview = await engine.statistics.overview()

    assert [seen.name for seen in overview.workers] == ["w1"]
    assert overview.concerns == []


async def test_broken_and_late_schedules_and_alarms_are_concerns(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    from pulse.model.alarms import NewAlarm
    from pulse.model.schedules import NewSchedule

    for name in ("broken", "late"):
        await engine.schedules.create(NewSchedule(name=name, job=a_new_job(), every=HOUR))
    for name in ("failing", "failed", "forgotten"):
        await engine.alarms.set(NewAlarm(name=name, url="https://example.org/", delay=HOUR))
    await conn.execute(
        "update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'gone' where name = 'broken'"
    )
    await conn.execute("update pulse.alarms set failure_count = 1 where name = 'failing'")
    await conn.execute(
        "update pulse.alarms set status = 'failed', next_fire_at = null, finished_at = pulse.now() "
        "where name = 'failed'"
    )
    await clock.advance(HOUR + MINUTE)

    overview = await engine.statistics.overview()

    assert concerns(overview) == {
        ConcernKind.BROKEN_SCHEDULES,
        ConcernKind.LATE_SCHEDULES,
        ConcernKind.FAILED_ALARMS,
        ConcernKind.FAILING_ALARMS,
        ConcernKind.LATE_ALARMS,
    }
    assert (overview.schedules_overdue, overview.alarms_overdue) == (MINUTE, MINUTE)


async def test_who_pins_the_horizon_is_named(engine: Engine, conn: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = await conn.fetch("select pg_backend_pid()")
    await conn.execute("begin isolation level repeatable read")
    await conn.fetch("select 1")
    monkeypatch.setattr("pulse.store.statistics.overview.LONG_TRANSACTION", timedelta())

    overview = await engine.statistics.overview()

    [concern] = overview.concerns
    assert concern.kind is ConcernKind.PINNED_HORIZON
    assert f"process {row[0]} " in concern.text
