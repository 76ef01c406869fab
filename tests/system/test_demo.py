"""Does the demo end by itself, add up, and leave behind what it says?"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from pulse.cli.dev.demo_shop import JOBS
from pulse.store.embedded import server as embedded
from pulse.store.embedded.binaries import find_binaries
from tests.doors.command_line import run_on_terminal, run_process

if TYPE_CHECKING:
    from pulse.settings import Settings

pytestmark = pytest.mark.slow
SUBMITTED = sum(JOBS.values())


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="demo", dir="/tmp"))
    yield path
    embedded.stop(path)
    shutil.rmtree(path)


@pytest.mark.skipif(not find_binaries(), reason="no Postgres binaries on this machine")
def test_without_a_terminal_it_starts_a_postgres_and_says_what_to_try_next(folder: Path) -> None:
    ended = run_process("demo", "--state-dir", folder)

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    assert f"{SUBMITTED:,} of {SUBMITTED:,} finished" in ended.stdout
    assert embedded.running(folder) is None
    hints = [shlex.split(line)[1:] for line in ended.stdout.splitlines() if line.startswith("  pulse ")]
    assert hints[-1][-2:] == ["server", "--open"]
    for hint in hints[:-1]:
        tried = run_process(*hint)
        assert tried.returncode == 0, tried.stderr
        assert "mail" in tried.stdout


def test_the_summary_adds_up(settings: Settings) -> None:
    ended = run_process("demo", "--json", PULSE_DATABASE_URL=str(settings.database_url))
    left = run_process(
        "topics", "list", "--json", PULSE_DATABASE_URL=str(settings.database_url), PULSE_SCHEMA="pulse_demo"
    )

    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    topics = {topic.pop("topic"): topic for topic in document["topics"]}
    assert document["submitted"] == SUBMITTED
    assert sum(topic["completed"] + topic["dead_lettered"] for topic in topics.values()) == SUBMITTED
    for topic in json.loads(left.stdout)["topics"]:
        counted = {name: topic["counts"][name.upper()] for name in ("completed", "dead_lettered")}
        assert counted.items() <= topics[topic["topic"]].items()
        assert 0 < counted["dead_lettered"] < topics[topic["topic"]]["retried"]


def test_on_a_terminal_it_draws_bars(settings: Settings) -> None:
    ended = run_on_terminal("demo", env={"PULSE_DATABASE_URL": str(settings.database_url)})

    assert ended.exit_code == 0
    assert "━" in ended.output
    assert re.search(r"total +[\d,]+ +\d+ +\d+", ended.text)


async def test_it_leaves_alone_a_schema_that_is_not_its_own(settings: Settings) -> None:
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("drop schema if exists pulse_demo cascade; create schema pulse_demo")
    await conn.execute("create table pulse_demo.precious ()")

    ended = run_process("demo", PULSE_DATABASE_URL=str(settings.database_url))

    assert ended.returncode == 4
    assert "not from Pulse" in ended.stderr
    assert await conn.fetchval("select to_regclass('pulse_demo.precious') is not null")
    await conn.execute("drop schema pulse_demo cascade")
    await conn.close()
