"""Somebody's tests, run by a pytest of their own in a folder of their own, with the `pulse` fixture."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import asyncpg
import pytest

from pulse.testing import PulseFixture
from tests.conftest import recreate_database

USERS = Path(__file__).with_name("plugin_users")
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"


class Outcome(NamedTuple):
    passed: list[str]
    said: dict[str, str]  # by the tests that did not pass


def run_users_tests(folder: Path, *options: str, **env: str) -> Outcome:
    report = folder / "report.xml"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *options],
        cwd=folder,
        env=clean_environment() | env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    return Outcome(
        passed=[case.attrib["name"] for case in cases if not len(case)],
        said={case.attrib["name"]: "".join(part.text or "" for part in case) for case in cases if len(case)},
    )


def clean_environment() -> dict[str, str]:
    """Nothing of the run around this one, and no database."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PULSE_", "DATABASE"))}


def names_of_tests(text: str) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))


def move_in(name: str, folder: Path) -> str:
    """Tests of ours become somebody's: their application is the module beside them."""
    source = (USERS / name).read_text().replace("from tests.system.plugin_users import shop", "import shop")
    (folder / f"test_{name}").write_text(source)
    return source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(INI)
    shutil.copy(USERS / "shop.py", tmp_path)
    return tmp_path


@pytest.fixture
def url(worker_id: str) -> str:
    return asyncio.run(recreate_database(f"plugin_{worker_id}"))


def test_what_the_fixture_promises(folder: Path, url: str) -> None:
    source = move_in("passing.py", folder)

    outcome = run_users_tests(folder, PULSE_TEST_DATABASE_URL=url)

    assert not outcome.said, next(iter(outcome.said.values()))
    assert {name.partition("[")[0] for name in outcome.passed} == names_of_tests(source)


def test_a_given_database_is_left_as_it_was(folder: Path, url: str) -> None:
    """Its own schema of the usual name, too: it may hold what somebody needs."""
    (folder / "test_one.py").write_text(
        "import shop\ndef test_one(pulse):\n    shop.send_receipt.enqueue(1)\n    assert pulse.schema != 'pulse'\n"
    )
    asyncio.run(
        execute(url, "create schema pulse; create table pulse.jobs (id int); insert into pulse.jobs values (1)")
    )

    outcome = run_users_tests(folder, PULSE_TEST_DATABASE_URL=url)

    assert outcome.passed == ["test_one"], outcome.said
    assert asyncio.run(execute(url, "select array_agg(id) from pulse.jobs")) == [1]
    assert asyncio.run(execute(url, "select count(*) from pg_namespace where nspname like 'pulse%'")) == 1


async def execute(url: str, sql: str) -> object:
    conn = await asyncpg.connect(url)
    try:
        return await conn.fetchval(sql) if sql.startswith("select") else await conn.execute(sql)
    finally:
        await conn.close()


def test_failures_say_what_was_enqueued_instead(folder: Path, url: str) -> None:
    source = move_in("failing.py", folder)
    expected = {
        name: text.split("\n") for name, text in re.findall(r'def (test_\w+)[^"]*"""(.*?)"""', source, re.DOTALL)
    }

    outcome = run_users_tests(folder, PULSE_TEST_DATABASE_URL=url)

    assert outcome.passed == []
    assert outcome.said.keys() == expected.keys() == names_of_tests(source)
    for name, lines in expected.items():
        said = [line.removeprefix("E").strip() for line in outcome.said[name].splitlines() if line.startswith("E ")]
        for line in filter(None, map(str.strip, lines)):
            assert any(line in each for each in said), f"{name} does not say {line!r}: {outcome.said[name]}"
        if "Error: no network" not in outcome.said[name]:  # which was raised elsewhere
            assert "/pulse/testing/" not in outcome.said[name], "our own code is nothing to look at"


@pytest.mark.slow
@pytest.mark.long
def test_processes_share_one_server_and_no_jobs(folder: Path) -> None:
    (folder / "test_many.py").write_text(
        "import pathlib, re, time, pytest, shop\n"
        "@pytest.mark.parametrize('number', range(12))\n"
        "def test_many(pulse, number):\n"
        "    shop.send_receipt.enqueue(number)\n"
        "    time.sleep(0.05)\n"
        "    assert len(pulse.enqueued()) == pulse.drain().completed == 1\n"
        "    with pathlib.Path('seen').open('a') as seen:\n"
        "        seen.write(pulse.database_url + '\\n')\n"
    )
    before = set(Path("/tmp").glob("pulse-test-*"))

    outcome = run_users_tests(folder, "-n2", "--dist=each", TMPDIR="/tmp")

    assert len(outcome.passed) == 24, outcome.said
    addresses = {re.sub(r"/pulse_test_\w+\?", "/?", line) for line in (folder / "seen").read_text().split()}
    databases = set((folder / "seen").read_text().split())
    assert (len(addresses), len(databases)) == (1, 2)
    [home] = re.findall(r"host=([^&]+)", addresses.pop())
    assert Path(home).parent not in before
    assert not Path(home).parent.exists(), "the server and its data are gone"


def test_without_any_database_it_says_what_to_do(folder: Path) -> None:
    (folder / "test_one.py").write_text("def test_one(pulse):\n    pass\n")

    outcome = run_users_tests(folder, PULSE_POSTGRES=str(folder))

    assert outcome.passed == []
    said = outcome.said["test_one"]
    assert "pip install 'pulse-postgres[embedded]'" in said
    assert "set PULSE_TEST_DATABASE_URL" in said
    assert "Traceback" not in said


def test_runs_that_do_not_ask_for_it_pay_nothing(folder: Path) -> None:
    (folder / "test_one.py").write_text(
        "import sys\ndef test_one():\n    assert 'pulse.testing.plugin' in sys.modules\n"
        "    assert not {'asyncpg', 'pulse.store.embedded.server', 'pulse.sdk.worker.worker'} & sys.modules.keys()\n"
    )

    outcome = run_users_tests(folder, PULSE_POSTGRES=str(folder))

    assert outcome.passed == ["test_one"], outcome.said


def test_the_page_about_it_names_what_there_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "test-your-tasks.md").read_text()
    named = set(re.findall(r"pulse\.(\w+)\(", page))

    assert named == {name for name, _ in inspect.getmembers(PulseFixture, inspect.isfunction) if name[0] != "_"}
