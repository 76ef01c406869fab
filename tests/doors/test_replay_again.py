"""A replay of many touches each job once, also if what is replayed dies again at once: through every door."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from functools import partial
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import JobFilter, JobStatus, Outcome
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.jobs import changes
from tests.doors.command_line import call_json
from tests.doors.dashboard_client import page, post
from tests.doors.http_client import served_http
from tests.factories import a_new_job, a_report
from tests.served import Served

DEAD = 23
BATCH = 5  # jobs of one step, so that there are several

# As if workers were so quick that a job is dead again before anyone looks. How often it was replayed: its progress.
DIES_AGAIN = """
create function pulse.die_again() returns trigger language plpgsql as $$
begin
    new.status := 'DEAD_LETTERED';
    new.finished_at := clock_timestamp();
    new.progress := to_jsonb(coalesce(old.progress, '0')::int + 1);
    return new;
end
$$;
create trigger die_again before update on pulse.jobs for each row
    when (old.status = 'DEAD_LETTERED' and new.status = 'PENDING') execute function pulse.die_again();
"""


@pytest.fixture
async def dead(settings: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[UUID]]:
    """Jobs that are dead, and that die again as soon as they are replayed."""
    monkeypatch.setattr("pulse.cli.jobs.commands.BATCH", BATCH)
    monkeypatch.setattr("pulse.engine.jobs.bulk.PAGE_LIMIT", BATCH)
    monkeypatch.setattr("pulse.doors.dashboard.jobs.bulk.STEP", BATCH)
    await engine.jobs.submit([a_new_job() for _ in range(DEAD)])
    for claim in await engine.claims.claim("mail", worker="w1", slots=DEAD):
        await engine.claims.report([a_report(claim, Outcome.DISCARD)])
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute(DIES_AGAIN)
    yield [row["id"] for row in await conn.fetch("select id from pulse.jobs")]
    await conn.execute("drop function pulse.die_again cascade")
    await conn.close()


async def replays(settings: Settings) -> list[int]:
    """How often each of them was replayed."""
    conn = await asyncpg.connect(settings.database_url)
    rows = await conn.fetch("select coalesce(progress, '0')::int as replays from pulse.jobs")
    await conn.close()
    return [row["replays"] for row in rows]


@pytest.mark.parametrize("chosen", [["--all"], ["--topic", "mail"], ["--error", "wanted"]], ids=" ".join)
async def test_on_the_command_line(settings: Settings, dead: list[UUID], chosen: list[str]) -> None:
    env = {"PULSE_DATABASE_URL": settings.database_url, "PULSE_SCHEMA": settings.schema}

    answer = await asyncio.to_thread(call_json, "jobs", "replay", *chosen, "--yes", **env)

    assert answer == {"replayed": DEAD, "left": 0, "next": None}
    assert await replays(settings) == [1] * DEAD


@pytest.mark.parametrize("chosen", [["--all"], ["--topic", "mail"]], ids=" ".join)
async def test_on_the_command_line_through_a_server(settings: Settings, dead: list[UUID], chosen: list[str]) -> None:
    served = Served(settings, count=1)
    try:
        url = str((await asyncio.to_thread(served.start)).server_url)
        answer = await asyncio.to_thread(call_json, "jobs", "replay", *chosen, "--yes", PULSE_SERVER_URL=url)
    finally:
        await asyncio.to_thread(served.stop)

    assert answer == {"replayed": DEAD, "left": 0, "next": None}
    assert await replays(settings) == [1] * DEAD


@pytest.mark.parametrize("chosen", [["--all"], ["--error", "wanted"]], ids=" ".join)
async def test_on_the_command_line_what_a_limit_left_comes_next(
    settings: Settings, dead: list[UUID], chosen: list[str]
) -> None:
    """Those that died again are the most recent ones, and would be replayed again and again by the same command."""
    env = {"PULSE_DATABASE_URL": settings.database_url, "PULSE_SCHEMA": settings.schema}
    replay = partial(call_json, "jobs", "replay", *chosen, "--yes", **env)

    first = await asyncio.to_thread(replay, "--limit", 12)
    assert (first["replayed"], first["left"]) == (12, DEAD - 12)
    assert sorted(await replays(settings)) == [0] * (DEAD - 12) + [1] * 12

    second = await asyncio.to_thread(replay, "--limit", DEAD, "--after", first["next"])
    assert second == {"replayed": DEAD - 12, "left": 0, "next": None}
    assert await replays(settings) == [1] * DEAD


async def test_on_the_dashboard(settings: Settings, dead: list[UUID]) -> None:
    async with served_http(settings) as http:
        preview = await page(http, "/jobs/bulk?status=dead_lettered")
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
        for _ in range(DEAD):
            answer = (await post(http, "/jobs/bulk", **fields)).text
            fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer))
            if not fields:
                break

    assert f"{DEAD} replayed" in answer
    assert await replays(settings) == [1] * DEAD


async def test_by_one_call(settings: Settings, engine: Engine, dead: list[UUID]) -> None:
    swept = await engine.jobs.replay_matching(JobFilter())

    assert (swept.done, swept.refused, swept.next) == (DEAD, 0, None)
    assert await replays(settings) == [1] * DEAD


async def test_a_replay_that_is_repeated_because_its_answer_was_lost(
    settings: Settings, engine: Engine, dead: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, the jobs have died again, and nobody knows."""
    replay = changes.replay_jobs
    lost = iter([True, False])

    async def without_answer(conn: Connection, **given: object) -> object:
        moved = await replay(conn, **given)  # type: ignore[arg-type]
        if next(lost, False):
            raise ConnectionResetError
        return moved

    monkeypatch.setattr(changes, "replay_jobs", without_answer)

    outcomes = await engine.jobs.replay_many(dead)

    assert await replays(settings) == [1] * DEAD
    assert {str(problem).partition(" became ")[2] for problem in outcomes.values()} == {
        "DEAD_LETTERED after this began, so it was left alone"
    }


async def test_a_replay_goes_on_where_the_one_before_it_ended(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(3)])
    claims = await engine.claims.claim("mail", worker="w1", slots=3)
    await engine.claims.report([a_report(claim, Outcome.DISCARD) for claim in claims])
    page = await engine.jobs.list_heads(JobFilter(status=JobStatus.DEAD_LETTERED), limit=1)

    swept = await engine.jobs.replay_matching(JobFilter(), after=page.next)

    assert swept.done == 2
