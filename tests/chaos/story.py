"""What happened in a run, in the order in which the database did it?

A trigger appends every move of every job to `chaos.history`, in the transaction that makes it. The moves of one job
are ordered by its row's lock, so the sequence is their true order. The notes of the processes stand beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from tests.chaos import notes
from tests.chaos.notes import Note

HISTORY = """
create schema chaos;
create table chaos.history (
    seq bigint generated always as identity primary key,
    at timestamptz not null,
    job_id uuid not null,
    was text,
    became text not null,
    lease_id bigint not null,
    attempt int not null,
    refunded int not null,
    worker text
);
create function chaos.append() returns trigger language plpgsql as $$
begin
    insert into chaos.history (at, job_id, was, became, lease_id, attempt, refunded, worker)
    values (
        clock_timestamp(), new.id, old.status, new.status, new.lease_id, new.attempt, new.refunded,
        case when new.status = 'RUNNING' then new.locked_by else old.locked_by end
    );
    return null;
end
$$;
create trigger append after insert or update of status on pulse.jobs for each row execute function chaos.append();
"""

# So that there is nearly always a claim on its way.
SLOW_CLAIMS = """
create function chaos.delay() returns trigger language plpgsql as $$begin perform pg_sleep(0.01); return null; end$$;
create trigger delay after update of status on pulse.jobs
    for each row when (new.status = 'RUNNING') execute function chaos.delay();
"""


@dataclass(frozen=True, slots=True)
class Move:
    at: float
    was: str | None
    became: str
    lease_id: int
    attempt: int
    refunded: int
    worker: str | None  # who holds the job from here on, or held it until here

    @property
    def pid(self) -> int:
        return pid_of(self.worker)


@dataclass(frozen=True, slots=True)
class Failure:
    """A row of pulse.attempts."""

    job_id: UUID
    lease_id: int
    worker: str
    ended_at: float
    error: str


@dataclass(frozen=True)
class Story:
    jobs: dict[UUID, dict[str, Any]]  # the rows as they are now
    moves: dict[UUID, list[Move]]
    failures: list[Failure]
    notes: list[Note]
    counts: Counter[str]  # by status, as the tallies say

    @property
    def starts(self) -> list[Note]:
        return [note for note in self.notes if note.kind == "start"]

    @property
    def claims(self) -> int:
        return sum(move.became == "RUNNING" for moves in self.moves.values() for move in moves)


def pid_of(worker: str | None) -> int:
    """A worker is named host:pid:token."""
    return int((worker or "?:0:?").split(":")[-2])


async def read_story(conn: asyncpg.Connection[Any], folder: Path) -> Story:
    moves: dict[UUID, list[Move]] = defaultdict(list)
    for row in await conn.fetch("select *, extract(epoch from at)::float8 as instant from chaos.history order by seq"):
        moves[row["job_id"]].append(
            Move(
                row["instant"],
                row["was"],
                row["became"],
                row["lease_id"],
                row["attempt"],
                row["refunded"],
                row["worker"],
            )
        )
    failed = await conn.fetch("select *, extract(epoch from ended_at)::float8 as instant from pulse.attempts")
    failures = [Failure(row["job_id"], row["lease_id"], row["worker"], row["instant"], row["error"]) for row in failed]
    return Story(await read_jobs(conn), dict(moves), failures, notes.read(folder), await _counts(conn))


async def read_jobs(conn: asyncpg.Connection[Any]) -> dict[UUID, dict[str, Any]]:
    return {row["id"]: dict(row) for row in await conn.fetch("select * from pulse.jobs")}


async def _counts(conn: asyncpg.Connection[Any]) -> Counter[str]:
    rows = await conn.fetch(
        """
        select status, sum(jobs)::bigint as jobs from (
            select status, jobs from pulse.counts
            union all select to_status, jobs from pulse.tallies where to_status is not null
            union all select from_status, -jobs from pulse.tallies where from_status is not null
        ) as moves group by status having sum(jobs) <> 0
        """
    )
    return Counter({row["status"]: row["jobs"] for row in rows})
