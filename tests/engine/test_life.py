"""Random lives: whatever is done to jobs in whatever order, the invariants hold after every step."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import Conflict, NotFound
from pulse.model.jobs import FINISHED, Claim, Job, JobFilter, JobStatus, Lease, Outcome, ReportStatus
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.factories import a_new_job, a_report, lease_of

TOPICS = ("mail", "sms")


class Life:
    """A run of random events over a few jobs, and what must be true of it."""

    def __init__(self, engine: Engine, clock: FrozenClock, conn: Connection, seed: int) -> None:
        self.engine, self.jobs, self.clock, self.conn = engine, engine.jobs, clock, conn
        self.random = random.Random(seed)
        self.claims: list[Claim] = []  # every claim ever made, stale ones included
        self.accepted: dict[tuple[UUID, int], Outcome] = {}  # claims whose report was accepted
        self.last: dict[UUID, Job] = {}

    async def step(self) -> str:
        event = self.random.choice(
            [self.submit, self.claim, self.claim, self.report, self.report, self.release, self.heartbeat, self.cancel,
             self.replay, self.run_now, self.advance, self.promote, self.reap, self.pause, self.prune, self.tally]
        )  # fmt: skip
        await event()
        return event.__name__

    async def submit(self) -> None:
        await self.jobs.submit(
            [
                a_new_job(
                    topic=self.random.choice(TOPICS),
                    priority=self.random.choice([-1, 0, 0, 5]),
                    delay=self.random.choice([None, timedelta(seconds=20)]),
                    max_attempts=self.random.choice([1, 2, 3]),
                    unique_key=self.random.choice([None, None, "k"]),
                    deadline=self.random.choice([None, None, self.clock.instant + timedelta(minutes=2)]),
                )
                for _ in range(self.random.randint(1, 4))
            ]
        )

    async def claim(self) -> None:
        claims = await self.engine.claims.claim(
            self.random.choice(TOPICS), worker="w1", slots=self.random.randint(1, 3)
        )
        self.claims += claims

    def some_claims(self) -> list[Claim]:
        """Live and stale ones alike."""
        return self.random.sample(self.claims, min(3, len(self.claims)))

    async def report(self) -> None:
        reports = [a_report(claim, self.random.choice(list(Outcome))) for claim in self.some_claims()]
        for report, answer in zip(reports, await self.engine.claims.report(reports), strict=True):
            if answer is ReportStatus.ACCEPTED:
                assert (report.id, report.lease_id) not in self.accepted, "one claim, one accepted report"
                self.accepted[report.id, report.lease_id] = report.outcome

    async def release(self) -> None:
        await self.engine.claims.release([lease_of(claim) for claim in self.some_claims()])

    async def heartbeat(self) -> None:
        await self.engine.claims.heartbeat([Lease(claim.id, claim.lease_id) for claim in self.some_claims()])

    async def cancel(self) -> None:
        if ids := list(self.last):
            await self.jobs.cancel_many([self.random.choice(ids)])

    async def replay(self) -> None:
        await self.jobs.replay_matching(JobFilter(), limit=2)

    async def run_now(self) -> None:
        if ids := list(self.last):
            with suppress(Conflict, NotFound):
                await self.jobs.run_now(self.random.choice(ids))

    async def advance(self) -> None:
        await self.clock.advance(timedelta(seconds=self.random.choice([1, 10, 40])))

    async def promote(self) -> None:
        await self.engine.duties.promote()

    async def reap(self) -> None:
        await self.engine.duties.reap()

    async def pause(self) -> None:
        topic = self.random.choice(TOPICS)
        await (self.jobs.pause(topic) if self.random.random() < 0.3 else self.jobs.resume(topic))

    async def prune(self) -> None:
        await self.engine.duties.prune()

    async def tally(self) -> None:
        await self.engine.duties.tally()

    async def check(self) -> None:
        jobs = {job.id: job for job in (await self.jobs.list_page(limit=500)).jobs}
        for job_id, job in jobs.items():
            self.check_one(job, self.last.get(job_id))
        holders = [(job.topic, job.unique_key) for job in jobs.values() if job.key_held_until is not None]
        assert len(holders) == len(set(holders)), "a unique key has one holder"
        await self.check_counts()
        self.last = jobs

    def check_one(self, job: Job, before: Job | None) -> None:
        assert (job.status is JobStatus.RUNNING) == (job.lease_until is not None)
        assert (job.status in FINISHED) == (job.finished_at is not None)
        assert 0 <= job.attempt - job.refunded <= job.max_attempts
        if job.unique_key and job.status not in FINISHED:
            assert job.key_held_until is not None
        if before:
            assert job.lease_id >= before.lease_id
            assert job.attempt >= before.attempt
            assert job.refunded >= before.refunded
            if before.status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
                assert job == before, "finished is final"

    async def check_counts(self) -> None:
        rows = await self.conn.fetch("select topic, status, count(*) as jobs from pulse.jobs group by topic, status")
        truth = {(row["topic"], row["status"]): row["jobs"] for row in rows}
        told = {
            (each.topic, str(status)): jobs for each in await self.jobs.counts() for status, jobs in each.counts.items()
        }
        assert told == truth, "the counts are exact at every instant"


@pytest.mark.parametrize("seed", range(12))
async def test_the_invariants_hold_after_every_step(
    engine: Engine, clock: FrozenClock, conn: Connection, seed: int
) -> None:
    life = Life(engine, clock, conn, seed)
    trace: list[str] = []
    for _ in range(120):
        trace.append(await life.step())
        try:
            await life.check()
        except AssertionError as error:
            error.add_note(f"seed {seed}, after {' '.join(trace)}")
            raise


async def test_nothing_is_lost_or_done_twice_by_many_at_once(engine: Engine, conn: Connection) -> None:
    """Four consumers, a reaper and a promoter over one topic, with failures, releases and snoozes on the way."""
    await engine.jobs.submit([a_new_job(max_attempts=50) for _ in range(400)])
    completed: list[UUID] = []

    async def consume(seed: int) -> None:
        chance = random.Random(seed)
        while len(completed) < 400:
            claims = await engine.claims.claim("mail", worker=f"w{seed}", slots=20)
            given_back = [claim for claim in claims if chance.random() < 0.1]
            await engine.claims.release([lease_of(claim) for claim in given_back])
            reports = [
                a_report(claim, Outcome.FAIL if chance.random() < 0.2 else Outcome.COMPLETE, **_soon(chance))
                for claim in claims
                if claim not in given_back
            ]
            answers = await engine.claims.report(reports)
            completed.extend(
                report.id
                for report, answer in zip(reports, answers, strict=True)
                if report.outcome is Outcome.COMPLETE and answer is ReportStatus.ACCEPTED
            )
            await engine.duties.promote()
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*(consume(seed) for seed in range(4)))

    assert len(completed) == len(set(completed)) == 400
    [row] = await conn.fetch("select count(*) from pulse.jobs where status = 'COMPLETED'")
    assert row[0] == 400


def _soon(chance: random.Random) -> dict[str, timedelta]:
    return {"delay": timedelta(milliseconds=chance.randint(0, 5))}
