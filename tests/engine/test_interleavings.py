"""Two and three connections at once, in every order: the result is always one that a single row would allow.

Each actor opens a transaction, runs one statement, and commits. Every interleaving of those steps is tried. What is
allowed is found by running the same actors one after another, in every permutation. An actor that skipped a locked
row comes back to it after the others are done, as the loops and workers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs.claims import _answer_to  # what the engine makes of one statement's answer
from pulse.engine.jobs.enqueue import submit_placed
from pulse.engine.jobs.low_water_marks import START, LowWaterMarks
from pulse.model.ids import bucket_of_id, bucket_of_topic
from pulse.model.jobs import Claim, JobStatus, Lease, Outcome, ReportStatus
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.installation import read_clock
from pulse.store.jobs import changes, duties, lookups
from pulse.store.jobs import claims as claims_store
from pulse.store.jobs.submits import PlacedJob
from pulse.store.statistics import counts as counts_store
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_job, a_new_job, a_report, claim_one, submit_one

LEASE = timedelta(seconds=30)
SKIPPED = "skipped"  # the row was locked: come back to it


class Scene:
    """One job, known to all actors."""

    def __init__(self, job_id: UUID, lease_id: int, buckets: int) -> None:
        self.job_id = self.id = job_id
        self.lease_id = lease_id
        self.bucket = bucket_of_id(job_id)
        self.buckets = buckets


Act = Callable[[Connection, Scene], Awaitable[object]]


async def _answer(conn: Connection, scene: Scene, moved: object) -> object:
    if moved:
        return "accepted"
    rows = await lookups.read_leases(conn, bucket=scene.bucket, ids=[scene.job_id])
    answer = _answer_to((scene.job_id, scene.lease_id), rows.get(scene.job_id))
    return SKIPPED if answer is ReportStatus.BUSY else answer.value


async def claim(conn: Connection, scene: Scene) -> object:
    claims = await claims_store.claim_jobs(
        conn, bucket=scene.bucket, topic="mail", workers=["w9"], limit=1, lease=LEASE, mark=START
    )
    return "claimed" if claims else SKIPPED


async def pause(conn: Connection, scene: Scene) -> object:
    await changes.pause_topic(conn, topic="mail", reason="")
    return "paused"


async def cancel(conn: Connection, scene: Scene) -> object:
    moved = await changes.cancel_jobs(conn, bucket=scene.bucket, ids=[scene.job_id], reason="cancelled")
    return "cancelled" if moved else SKIPPED


async def replay(conn: Connection, scene: Scene) -> object:
    before = await read_clock(conn)
    moved, _ = await changes.replay_jobs(conn, bucket=scene.bucket, ids=[scene.job_id], before=before)
    return "replayed" if moved else SKIPPED


async def promote(conn: Connection, scene: Scene) -> object:
    moved, _ = await duties.promote_jobs(conn, bucket=scene.bucket, limit=10)
    return "promoted" if moved else SKIPPED


async def reap(conn: Connection, scene: Scene) -> object:
    now = await read_clock(conn)
    moved = await duties.reap_jobs(conn, bucket=scene.bucket, limit=10, ended_before=now)
    return "reaped" if moved else SKIPPED


def _report(outcome: Outcome) -> Act:
    async def report(conn: Connection, scene: Scene) -> object:
        item = a_report(scene, outcome)  # type: ignore[arg-type]
        call = claims_store.complete_jobs if outcome is Outcome.COMPLETE else claims_store.fail_jobs
        moved: object
        try:
            moved = await call(conn, bucket=scene.bucket, reports=[item])
        except asyncpg.InFailedSQLTransactionError:
            # It waited, gave up, and in a transaction of its own would have gone on with complete_free_jobs.
            await conn.execute("rollback; begin")
            moved = await _complete_free(conn, scene, item)
        return await _answer(conn, scene, moved)

    return report


async def _complete_free(conn: Connection, scene: Scene, item: Any) -> object:
    return await conn.rows(
        "complete_free_jobs",
        bucket=scene.bucket,
        ids=[item.id],
        lease_ids=[item.lease_id],
        results=[item.result],
    )


async def complete_own(conn: Connection, scene: Scene) -> object:
    """A handler that completes its job with its own work."""
    [row] = await conn.fetch("select pulse.complete($1, $2, 'true')", scene.job_id, scene.lease_id)
    return await _answer(conn, scene, row[0])


async def fence(conn: Connection, scene: Scene) -> object:
    [row] = await conn.fetch("select pulse.fence($1, $2)", scene.job_id, scene.lease_id)
    return await _answer(conn, scene, row[0])


async def heartbeat(conn: Connection, scene: Scene) -> object:
    leases = [Lease(scene.job_id, scene.lease_id)]
    return await _answer(
        conn, scene, await claims_store.heartbeat_jobs(conn, bucket=scene.bucket, leases=leases, lease=LEASE)
    )


async def release(conn: Connection, scene: Scene) -> object:
    moved, _ = await claims_store.release_jobs(conn, bucket=scene.bucket, leases=[Lease(scene.job_id, scene.lease_id)])
    return await _answer(conn, scene, moved)


async def hold(conn: Connection, scene: Scene) -> object:
    """A handler's own transaction, which locks its job's row as a fence does."""
    await conn.fetch(
        "select 1 from pulse.jobs where bucket = $1 and id = $2 for no key update", scene.bucket, scene.job_id
    )
    return "held"


def submit(key: str, number: int) -> Act:
    async def submit_one(conn: Connection, scene: Scene) -> object:
        bucket = bucket_of_topic("keyed", scene.buckets)
        placed = PlacedJob(bucket, UUID(int=(number << 64) | bucket), a_new_job(topic="keyed", unique_key=key))
        [answer] = await submit_placed(conn, [placed])
        return "created" if answer.created else "found"

    return submit_one


complete, fail, snooze = _report(Outcome.COMPLETE), _report(Outcome.FAIL), _report(Outcome.SNOOZE)

CASES: dict[str, tuple[JobStatus, timedelta, tuple[Act, ...]]] = {
    "claim×claim": (JobStatus.PENDING, timedelta(), (claim, claim)),
    "claim×pause": (JobStatus.PENDING, timedelta(), (claim, pause)),
    "claim×cancel": (JobStatus.PENDING, timedelta(), (claim, cancel)),
    "complete×reap": (JobStatus.RUNNING, timedelta(minutes=1), (complete, reap)),
    "fail×reap": (JobStatus.RUNNING, timedelta(minutes=1), (fail, reap)),
    "heartbeat×reap": (JobStatus.RUNNING, timedelta(minutes=1), (heartbeat, reap)),
    "report×report": (JobStatus.RUNNING, timedelta(), (complete, fail)),
    "snooze×cancel": (JobStatus.RUNNING, timedelta(), (snooze, cancel)),
    "release×reap": (JobStatus.RUNNING, timedelta(minutes=1), (release, reap)),
    "replay×report": (JobStatus.DEAD_LETTERED, timedelta(), (replay, complete)),
    "promote×cancel": (JobStatus.SCHEDULED, timedelta(minutes=5), (promote, cancel)),
    "submit×submit": (JobStatus.PENDING, timedelta(), (submit("k", 1), submit("k", 2))),
    "claim×claim×cancel": (JobStatus.PENDING, timedelta(), (claim, claim, cancel)),
    "complete×reap×heartbeat": (JobStatus.RUNNING, timedelta(minutes=1), (complete, reap, heartbeat)),
    "release×cancel×reap": (JobStatus.RUNNING, timedelta(minutes=1), (release, cancel, reap)),
    "own complete×reap": (JobStatus.RUNNING, timedelta(minutes=1), (complete_own, reap)),
    "own complete×report": (JobStatus.RUNNING, timedelta(), (complete_own, complete)),
    "fence×cancel": (JobStatus.RUNNING, timedelta(), (fence, cancel)),
    "submit×submit×submit": (JobStatus.PENDING, timedelta(), tuple(submit("k", n) for n in (1, 2, 3))),
}


def orders(actors: int) -> Iterator[tuple[int, ...]]:
    """Every interleaving of two steps each: act, then commit."""
    yield from sorted(set(permutations([actor for actor in range(actors) for _ in range(2)])))


async def set_scene(engine: Engine, clock: FrozenClock, status: JobStatus, later: timedelta) -> Scene:
    job = await a_job(engine, clock, status)
    await clock.advance(later)
    return Scene(job.id, max(job.lease_id, 1), engine.jobs.buckets)


async def final_state(engine: Engine, scene: Scene, results: list[object]) -> tuple[Any, ...]:
    job = await engine.jobs.get(scene.job_id)
    fence = job.lease_id - scene.lease_id
    row = (job.status, job.attempt, job.refunded, fence, job.last_error, job.result, job.lease_until is None)
    attempts = tuple(attempt.error for attempt in await engine.jobs.attempts(scene.job_id))
    counts = tuple((count.topic, tuple(sorted(count.counts.items()))) for count in await engine.jobs.counts())
    return tuple(results), row, attempts, counts


async def run_serially(engine: Engine, conns: list[Connection], scene: Scene, acts: tuple[Act, ...], order) -> Any:  # type: ignore[no-untyped-def]
    results: list[object] = [None] * len(acts)
    for actor in order:
        results[actor] = await acts[actor](conns[actor], scene)
    return await final_state(engine, scene, results)


async def run_interleaved(engine: Engine, conns: list[Connection], scene: Scene, acts, order) -> Any:  # type: ignore[no-untyped-def]
    results: list[object] = [None] * len(acts)
    begun: dict[int, asyncio.Task[object]] = {}
    for actor in order:
        if actor not in begun:
            await conns[actor].execute("begin")
            begun[actor] = asyncio.create_task(acts[actor](conns[actor], scene))
            await _settle(begun[actor])
        else:
            await _finish(actor, begun, conns, results)
    while waiting := [task for actor, task in begun.items() if results[actor] is None]:
        await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        for actor in begun:  # those that waited for another to commit
            await _finish(actor, begun, conns, results)
    for actor, result in enumerate(results):
        if result == SKIPPED:
            results[actor] = await acts[actor](conns[actor], scene)
    return await final_state(engine, scene, results)


async def _settle(task: asyncio.Task[object]) -> None:
    """Until the statement is done, or is plainly waiting for another transaction."""
    await asyncio.wait([task], timeout=0.1)


async def _finish(actor: int, begun: dict[int, Any], conns: list[Connection], results: list[object]) -> None:
    """Commit, if the statement got through; one that waits is finished after the others."""
    if begun[actor].done() and results[actor] is None:
        results[actor] = begun[actor].result()
        await conns[actor].execute("commit")


async def reset(settings: Settings, clock: FrozenClock) -> None:
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("truncate pulse.jobs, pulse.attempts, pulse.pauses, pulse.tallies, pulse.counts")
    await conn.close()


@pytest.mark.parametrize(
    "with_handler",
    [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.slow])],
    ids=["alone", "against a handler's transaction"],
)
@pytest.mark.parametrize("case", CASES)
async def test_every_order_is_one_a_single_row_allows(
    engine: Engine, settings: Settings, clock: FrozenClock, case: str, with_handler: bool
) -> None:
    status, later, acts = CASES[case]
    if with_handler and len(acts) == 3:
        acts = acts[:2]  # three actors in all: 90 orders, not 2,520
    acts = (*acts, hold) if with_handler else acts
    async with AsyncExitStack() as stack:
        conns = [await stack.enter_async_context(open_connection(settings)) for _ in acts]
        allowed = []
        for order in permutations(range(len(acts))):
            await reset(settings, clock)
            scene = await set_scene(engine, clock, status, later)
            allowed.append(await run_serially(engine, conns, scene, acts, order))

        for order in orders(len(acts)):
            await reset(settings, clock)
            scene = await set_scene(engine, clock, status, later)
            found = await run_interleaved(engine, conns, scene, acts, order)
            assert found in allowed, f"order {order} gave {found}, which no order of whole transactions gives"


async def test_a_submit_committed_long_after_its_time_is_claimed_all_the_same(
    engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    """Its ready_at lies 60 s behind the mark that claims have moved past."""
    engine.claims._marks = LowWaterMarks()
    async with open_connection(settings) as late:
        await late.execute("begin")
        [row] = await late.fetch("select pulse.enqueue('mail', '{}') as id")
        await clock.advance(timedelta(seconds=60))
        for _ in range(3):
            await engine.jobs.submit([a_new_job()])
            await claim_one(engine)
        await late.execute("commit")

        async with asyncio.timeout(30):
            while not (claims := await engine.claims.claim("mail", worker="w1", slots=10)):
                await asyncio.sleep(0)

    assert [claim.id for claim in claims] == [row["id"]]


async def test_a_backlog_does_not_hide_a_late_commit(engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    engine.claims._marks = LowWaterMarks()
    async with open_connection(settings) as late:
        await late.execute("begin")
        [row] = await late.fetch("select pulse.enqueue('mail', '{}') as id")
        await clock.advance(MINUTE)
        await engine.jobs.submit([a_new_job() for _ in range(5_000)])
        await claim_one(engine)
        await late.execute("commit")

        async with asyncio.timeout(30):
            while row["id"] != (await claim_one(engine)).id:
                await asyncio.sleep(0)


# --- rows that change between a claim's snapshot and its lock

STILL_PENDING = {
    "a unique key that was let go": "set key_held_until = null",
    "another priority": "set priority = -5",
    "claimed and released": "set attempt = attempt + 1, refunded = refunded + 1, lease_id = lease_id + 2",
}

IS_WAITING = """
select exists (
    select from pg_locks join pg_database on pg_database.oid = pg_locks.database
    where datname = current_database() and locktype = 'advisory' and not granted
)
"""


@asynccontextmanager
async def a_claim_stopped_after_its_snapshot(
    settings: Settings, clock: FrozenClock, slots: int
) -> AsyncIterator[tuple[asyncio.Task[list[Claim]], asyncpg.Connection[Any]]]:
    """A claim that has its snapshot and waits at the first row with a deadline; and the connection it waits for."""
    bucket = bucket_of_topic("mail", settings.buckets)
    await clock._conn.execute(
        "create or replace function pulse.now() returns timestamptz language plpgsql stable as $$begin "
        f"perform pg_advisory_xact_lock_shared(1); return timestamptz '{clock.instant.isoformat()}'; end$$"
    )
    other = await asyncpg.connect(settings.database_url)
    async with open_connection(settings) as conn:
        given: Any = {"bucket": bucket, "workers": ["w1"], "limit": slots, "lease": LEASE, "mark": START}
        await claims_store.claim_jobs(conn, topic="planned before", **given)  # making a plan asks for the time, too
        await other.execute("select pg_advisory_lock(1)")
        claiming = asyncio.create_task(claims_store.claim_jobs(conn, topic="mail", **given))
        while not await other.fetchval(IS_WAITING):
            assert not claiming.done()
            await asyncio.sleep(0.005)
        yield claiming, other
    await other.close()


async def counted(conn: Connection) -> tuple[dict[JobStatus, int], dict[JobStatus, int]]:
    """What the counts say of topic mail, and what the rows say."""
    rows = await conn.fetch("select status, count(*) as jobs from pulse.jobs where topic = 'mail' group by status")
    return (await counts_store.count_jobs(conn)).get("mail", {}), {
        JobStatus(row["status"]): row["jobs"] for row in rows
    }


@pytest.mark.parametrize("change", STILL_PENDING)
async def test_a_claim_counts_what_it_moved(
    engine: Engine, settings: Settings, clock: FrozenClock, conn: Connection, change: str
) -> None:
    """A row that was changed meanwhile is locked in its newest version, which the claim cannot see, and so not move."""
    first = await submit_one(engine, deadline=clock.instant + MINUTE, priority=1)
    second = await submit_one(engine)

    async with a_claim_stopped_after_its_snapshot(settings, clock, slots=2) as (claiming, other):
        await other.execute(f"update pulse.jobs {STILL_PENDING[change]} where id = $1", second)
        await other.execute("select pg_advisory_unlock(1)")
        claims = await claiming

    assert [claim.id for claim in claims] == [first]
    assert await counted(conn) == ({JobStatus.PENDING: 1, JobStatus.RUNNING: 1},) * 2
    assert [claim.id for claim in await engine.claims.claim("mail", worker="w1", slots=2)] == [second]
