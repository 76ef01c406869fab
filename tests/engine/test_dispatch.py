"""Does each waiting job reach exactly one worker that can begin it, in fair shares, whatever comes and goes?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from pulse.engine.dispatch.dispatcher import Dispatcher
from pulse.engine.dispatch.worker_stream import (
    AssignmentBatch,
    DrainNotice,
    Message,
    Pool,
    ReplacedNotice,
    WorkerStream,
)
from pulse.engine.engine import Engine
from pulse.model.errors import Conflict, DatabaseUnreachable
from pulse.model.ids import Mint, bucket_of_topic
from pulse.model.jobs import Claim, JobStatus, Lease, NewJob
from pulse.settings import Settings
from pulse.store.connections.notifications import SPACING
from pulse.store.connections.pool import Connection
from tests.factories import a_new_job
from tests.waiting import until

A_TICK = timedelta(milliseconds=50)


def a_stream(worker: str = "w1", slots: int = 10, topics: tuple[str, ...] = ("mail",)) -> WorkerStream:
    return WorkerStream(worker, [Pool(topics, slots)])


@pytest.fixture
def dispatcher(engine: Engine, settings: Settings) -> Dispatcher:
    found = Dispatcher(engine.jobs, engine.claims, replace(settings, tick=A_TICK))
    engine.notifications.on_ready(lambda ready: found.mark_ready(ready.topic))
    return found


@asynccontextmanager
async def running(dispatcher: Dispatcher) -> AsyncIterator[None]:
    life = asyncio.create_task(dispatcher.run())
    try:
        yield
    finally:
        dispatcher.drain()
        await asyncio.wait_for(life, 10)


async def jobs_of(stream: WorkerStream, within: float = 0.3) -> list[Claim]:
    """All that comes until nothing does."""
    found: list[Claim] = []
    while (message := await stream.next(within=within)) is not None:
        if isinstance(message, AssignmentBatch):
            found += message.claims
    return found


async def test_a_waiting_job_goes_to_whoever_is_free(engine: Engine, dispatcher: Dispatcher) -> None:
    [job] = await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)

    async with running(dispatcher):
        [claim] = await jobs_of(stream)

    assert (claim.id, claim.worker) == (job.id, "w1")
    assert (await engine.jobs.get(job.id)).locked_by == "w1"


async def test_a_job_that_comes_later_wakes_it(engine: Engine, dispatcher: Dispatcher) -> None:
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        assert await jobs_of(stream, 0.05) == []
        await engine.jobs.submit([a_new_job()])
        assert len(await jobs_of(stream)) == 1


async def test_what_nobody_told_of_is_found_at_the_next_tick(
    engine: Engine, dispatcher: Dispatcher, settings: Settings
) -> None:
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        await jobs_of(stream, 0.05)
        quiet = Engine(engine.jobs._database, buckets=engine.jobs.buckets)
        await quiet.jobs.submit([a_new_job()])
        assert len(await jobs_of(stream)) == 1


async def test_nothing_is_claimed_that_nobody_can_begin(engine: Engine, dispatcher: Dispatcher) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(10)])
    stream, other = a_stream(slots=3), a_stream("w2", topics=("other",))
    dispatcher.connect(stream)
    dispatcher.connect(other)

    async with running(dispatcher):
        assert len(await jobs_of(stream)) == 3
        assert await jobs_of(other, 0.05) == []
        dispatcher.update_credit(stream, received=stream.sent, free=[2], number=1)
        assert len(await jobs_of(stream)) == 2

    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.RUNNING: 5, JobStatus.PENDING: 5}


@pytest.mark.parametrize(("jobs", "shares"), [(8, [2, 2, 2, 2]), (2, [0, 0, 1, 1]), (100, [10, 10, 10, 10])])
async def test_equal_credit_gets_equal_shares(
    engine: Engine, dispatcher: Dispatcher, jobs: int, shares: list[int]
) -> None:
    streams = [a_stream(f"w{n}") for n in range(4)]
    for stream in streams:
        dispatcher.connect(stream)
    await engine.jobs.submit([a_new_job() for _ in range(jobs)])

    async with running(dispatcher):
        found = [await jobs_of(stream, 0.2) for stream in streams]

    assert sorted(len(theirs) for theirs in found) == shares
    ids = Counter(claim.id for theirs in found for claim in theirs)
    assert set(ids.values()) == {1}


async def test_the_odd_job_is_not_always_the_first_ones(engine: Engine, dispatcher: Dispatcher) -> None:
    streams = [a_stream(f"w{n}", slots=100) for n in range(3)]
    for stream in streams:
        dispatcher.connect(stream)
    async with running(dispatcher):
        for number in range(6):  # one after another: two that are claimed together are dealt together
            await engine.jobs.submit([a_new_job()])
            async with asyncio.timeout(5):
                while sum(len(stream.held) for stream in streams) <= number:
                    await asyncio.sleep(0.005)
        found = [len(await jobs_of(stream, 0.05)) for stream in streams]

    assert found == [2, 2, 2]


async def test_topics_take_turns(engine: Engine, dispatcher: Dispatcher) -> None:
    await engine.jobs.submit([a_new_job(topic="a") for _ in range(50)])
    await engine.jobs.submit([a_new_job(topic="b") for _ in range(50)])
    stream = WorkerStream("w1", [Pool(("a", "b"), 10)])
    dispatcher.connect(stream)
    topics: list[str] = []

    async with running(dispatcher):
        for number in range(4):
            topics += {claim.topic for claim in await jobs_of(stream, 0.1)}
            dispatcher.update_credit(stream, received=stream.sent, free=[10], number=number + 1)

    assert set(topics[:2]) == {"a", "b"}


async def test_a_paused_topic_is_not_dealt(engine: Engine, dispatcher: Dispatcher) -> None:
    await engine.jobs.submit([a_new_job()])
    await engine.jobs.pause("mail")
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        assert await jobs_of(stream, 0.2) == []
        await engine.jobs.resume("mail")
        assert len(await jobs_of(stream)) == 1


# --- coming and going


async def test_what_was_never_sent_goes_back_uncharged_when_its_worker_leaves(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    [job] = await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        while stream.sent == 0:
            await asyncio.sleep(0.005)
        await dispatcher.disconnect(stream)

    found = await engine.jobs.get(job.id)
    assert (found.status, found.attempt - found.refunded, found.locked_by) == (JobStatus.PENDING, 0, None)


async def test_what_was_claimed_while_its_worker_left_goes_back(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = await engine.jobs.submit([a_new_job()])
    stream, claim_for = a_stream(), engine.claims.claim_for

    async def claim_and_lose(*args: Any, **kwargs: Any) -> list[Claim]:
        claims = await claim_for(*args, **kwargs)
        await dispatcher.disconnect(stream)
        return claims

    monkeypatch.setattr(engine.claims, "claim_for", claim_and_lose)
    dispatcher.connect(stream)
    async with running(dispatcher):
        await asyncio.sleep(0.1)

    found = await engine.jobs.get(job.id)
    assert (found.status, found.attempt - found.refunded) == (JobStatus.PENDING, 0)


async def test_a_newer_stream_of_the_same_worker_wins(engine: Engine, dispatcher: Dispatcher) -> None:
    older, newer = a_stream(), a_stream()
    dispatcher.connect(older)
    dispatcher.connect(newer)
    assert isinstance(await older.next(within=1), ReplacedNotice)
    await dispatcher.disconnect(older)
    assert dispatcher.streams == [newer]

    await engine.jobs.submit([a_new_job()])
    async with running(dispatcher):
        assert len(await jobs_of(newer)) == 1
    assert await older.next(within=0.01) is None


async def test_draining_sends_everyone_elsewhere_and_claims_no_more(engine: Engine, dispatcher: Dispatcher) -> None:
    stream, late = a_stream(), a_stream("w2")
    dispatcher.connect(stream)
    async with running(dispatcher):
        await asyncio.sleep(0.02)
    dispatcher.connect(late)
    [job] = await engine.jobs.submit([a_new_job()])

    assert [type(await each.next(within=1)) for each in (stream, late)] == [DrainNotice, DrainNotice]
    assert (await engine.jobs.get(job.id)).status is JobStatus.PENDING


async def test_a_claim_that_fails_ends_no_stream(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_for, failures = engine.claims.claim_for, iter([True, True, False, False, False])

    async def sometimes(*args: Any, **kwargs: Any) -> list[Claim]:
        if next(failures):
            raise DatabaseUnreachable("away")
        return await claim_for(*args, **kwargs)

    monkeypatch.setattr(engine.claims, "claim_for", sometimes)
    await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        assert len(await jobs_of(stream, 3)) == 1


async def test_a_cancelled_job_is_told_to_its_worker_if_it_sits_here(engine: Engine, dispatcher: Dispatcher) -> None:
    await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        [claim] = await jobs_of(stream)
        lease = Lease(claim.id, claim.lease_id)
        engine.jobs.on_cancel(dispatcher.cancel)
        await engine.jobs.cancel(claim.id)
        message: Message | None = await stream.next(within=1)

    assert message is not None
    assert getattr(message, "leases", None) == [lease]


async def test_each_dead_letter_is_told_once_and_only_to_those_who_want_to_know(dispatcher: Dispatcher) -> None:
    willing = [WorkerStream(worker, [Pool(("mail",), 1)], wants_dead_letters=True) for worker in ("w1", "w2")]
    others = [a_stream("w3"), WorkerStream("w4", [Pool(("bank",), 1)], wants_dead_letters=True)]
    for stream in (*willing, *others):
        dispatcher.connect(stream)

    untold = [dispatcher.notify_dead_letters({uuid4(): "mail"}) for _ in range(20)]  # whom is chance

    assert sum(stream.sent for stream in willing) == 20
    assert [stream.sent for stream in others] == [0, 0]
    assert untold == [[]] * 20
    assert dispatcher.notify_dead_letters({(nobodys := uuid4()): "news"}) == [nobodys]


# --- what never arrived


async def test_what_a_worker_does_not_hold_is_given_back(engine: Engine) -> None:
    jobs = await engine.jobs.submit([a_new_job() for _ in range(3)])
    claims = await engine.claims.claim("mail", worker="w1", slots=2)
    [others] = await engine.claims.claim("mail", worker="w2", slots=2)

    held = [Lease(claims[0].id, claims[0].lease_id)]
    now = await engine.read_clock()
    assert await engine.claims.release_unheld(["w1"], held, before=claims[0].claimed_at) == 0, "given since"
    assert await engine.claims.release_unheld(["w1"], held, before=now) == 1

    found = {job.id: await engine.jobs.get(job.id) for job in jobs}
    assert found[claims[0].id].status is JobStatus.RUNNING
    assert found[others.id].status is JobStatus.RUNNING
    lost = found[claims[1].id]
    assert (lost.status, lost.attempt - lost.refunded, lost.lease_id) == (
        JobStatus.PENDING,
        0,
        claims[1].lease_id + 1,
    )
    assert await engine.claims.release_unheld(["w1"], held, before=now) == 0


async def test_an_older_claim_of_the_same_job_is_not_what_it_holds(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job()])
    [first] = await engine.claims.claim("mail", worker="w1", slots=1)
    await engine.claims.release([Lease(first.id, first.lease_id)])
    await engine.claims.claim("mail", worker="w1", slots=1)

    now = await engine.read_clock()
    assert await engine.claims.release_unheld(["w1"], [Lease(first.id, first.lease_id)], before=now) == 1


async def test_whose_a_claim_is(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job()])
    [claim] = await engine.claims.claim("mail", worker="w1", slots=1)
    found = await engine.claims.claims_of([Lease(claim.id, 1), Lease(claim.id, claim.lease_id)])

    assert found == {claim.id: (claim.id, claim.lease_id, "mail", "w1")}


async def test_whatever_goes_wrong_the_next_step_is_taken(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_for, problems = engine.claims.claim_for, [RuntimeError("nobody thought of this")]

    async def sometimes(*args: Any, **kwargs: Any) -> list[Claim]:
        if problems:
            raise problems.pop()
        return await claim_for(*args, **kwargs)

    monkeypatch.setattr(engine.claims, "claim_for", sometimes)
    await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)
    async with running(dispatcher):
        assert len(await jobs_of(stream, 3)) == 1


async def test_what_was_claimed_for_places_that_are_gone_is_given_back(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stops says that no place is free and reads up to what was sent: nothing may come after that."""
    stream = a_stream(slots=3)
    claim_for = engine.claims.claim_for

    async def claim_slowly(*args: Any, **given: Any) -> list[Claim]:
        claims = await claim_for(*args, **given)
        dispatcher.update_credit(stream, received=0, free=[1])
        return claims

    monkeypatch.setattr(engine.claims, "claim_for", claim_slowly)
    await engine.jobs.submit([a_new_job() for _ in range(3)])
    dispatcher.connect(stream)

    async with running(dispatcher):
        found = await jobs_of(stream)

    left = [job for job in (await engine.jobs.list_page()).jobs if job.status is JobStatus.PENDING]
    assert len(found) == 1
    assert [job.attempt - job.refunded for job in left] == [0, 0]


