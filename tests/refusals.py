"""A trigger of somebody's on pulse.jobs that refuses one move of one job, with whatever code a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from pulse.settings import Settings
from tests.waiting import connected

TRIGGER = """
create schema rules;
create table rules.refused (id uuid, move text, code text);
create function rules.move(old pulse.jobs, new pulse.jobs) returns text language sql return case
    when old.status = 'RUNNING' and new.status = 'RUNNING' and old.lease_id = new.lease_id
        and old.progress is not distinct from new.progress then 'heartbeat'
    when old.status = 'RUNNING' and new.status = 'COMPLETED' then 'complete'
    when old.status = 'RUNNING' and new.last_error = 'worker lease expired' then 'reap'
    when old.status in ('SCHEDULED', 'RETRYING') and new.status = 'PENDING' then 'promote'
    when old.status in ('SCHEDULED', 'PENDING', 'RETRYING') and new.status = 'DEAD_LETTERED' then 'expire'
end;
create function rules.refuse() returns trigger language plpgsql as $$ declare code text; begin
    select refused.code into code from rules.refused where id = new.id and move = rules.move(old, new);
    if found then
        raise exception 'not this one' using errcode = code;
    end if;
    return new;
end $$;
create trigger refuse before update on pulse.jobs for each row execute function rules.refuse();
"""


class Refusals:
    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def refuse(self, job_id: UUID, move: str, code: str) -> None:
        await self._conn.execute("insert into rules.refused values ($1, $2, $3)", job_id, move, code)

    async def lift(self) -> None:
        await self._conn.execute("delete from rules.refused")


@asynccontextmanager
async def refusing(settings: Settings) -> AsyncIterator[Refusals]:
    async with connected(settings.database_url) as conn:
        await conn.execute(TRIGGER)
        try:
            yield Refusals(conn)
        finally:
            await conn.execute("drop schema rules cascade")
