"""What people do to jobs: cancel, replay, pause, look."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from pulse.engine.engine import Engine
from pulse.engine.masks import mask_each, mask_error
from pulse.model.errors import (
    IllegalTransition,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidReport,
    JobBusy,
    JobNotFound,
    KeyTaken,
)
from pulse.model.ids import bucket_of_id
from pulse.model.jobs import Job, JobFilter, JobStatus, Lease, Outcome, Page, Progress, Report, ReportStatus
from pulse.model.redaction import Redaction
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_job, a_new_job, a_report, claim_one, lease_of, submit_one


async def test_cancel_keeps_the_reason(engine: Engine, clock: FrozenClock) -> None:
    job = await engine.jobs.cancel(await submit_one(engine), reason="a duplicate")

    assert (job.status, job.last_error, job.finished_at) == (
        JobStatus.CANCELLED,
        "cancelled: a duplicate",
        clock.instant,
    )


async def test_a_running_job_is_cancelled_at_once_and_its_worker_is_told(engine: Engine) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)

    await engine.jobs.cancel(claim.id)

    assert (await engine.jobs.get(claim.id)).status is JobStatus.CANCELLED
    assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.CANCELLED]


async def test_cancel_says_why_it_cannot(engine: Engine, clock: FrozenClock) -> None:
    done = await a_job(engine, clock, JobStatus.COMPLETED)
    unknown = UUID(int=uuid4().int & ~0xFFF)

    with pytest.raises(IllegalTransition, match="is completed, so it cannot be cancelled"):
        await engine.jobs.cancel(done.id)
    with pytest.raises(JobNotFound, match="retention"):
        await engine.jobs.cancel(unknown)


async def test_many_are_answered_one_by_one(engine: Engine, clock: FrozenClock) -> None:
    done = await a_job(engine, clock, JobStatus.COMPLETED)
    waiting = await submit_one(engine)
    unknown = UUID(int=uuid4().int & ~0xFFF)

    outcomes = await engine.jobs.cancel_many([waiting, done.id, unknown])

    assert outcomes[waiting] is None
    assert isinstance(outcomes[done.id], IllegalTransition)
    assert isinstance(outcomes[unknown], JobNotFound)


async def test_a_row_held_by_its_handler_is_not_waited_for(engine: Engine, settings: Settings) -> None:
    await engine.jobs.submit([a_new_job(), a_new_job()])
    held, free = await engine.claims.claim("mail", worker="w1", slots=2)
    async with open_connection(settings) as handler:
        await handler.execute("begin")
        await handler.fetch(
            "select 1 from pulse.jobs where bucket = $1 and id = $2 for update", bucket_of_id(held.id), held.id
        )

        assert await engine.claims.report([a_report(held), a_report(free)]) == [
            ReportStatus.BUSY,
            ReportStatus.ACCEPTED,
        ]
        assert await engine.claims.heartbeat([lease_of(held)]) == [ReportStatus.BUSY]
        with pytest.raises(JobBusy, match="handler's own transaction"):
            await engine.jobs.cancel(held.id)
        await handler.execute("commit")

    assert await engine.claims.report([a_report(held)]) == [ReportStatus.ACCEPTED]


async def test_replay_gives_a_fresh_budget_and_the_count_goes_on(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, max_attempts=2)
    for _ in range(2):
        await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])
        await clock.advance(timedelta(hours=1))
        await engine.duties.promote()
    assert (await engine.jobs.get(job_id)).status is JobStatus.DEAD_LETTERED

    job = await engine.jobs.replay(job_id)

    assert (job.status, job.attempt, job.refunded, job.max_attempts) == (JobStatus.PENDING, 2, 2, 2)
    claim = await claim_one(engine)
    assert (claim.attempt, claim.is_last_attempt) == (3, False)
    await engine.claims.report([a_report(claim, Outcome.FAIL)])
    retried = await engine.jobs.get(job_id)
    assert retried.status is JobStatus.RETRYING
    assert retried.run_at - clock.instant < timedelta(seconds=1.2), "the back-off starts afresh too"


async def test_replay_by_filter_touches_what_matches_and_nothing_else(engine: Engine, clock: FrozenClock) -> None:
    ids = {}
    for topic, error in [("mail", "smtp down"), ("mail", "bad address"), ("sms", "SMTP gateway")]:
        job_id = await submit_one(engine, topic=topic)
        claim = await claim_one(engine, topic=topic)
        await engine.claims.report([a_report(claim, Outcome.DISCARD, error=error)])
        ids[error] = job_id

    assert (await engine.jobs.replay_matching(JobFilter(error="smtp"))).done == 2

    states = {error: (await engine.jobs.get(job_id)).status for error, job_id in ids.items()}
    assert states == {
        "smtp down": JobStatus.PENDING,
        "bad address": JobStatus.DEAD_LETTERED,
        "SMTP gateway": JobStatus.PENDING,
    }


async def test_replay_by_filter_goes_over_pages_and_stops_at_its_limit(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(1_200)])
    while claims := await engine.claims.claim("mail", worker="w1", slots=500):
        await engine.claims.report([a_report(claim, Outcome.DISCARD) for claim in claims])

    assert (await engine.jobs.replay_matching(JobFilter(topic="mail"), limit=700)).done == 700
    assert (await engine.jobs.replay_matching(JobFilter())).done == 500


async def test_replay_takes_its_key_back_or_stays(engine: Engine) -> None:
    first = await submit_one(engine, unique_key="k")
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])
    second = await submit_one(engine, unique_key="k")
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])

    outcomes = await engine.jobs.replay_many([first, second])

    assert [type(problem) for problem in outcomes.values() if problem] == [KeyTaken]
    replayed = next(job_id for job_id, problem in outcomes.items() if problem is None)
    assert await submit_one(engine, unique_key="k") == replayed, "it holds the key again"


async def test_only_dead_letters_are_replayed(engine: Engine, clock: FrozenClock) -> None:
    done = await a_job(engine, clock, JobStatus.COMPLETED)

    with pytest.raises(IllegalTransition, match="is completed, so it cannot be replayed"):
        await engine.jobs.replay(done.id)


async def test_a_job_runs_before_its_time(engine: Engine, clock: FrozenClock) -> None:
    later = await a_job(engine, clock, JobStatus.SCHEDULED)
    failed = await a_job(engine, clock, JobStatus.RETRYING)

    jobs = [await engine.jobs.run_now(job.id) for job in (later, failed)]

    assert [(job.status, job.ready_at, job.run_at) for job in jobs] == [
        (JobStatus.PENDING, clock.instant, job.run_at) for job in (later, failed)
    ]
    claims = await engine.claims.claim("mail", worker="w1", slots=5)
    assert {(claim.id, claim.attempt) for claim in claims} == {(later.id, 1), (failed.id, 2)}
    assert [(count.topic, count.counts) for count in await engine.jobs.counts()] == [("mail", {JobStatus.RUNNING: 2})]


async def test_of_two_who_run_a_job_now_one_is_told_that_it_is_done(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.SCHEDULED)
    hastened = await engine.jobs.run_now(job.id)

    with pytest.raises(IllegalTransition, match="is already waiting for a worker"):
        await engine.jobs.run_now(job.id)

    assert await engine.jobs.get(job.id) == hastened


# --- pause


@pytest.mark.parametrize("paused", ["mail", "*"])
async def test_a_pause_stops_claims_and_nothing_else(engine: Engine, clock: FrozenClock, paused: str) -> None:
    await submit_one(engine, delay=MINUTE)
    await submit_one(engine)
    running = await claim_one(engine)
    await engine.jobs.pause(paused, reason="deploy")
    await clock.advance(MINUTE)

    await engine.duties.promote()
    assert await engine.claims.claim("mail", worker="w1", slots=5) == []
    assert await engine.claims.report([a_report(running)]) == [ReportStatus.ACCEPTED]
    [mail] = await engine.jobs.counts()
    assert (mail.paused, mail.counts[JobStatus.PENDING]) == (True, 1)

    assert await engine.jobs.resume(paused)
    assert len(await engine.claims.claim("mail", worker="w1", slots=5)) == 1


async def test_a_pause_of_one_topic_leaves_the_others(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job(topic="a"), a_new_job(topic="b")])
    await engine.jobs.pause("a")

    assert await engine.claims.claim("a", worker="w1", slots=1) == []
    assert len(await engine.claims.claim("b", worker="w1", slots=1)) == 1


async def test_a_pause_is_a_row_with_its_reason(engine: Engine, clock: FrozenClock) -> None:
    await engine.jobs.pause("mail", reason="first")
    await clock.advance(MINUTE)
    await engine.jobs.pause("mail", reason="second")

    [pause] = await engine.jobs.pauses()
    assert (pause.topic, pause.reason, pause.paused_at) == ("mail", "second", clock.instant - MINUTE)
    assert await engine.jobs.resume("mail")
    assert not await engine.jobs.resume("mail")


# --- lists


async def every_page(engine: Engine, wanted: JobFilter, limit: int) -> list[UUID]:
    found: list[UUID] = []
    page = Page([], None)
    for _ in range(1_000):
        page = await engine.jobs.list_page(wanted, after=page.next, limit=limit)
        found += [job.id for job in page.jobs]
        if page.next is None:
            return found
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("limit", [1, 3, 50])
@pytest.mark.parametrize("topic", [None, "mail"])
@pytest.mark.parametrize("status", [None, *JobStatus])
async def test_pages_give_every_job_once(
    engine: Engine, clock: FrozenClock, status: JobStatus | None, topic: str | None, limit: int
) -> None:
    pending_last = sorted(JobStatus, key=lambda each: each is JobStatus.PENDING)  # out of the way of the claims
    wanted = {
        (await a_job(engine, clock, each)).id for each in ([status] if status else pending_last) for _ in range(4)
    }
    if status in (None, JobStatus.PENDING):
        other = await submit_one(engine, topic="other")
        wanted |= set() if topic else {other}

    found = await every_page(engine, JobFilter(status=status, topic=topic), limit)

    assert len(found) == len(set(found))
    assert set(found) == wanted


async def test_each_state_has_its_natural_order(engine: Engine, clock: FrozenClock) -> None:
    low, high = await submit_one(engine, priority=-1), await submit_one(engine, priority=5)
    late, soon = await submit_one(engine, delay=2 * MINUTE), await submit_one(engine, delay=MINUTE)
    for topic in ("x", "y"):
        await submit_one(engine, topic=topic)
        await engine.claims.report([a_report(await claim_one(engine, topic), Outcome.DISCARD)])
        await clock.advance(timedelta(seconds=1))

    async def ids(**given: object) -> list[UUID]:
        return [job.id for job in (await engine.jobs.list_page(JobFilter(**given))).jobs]  # type: ignore[arg-type]

    assert await ids(status=JobStatus.PENDING, topic="mail") == [high, low]
    assert await ids(status=JobStatus.SCHEDULED) == [soon, late]
    dead = (await engine.jobs.list_page(JobFilter(status=JobStatus.DEAD_LETTERED))).jobs
    assert [job.topic for job in dead] == ["y", "x"]
    everything = await ids()
    assert everything == sorted(everything, reverse=True)


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.COMPLETED, JobStatus.CANCELLED])
@pytest.mark.parametrize("tag", [None, "odd"])
async def test_topics_are_merged_into_one_order(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, status: JobStatus, tag: str | None
) -> None:
    """However unevenly they are spread: a busy topic must not hide what another has between its rows."""
    monkeypatch.setattr("pulse.engine.jobs.lists.SCAN_LIMIT", 8)
    wanted = []
    for number, topic in enumerate(["busy"] * 9 + ["calm", "busy", "calm", "rare"] + ["busy"] * 4 + ["new"]):
        job_id = await submit_one(engine, topic=topic, tags=("odd",) if number % 2 else ())
        if status is JobStatus.COMPLETED:
            await engine.claims.report([a_report(await claim_one(engine, topic))])
        elif status is JobStatus.CANCELLED:
            await engine.jobs.cancel(job_id)
        wanted += [job_id] if tag is None or number % 2 else []
        await clock.advance(timedelta(seconds=1))
        if number == 12:
            await engine.duties.tally()
    if status is not JobStatus.PENDING:
        wanted.reverse()

    for limit, reach in ((1, 100), (3, 100), (50, 100), (50, 8), (50, 1)):
        monkeypatch.setattr("pulse.engine.jobs.lists.REACH", reach)  # of which each of the four topics has a share
        assert await every_page(engine, JobFilter(status=status, tag=tag), limit) == wanted
        assert len((await engine.jobs.list_page(JobFilter(status=status), limit=50)).jobs) <= max(reach, 4)


async def test_filters_narrow_every_list(engine: Engine, clock: FrozenClock) -> None:
    plain = await submit_one(engine)
    await clock.advance(MINUTE)
    tagged = await submit_one(engine, task="invoice", topic="mail", tags=("vip",))

    async def ids(**given: object) -> list[UUID]:
        return [job.id for job in (await engine.jobs.list_page(JobFilter(**given))).jobs]  # type: ignore[arg-type]

    assert await ids(tag="vip") == [tagged]
    assert await ids(task="mail") == [plain]
    assert await ids(topic="mail", status=JobStatus.PENDING, tag="vip") == [tagged]
    assert await ids(submitted_after=clock.instant) == [tagged]
    assert await ids(submitted_before=clock.instant) == [plain]
    assert await ids(error="x") == []


async def test_a_rare_match_is_found_over_short_pages(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.engine.jobs.lists.SCAN_LIMIT", 10)
    wanted = await submit_one(engine, tags=("rare",))
    await engine.jobs.submit([a_new_job() for _ in range(35)])

    first = await engine.jobs.list_page(JobFilter(tag="rare"), limit=5)

    assert first.jobs == []
    assert first.next is not None
    assert await every_page(engine, JobFilter(tag="rare"), limit=5) == [wanted]


@pytest.mark.parametrize("cursor", ["x", "", "????", "bm9uc2Vuc2U", "W10"])
async def test_a_cursor_that_is_none_is_refused(engine: Engine, cursor: str) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(3)])
    other = await engine.jobs.list_page(JobFilter(topic="mail", status=JobStatus.PENDING), limit=1)

    with pytest.raises(InvalidFilter, match="must be the `next` of a page with the same filter"):
        await engine.jobs.list_page(after=cursor or other.next)


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_an_absurd_page_is_refused(engine: Engine, limit: int) -> None:
    with pytest.raises(InvalidOption, match="limit"):
        await engine.jobs.list_page(limit=limit)


def test_a_filter_by_time_needs_a_zone() -> None:
    with pytest.raises(InvalidFilter, match="no time zone"):
        JobFilter(submitted_after=datetime(2026, 1, 1))  # noqa: DTZ001


# --- what workers may not say


@pytest.mark.parametrize("lease_id", [0, -1, None, "1", True, 1 << 63])
def test_a_missing_lease_is_refused_when_it_is_written(lease_id: object) -> None:
    job_id = uuid4()

    for build in (
        lambda: Lease(job_id, lease_id),  # type: ignore[arg-type]
        lambda: Report(id=job_id, lease_id=lease_id, outcome=Outcome.COMPLETE),  # type: ignore[arg-type]
        lambda: Progress(id=job_id, lease_id=lease_id, value="1"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidReport, match="lease_id"):
            build()


@pytest.mark.parametrize(
    "given",
    [
        {"outcome": Outcome.COMPLETE, "result": "not json"},
        {"outcome": Outcome.COMPLETE, "result": '"\\u0000"'},
        {"outcome": Outcome.SNOOZE},
        {"outcome": Outcome.SNOOZE, "delay": timedelta(seconds=-1)},
        {"outcome": Outcome.FAIL, "delay": timedelta(days=4000)},
    ],
)
def test_a_bad_report_is_refused_when_it_is_written(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Report(id=uuid4(), lease_id=1, **given)  # type: ignore[arg-type]


async def test_a_failure_is_recorded_whatever_its_text(engine: Engine) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    nasty = "\x00 \ud800 " + "x" * 10_000_000

    answers = await engine.claims.report([a_report(claim, Outcome.FAIL, error=nasty, traceback=nasty)])

    assert answers == [ReportStatus.ACCEPTED]
    [attempt] = await engine.jobs.attempts(job_id)
    job = await engine.jobs.get(job_id)
    assert attempt.error == job.last_error
    assert attempt.error.startswith("\ufffd \ufffd xxx")
    assert len(attempt.error) < 20_000


@pytest.mark.parametrize("worker", ["", "w\n", "x" * 201])
async def test_a_worker_has_a_proper_name(engine: Engine, worker: str) -> None:
    with pytest.raises(InvalidName, match="worker"):
        await engine.claims.claim("mail", worker=worker, slots=1)


@pytest.mark.parametrize("reason", ["a\x00", "x" * 2_001])
async def test_a_reason_must_be_storable(engine: Engine, reason: str) -> None:
    job_id = await submit_one(engine)

    with pytest.raises(InvalidOption, match="reason"):
        await engine.jobs.cancel(job_id, reason=reason)
    assert (await engine.jobs.get(job_id)).status is JobStatus.PENDING


async def test_deadlines_and_ages_are_in_utc(engine: Engine) -> None:
    job = await engine.jobs.get(await submit_one(engine))

    assert job.submitted_at.tzinfo is not None
    assert abs(job.submitted_at - datetime.now(UTC)) < MINUTE


# --- what is marked


async def test_marked_values_are_masked_in_heads_and_only_payloads_of_failed_ones_are_read(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, error = '{"card": "4111-2222-3333"}', 490 * "x" + " card 4111-2222-3333 was refused"
    for _ in range(2):
        await submit_one(engine, payload=payload)
    claim = await claim_one(engine)
    await engine.claims.report([a_report(claim, Outcome.DISCARD, error=error)])
    async with await Database.connect(replace(settings, redact="card")) as database:
        jobs = Engine(database, buckets=settings.buckets).jobs
        read: list[UUID] = []

        def noted(redaction: Redaction, job: Job) -> str | None:
            read.append(job.id)
            return mask_error(redaction, job)

        monkeypatch.setattr("pulse.engine.jobs.use_cases.mask_error", noted)

        heads = {head.id: head.last_error for head in (await jobs.list_heads()).jobs}

    assert heads.pop(claim.id) == (490 * "x" + " card [redacted]")[:500]
    assert [*heads.values(), *read] == [None, claim.id]


async def test_others_have_a_turn_while_jobs_are_masked() -> None:
    """A page may be five hundred megabytes, and workers wait for the same loop."""
    turns = 0

    def mask(_: int) -> int:
        """Go on only when the loop has turned; give up where it stands still."""
        before, give_up_at = turns, time.monotonic() + 10
        while turns == before and time.monotonic() < give_up_at:
            time.sleep(0.001)
        return turns

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(other())
    seen = await mask_each(mask, range(5))
    turning.cancel()

    assert len(set(seen)) == 5