async def test_a_single_job_that_someone_here_can_take_is_told_to_nobody_else(
    engine: Engine, dispatcher: Dispatcher, conn: Connection
) -> None:
    """A NOTIFY costs the commit more than it is worth when the job is gone by the time it is heard."""
    engine.notifications.add_local_taker(dispatcher.can_take)
    stream = a_stream(slots=1)
    dispatcher.connect(stream)
    told: list[str] = []
    raw = conn._raw
    await raw.add_listener(engine.notifications.channel, lambda *message: told.append(str(message[-1])))

    await engine.jobs.submit([a_new_job()])
    await raw.execute("select 1")
    assert told == []
    await engine.jobs.submit([a_new_job(), a_new_job()])
    await until(lambda: _is_there(told))
    await asyncio.sleep(SPACING)
    told.clear()
    async with running(dispatcher):
        await jobs_of(stream, 0.2)
    await engine.jobs.submit([a_new_job()])
    await until(lambda: _is_there(told))


async def _is_there(told: list[str]) -> bool:
    return bool(told)


# --- the short way: a single job is stored as someone's already


async def test_a_single_job_is_handed_to_whoever_is_free_without_a_claim(
    engine: Engine, dispatcher: Dispatcher
) -> None:
    streams = [a_stream("w1"), a_stream("w2")]
    async with settled(dispatcher, *streams):
        submitted = [(await dispatcher.submit([a_new_job()]))[0] for _ in range(4)]
        found = [await jobs_of(stream, 0.01) for stream in streams]

    assert [len(theirs) for theirs in found] == [2, 2], "in turn"
    assert {claim.id for theirs in found for claim in theirs} == {each.id for each in submitted}
    assert [stream.held for stream in streams] == [{claim.id: claim.lease_id for claim in theirs} for theirs in found]


