"""Does `pulse top` show what is so: as one page, as JSON, and live until q?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulse.cli.operate.top import _read_page, describe_source
from pulse.cli.operate.top_view import Page, draw_page
from pulse.cli.output import console
from pulse.engine.engine import Engine
from pulse.engine.workers import Workers
from pulse.model.errors import DatabaseUnreachable
from pulse.model.jobs import JobStatus
from pulse.model.statistics import Concern, ConcernKind, Overview, TopicFacts
from pulse.model.workers import Presence, WorkerSeen
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.wire.convert_watching import read_overview, write_overview
from tests.doors.command_line import call, call_json, run_on_terminal
from tests.doors.http_client import served_http
from tests.factories import submit_one
from tests.served import Served

NOW = datetime(2026, 7, 31, 9, 0, tzinfo=UTC)


def a_topic(name: str, pending: int = 0, dead: int = 0) -> TopicFacts:
    counts = {JobStatus.PENDING: pending, JobStatus.DEAD_LETTERED: dead}
    return TopicFacts(name, counts, True, NOW - timedelta(seconds=90), 2.5, 1234.5, 0.25)


def an_overview(topics: int = 1, workers: int = 1) -> Overview:
    return Overview(
        at=NOW,
        topics=[a_topic(f"mail{number}", pending=number) for number in range(topics)],
        workers=[
            WorkerSeen(f"w{number}", "", "pulse-python/1.0", ["mail"], 10, 10, NOW, NOW - timedelta(seconds=5))
            for number in range(workers)
        ],
        concerns=[Concern(ConcernKind.DEAD_LETTERS, "3 dead letters in \x1b[31mmail", topic="mail")],
        rate_in=3.0,
        rate_out=4.0,
        failing=None,
        broken_schedules=0,
        failing_alarms=0,
        schedules_overdue=timedelta(),
        alarms_overdue=timedelta(seconds=3),
    )


def drawn(page: Page, width: int = 120, height: int | None = None) -> list[str]:
    on = console()
    with on.capture() as captured:
        on.print(draw_page(page, width, height))
    return captured.get().splitlines()


def test_a_page_has_rates_topics_workers_and_what_needs_attention() -> None:
    text = "\n".join(drawn(Page("here", an_overview())))

    for words in ("here", "in 3.0/s", "out 4.0/s", "failing -", "10 of 10 slots busy", "1 min", "25.0%", "paused"):
        assert words in text
    assert "3 dead letters in \\x1b[31mmail" in text
    assert "1,234.5" in text
    assert "5 s" in text


def test_a_low_terminal_gets_what_fits_with_the_fullest_first() -> None:
    lines = drawn(Page("here", an_overview(topics=50, workers=50)), height=24)

    assert len(lines) <= 24
    assert next(line for line in lines if line.startswith("mail")).startswith("mail49")
    assert sum("… and" in line for line in lines) == 2


def test_with_nothing_there_it_says_so() -> None:
    text = "\n".join(drawn(Page("here", an_overview(topics=0, workers=0))))

    assert "There are no jobs yet." in text
    assert "No worker is connected." in text


async def test_a_database_that_goes_away_does_not_end_it(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    async def away() -> Overview:
        raise DatabaseUnreachable("gone for a while")

    monkeypatch.setattr(engine.statistics, "overview", away)
    page = await _read_page(engine, Page("here", an_overview()))

    text = "\n".join(drawn(page))
    assert "gone for a while" in text
    assert "mail0" in text  # what was seen last

    monkeypatch.undo()
    assert (await _read_page(engine, page)).problem == ""


def test_it_comes_back_from_the_wire_as_it_was() -> None:
    found = an_overview(topics=2)

    assert read_overview(write_overview(found)) == found


def test_a_concern_of_a_newer_server_keeps_its_text() -> None:
    message = write_overview(an_overview())
    message.concerns[0].kind = "new_kind"

    [concern] = read_overview(message).concerns

    assert (concern.kind, concern.text) == (ConcernKind.OTHER, an_overview().concerns[0].text)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in describe_source(Settings(database_url="postgresql://pulse:secret@host/shop"))


@pytest.fixture(params=["database", "server"])
def env(settings: Settings, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if request.param == "database":
        yield {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
        return
    served = Served(settings, count=1)
    try:
        yield {"PULSE_SERVER_URL": str(served.start().server_url)}
    finally:
        served.stop()


async def test_one_page_and_one_document(engine: Engine, database: Database, env: dict[str, str]) -> None:
    await submit_one(engine)
    here = Presence(name="w1", version="pulse-python/1", topics=["mail"], slots=5, busy=2, age=timedelta())
    await Workers(database).own_duty("w1", lambda _: here)()

    document = await asyncio.to_thread(call_json, "top", **env)
    shown = (await asyncio.to_thread(call, "top", "--once", **env)).output
    piped = (await asyncio.to_thread(call, "top", **env)).output

    assert [(each["topic"], each["counts"]) for each in document["topics"]] == [("mail", {"PENDING": 1})]
    assert [(each["name"], each["busy"]) for each in document["workers"]] == [("w1", 2)]
    for page in (shown, piped):
        assert "2 of 5 slots busy" in page
        assert "mail" in page


async def test_over_http_it_is_the_same(engine: Engine, settings: Settings) -> None:
    await submit_one(engine)
    expected = await engine.statistics.overview()

    async with served_http(settings) as http:
        found = await http.done("GET", "/v1/overview")

    assert set(found) == set(Overview.__struct_fields__)
    assert [(each["topic"], each["counts"]) for each in found["topics"]] == [("mail", {"PENDING": 1})]
    assert found["schedules_overdue"] == expected.schedules_overdue.total_seconds()


def test_on_a_terminal_it_goes_on_until_q(settings: Settings) -> None:
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}

    ended = run_on_terminal("top", typed="q", env=env)

    assert ended.exit_code == 0, ended.output
    assert "There are no jobs yet." in ended.text


def test_the_embedded_postgres_is_shown_by_its_folder(tmp_path: Path) -> None:
    settings = Settings(database_url=f"postgresql://pulse@/pulse?host={tmp_path}/postgres", state_dir=tmp_path)

    assert describe_source(settings) == f"the embedded Postgres in {tmp_path} (`pulse db dsn`), schema pulse"