@asynccontextmanager
async def settled(dispatcher: Dispatcher, *streams: WorkerStream) -> AsyncIterator[None]:
    """Everybody sits, and the claimer has found that nothing waits."""
    for stream in streams:
        dispatcher.connect(stream)
    async with running(dispatcher):
        await until(lambda: _is_quiet(dispatcher))
        yield


async def _is_quiet(dispatcher: Dispatcher) -> bool:
    return not dispatcher._maybe_ready and not dispatcher._claiming


@pytest.mark.parametrize(
    "jobs", [[a_new_job(), a_new_job()], [a_new_job(unique_key="k")], [a_new_job(delay=timedelta(milliseconds=1))]]
)
async def test_others_go_the_usual_way(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, jobs: list[NewJob]
) -> None:
    monkeypatch.setattr(engine.claims, "submit_claimed", None)
    async with settled(dispatcher, a_stream()):
        assert [answer.created for answer in await dispatcher.submit(jobs)] == [True] * len(jobs)


@pytest.mark.parametrize("topic", ["mail", "other"])
async def test_where_jobs_may_wait_for_the_same_places_it_goes_the_usual_way(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Also while a claim is under way: which places it takes is not known until it is answered."""
    is_under_way, is_to_end, claim_for = asyncio.Event(), asyncio.Event(), engine.claims.claim_for

    async def claim_slowly(*args: Any, **kwargs: Any) -> list[Claim]:
        is_under_way.set()
        await is_to_end.wait()
        return await claim_for(*args, **kwargs)

    monkeypatch.setattr(engine.claims, "submit_claimed", None)
    monkeypatch.setattr(engine.claims, "claim_for", claim_slowly)
    stream = a_stream(topics=("mail", "other"))
    dispatcher.connect(stream)
    dispatcher._maybe_ready = {topic: None}
    await dispatcher.submit([a_new_job()])
    dispatcher._maybe_ready = {topic: None}
    async with running(dispatcher):
        await is_under_way.wait()
        await dispatcher.submit([a_new_job()])
        is_to_end.set()
        assert len(await jobs_of(stream)) == 2


async def test_a_job_that_nobody_here_can_begin_waits(engine: Engine, dispatcher: Dispatcher) -> None:
    async with settled(dispatcher, a_stream(topics=("other",))):
        [submitted] = await dispatcher.submit([a_new_job()])

    assert (await engine.jobs.get(submitted.id)).status is JobStatus.PENDING


async def test_who_comes_behind_waiting_ones_gets_there_too(
    engine: Engine, dispatcher: Dispatcher, settings: Settings
) -> None:
    """What nobody told this server of is before it in the database; then both are claimed, in their order."""
    stream = a_stream(slots=5)
    async with settled(dispatcher, stream):
        quiet = Engine(engine.jobs._database, buckets=engine.jobs.buckets)
        [first] = await quiet.jobs.submit([a_new_job()])
        [second] = await dispatcher.submit([a_new_job()])
        found = await jobs_of(stream)

    assert [claim.id for claim in found] == [first.id, second.id]


async def test_no_more_is_handed_out_than_there_are_places(engine: Engine, dispatcher: Dispatcher) -> None:
    stream = a_stream(slots=3)
    async with settled(dispatcher, stream):
        await asyncio.gather(*(dispatcher.submit([a_new_job()]) for _ in range(20)))
        assert len(await jobs_of(stream)) == 3
        [counts] = await engine.jobs.counts()
        assert counts.counts == {JobStatus.RUNNING: 3, JobStatus.PENDING: 17}
        dispatcher.update_credit(stream, received=stream.sent, free=[3], number=1)
        assert len(await jobs_of(stream)) == 3

    refunded = [job.refunded for job in (await engine.jobs.list_page()).jobs]
    assert refunded == [0] * 20, "nothing was claimed in vain"


async def test_a_place_is_kept_while_the_worker_speaks(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, submit_claimed = a_stream(slots=1), engine.claims.submit_claimed
    rooms: list[int] = []

    async def submit_and_hear(*args: Any, **kwargs: Any) -> Any:
        dispatcher.update_credit(stream, received=0, free=[1], number=1)
        rooms.append(stream.credit("mail"))
        return await submit_claimed(*args, **kwargs)

    monkeypatch.setattr(engine.claims, "submit_claimed", submit_and_hear)
    async with settled(dispatcher, stream):
        await dispatcher.submit([a_new_job()])
        assert len(await jobs_of(stream, 0.05)) == 1

    assert rooms == [0]


@pytest.mark.parametrize("how", ["leaves", "is replaced", "wants nothing more"])
async def test_a_job_whose_worker_is_gone_by_then_is_anothers_uncharged(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    stream, other, submit_claimed = a_stream("w1"), a_stream("w2"), engine.claims.submit_claimed

    async def submit_and_lose(*args: Any, **kwargs: Any) -> Any:
        answer = await submit_claimed(*args, **kwargs)
        if how == "leaves":
            await dispatcher.disconnect(stream)
        elif how == "is replaced":
            dispatcher.connect(a_stream("w1", slots=0))
        else:
            dispatcher.update_credit(stream, received=0, free=[0], number=1)
        dispatcher.connect(other)
        return answer

    monkeypatch.setattr(engine.claims, "submit_claimed", submit_and_lose)
    async with settled(dispatcher, stream):
        [submitted] = await dispatcher.submit([a_new_job()])
        [claim] = await jobs_of(other)

    assert (claim.id, claim.attempt - claim.refunded) == (submitted.id, 1)
    assert not stream.held


async def test_a_repeated_submit_hands_it_out_once(engine: Engine, dispatcher: Dispatcher) -> None:
    stream = a_stream()
    job = a_new_job(id=Mint().ids([bucket_of_topic("mail", engine.jobs.buckets)])[0])
    async with settled(dispatcher, stream):
        answers = await asyncio.gather(*(dispatcher.submit([job]) for _ in range(5)))
        assert len(await jobs_of(stream)) == 1

    assert sorted(answer.created for [answer] in answers) == [False] * 4 + [True]
    assert {answer.id for [answer] in answers} == {job.id}


async def test_a_job_whose_id_was_another_ones_is_handed_out(engine: Engine, dispatcher: Dispatcher) -> None:
    """As after retention removed a job that this worker has not heard to be lost."""
    stream = a_stream()
    job = a_new_job(id=Mint().ids([bucket_of_topic("mail", engine.jobs.buckets)])[0])
    async with settled(dispatcher, stream):
        assert job.id is not None
        stream.held[job.id] = 1
        await dispatcher.submit([job])
        [claim] = await jobs_of(stream)

    assert claim.id == job.id


async def test_a_caller_who_hangs_up_leaves_no_claim_to_nobody(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, submit_claimed, is_under_way = a_stream(), engine.claims.submit_claimed, asyncio.Event()

    async def submit_slowly(*args: Any, **kwargs: Any) -> Any:
        is_under_way.set()
        await asyncio.sleep(0.02)
        return await submit_claimed(*args, **kwargs)

    monkeypatch.setattr(engine.claims, "submit_claimed", submit_slowly)
    async with settled(dispatcher, stream):
        call = asyncio.create_task(dispatcher.submit([a_new_job()]))
        await is_under_way.wait()
        call.cancel()
        assert len(await jobs_of(stream)) == 1


async def test_draining_waits_for_what_is_being_submitted(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, submit_claimed, is_under_way = a_stream(), engine.claims.submit_claimed, asyncio.Event()

    async def submit_slowly(*args: Any, **kwargs: Any) -> Any:
        answer = await submit_claimed(*args, **kwargs)
        is_under_way.set()
        await asyncio.sleep(0.05)
        return answer

    monkeypatch.setattr(engine.claims, "submit_claimed", submit_slowly)
    async with settled(dispatcher, stream):
        call = asyncio.create_task(dispatcher.submit([a_new_job()]))
        await is_under_way.wait()
        call.cancel()

    [job] = (await engine.jobs.list_page()).jobs
    assert (job.status, job.attempt - job.refunded) == (JobStatus.PENDING, 0)


async def test_what_was_never_sent_is_given_back_when_a_lock_on_the_table_is_gone(
    engine: Engine, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    [job] = await engine.jobs.submit([a_new_job()])
    stream = a_stream()
    dispatcher.connect(stream)
    release, locks = engine.claims.release, [Conflict("somebody holds a lock")] * 2

    async def locked_at_first(leases: Any) -> Any:
        if locks:
            raise locks.pop()
        return await release(leases)

    monkeypatch.setattr(engine.claims, "release", locked_at_first)
    async with running(dispatcher):
        await until(lambda: _is_running(engine, job.id))
        await dispatcher.disconnect(stream)

    given_back = await engine.jobs.get(job.id)
    assert (given_back.status, given_back.refunded) == (JobStatus.PENDING, 1)


async def _is_running(engine: Engine, job_id: UUID) -> bool:
    return (await engine.jobs.get(job_id)).status is JobStatus.RUNNING
