"""Does the command line say what is so, refuse what it must, and tell scripts apart what happened?"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import asyncpg
import click
import pytest
from click.testing import CliRunner

from pulse import __version__
from pulse.cli.exit_codes import exit_code_of
from pulse.cli.main import cli
from pulse.cli.output import Column, _fit, age, escape, escape_block, show_fields, show_table
from pulse.cli.session import run_with_engine
from pulse.cli.worker.banner import without_password
from pulse.event_loop import run
from pulse.model import errors
from pulse.model.errors import PulseError
from pulse.model.jobs import Job, JobStatus, Outcome
from pulse.store.embedded import server as embedded
from pulse.store.embedded.binaries import find_binaries
from pulse.store.schema import migrate as migrations
from tests.doors.command_line import call, call_json, environment, run_on_terminal, run_process, start_process
from tests.factories import a_report, claim_one, submit_one
from tests.served import Served

if TYPE_CHECKING:
    from click.testing import Result

    from pulse.engine.engine import Engine
    from pulse.settings import Settings

UNKNOWN = UUID("01998e5c-7a40-7bd2-a3ea-0f2ce83f7000")
UNREACHABLE = "postgresql://pulse@127.0.0.1:1/pulse"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NASTY = "\x1b[31mred\x1b[0m \x9b2J \x07 \u202eevil [bold]not markup[/bold]\r\n\ttail"


class Pulse:
    """The command line over the database of this test."""

    def __init__(self, settings: Settings, server_url: str | None = None) -> None:
        self.settings = settings
        self.env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
        if server_url is not None:
            self.env = {"PULSE_SERVER_URL": server_url}

    def __call__(self, *args: object, **env: str | None) -> Result:
        return call(*args, **self.env | env)

    def json(self, *args: object, **env: str | None) -> Any:
        return call_json(*args, **self.env | env)

    def submit(self, **given: Any) -> UUID:
        return run_with_engine(self.settings, lambda engine: submit_one(engine, **given))

    def dead_letter(self, error: str = "boom", traceback: str | None = None, **given: Any) -> UUID:
        async def work(engine: Engine) -> UUID:
            job_id = await submit_one(engine, **given)
            claim = await claim_one(engine, given.get("topic", "mail"))
            report = a_report(claim, Outcome.DISCARD, error=error, traceback=traceback)
            _ = await engine.claims.report([report])
            return job_id

        return run_with_engine(self.settings, work)

    def get(self, job_id: UUID) -> Job:
        return run_with_engine(self.settings, lambda engine: engine.jobs.get(job_id))


@pytest.fixture(params=["database", "server"])
def pulse(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Pulse]:
    """Commands that act on jobs do it through a server as well, and nobody can tell by what they say."""
    if request.param == "database":
        yield Pulse(settings)
        return
    served = Served(settings, count=1)
    try:
        yield Pulse(settings, served.start().server_url)
    finally:
        served.stop()


@pytest.fixture
def fresh(settings: Settings) -> Iterator[Pulse]:
    """A schema that is not there yet."""
    yield Pulse(replace(settings, schema="cli_fresh"))
    execute(settings, "drop schema if exists cli_fresh cascade")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state folder with a short path, as sockets need; a server left running in it is stopped."""
    path = Path(tempfile.mkdtemp(prefix="cli", dir="/tmp"))
    yield path
    embedded.stop(path)
    shutil.rmtree(path)


def execute(settings: Settings, sql: str) -> None:
    async def work() -> None:
        conn = await asyncpg.connect(settings.database_url)
        await conn.execute(sql)
        await conn.close()

    run(work())


# The whole


def test_the_version_is_told() -> None:
    assert call("--version").output == f"pulse {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        "",
        "demo",
        "migrate",
        "jobs",
        "jobs list",
        "jobs show",
        "jobs cancel",
        "jobs replay",
        "explain",
        "doctor",
        "top",
        "completion",
        "jobs run-now",
        "topics",
        "topics list",
        "topics pause",
        "topics resume",
        "tokens",
        "tokens create",
        "tokens list",
        "tokens revoke",
        "db",
        "db start",
        "db stop",
        "db dsn",
        "db psql",
    ],
)
def test_every_command_explains_itself(command: str) -> None:
    result = call(*command.split(), "--help")

    assert result.exit_code == 0
    assert "--json" in result.output


def groups(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        for name, each in command.commands.items():
            yield from groups(each, *path, name)


def every_path(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from every_path(each, *path, name)


@pytest.mark.parametrize("path", list(every_path(cli)), ids=" ".join)
def test_help_fits_eighty_columns(path: tuple[str, ...]) -> None:
    text = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).output

    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_no_help_is_cut_at_eighty_columns() -> None:
    texts = [CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).output for path in groups(cli)]

    assert len(texts) > 7
    assert [line for text in texts for line in text.splitlines()[1:] if line.endswith("...")] == []


def test_help_loads_neither_the_driver_nor_the_terminal_library() -> None:
    code = (
        "import sys, pulse.cli.main\n"
        "print(sorted({'asyncpg', 'rich', 'msgspec', 'uvloop', 'pulse.engine.engine'} & set(sys.modules)))"
    )

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def all_errors(kind: type[PulseError] = PulseError) -> list[type[PulseError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


@pytest.mark.parametrize("kind", all_errors())
def test_each_error_has_the_exit_code_of_its_nearest_ancestor(kind: type[PulseError]) -> None:
    expected = 1
    for ancestor, code in ((errors.NotFound, 3), (errors.Conflict, 4), (errors.Unavailable, 5)):
        expected = code if issubclass(kind, ancestor) else expected

    assert exit_code_of(kind.__new__(kind)) == expected


@pytest.mark.parametrize("pulse", ["database"], indirect=True)
def test_a_real_process_ends_with_these_codes(pulse: Pulse) -> None:
    done = str(pulse.dead_letter())

    def code(*args: str, **env: str) -> int:
        return run_process(*args, **pulse.env | env).returncode

    assert code("jobs", "list") == 0
    assert code("jobs", "list", "--after", "nonsense") == 1
    assert code("jobs", "list", "--status", "lost") == 2
    assert code("jobs", "show", str(UNKNOWN)) == 3
    assert code("jobs", "cancel", done) == 4
    assert code("jobs", "list", PULSE_DATABASE_URL=UNREACHABLE) == 5


def test_an_error_is_one_line_on_stderr_and_with_json_a_document_too(pulse: Pulse) -> None:
    plain = run_process("jobs", "show", UNKNOWN, **pulse.env)
    as_json = run_process("--json", "jobs", "show", UNKNOWN, **pulse.env)

    assert plain.stdout == ""
    assert re.fullmatch(rf"Error: no job {UNKNOWN}: .+\n", plain.stderr)
    assert as_json.stderr == plain.stderr
    assert json.loads(as_json.stdout)["error"]["code"] == "job_not_found"


def test_no_database_names_the_three_ways_to_have_one(tmp_path: Path) -> None:
    result = run_process("jobs", "list", "--state-dir", tmp_path / "none")

    assert result.returncode == 5
    assert len(result.stderr.splitlines()) == 1
    for way in ("PULSE_DATABASE_URL", "`pulse db start`", "pip install 'pulse-postgres[embedded]'"):
        assert way in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_schema_that_is_not_there_is_not_a_traceback(fresh: Pulse) -> None:
    result = fresh("jobs", "list")

    assert result.exit_code == 5
    assert "run `pulse migrate`" in result.stderr


@pytest.mark.parametrize("pulse", ["database"], indirect=True)
def test_flags_win_over_the_environment_and_work_on_either_side(pulse: Pulse) -> None:
    assert pulse("jobs", "list", PULSE_SCHEMA="nowhere").exit_code == 5
    assert pulse("--schema", pulse.settings.schema, "jobs", "list", PULSE_SCHEMA="nowhere").exit_code == 0
    assert pulse("jobs", "list", "--schema", pulse.settings.schema, PULSE_SCHEMA="nowhere").exit_code == 0
    assert call("jobs", "list", "--database-url", pulse.settings.database_url).exit_code == 0


def test_flags_of_commands_have_twins_in_the_environment(pulse: Pulse) -> None:
    pulse.submit(topic="mail")
    pulse.submit(topic="other")

    by_env = pulse("jobs", "list", PULSE_JSON="1", PULSE_JOBS_LIST_TOPIC="mail", PULSE_JOBS_LIST_LIMIT="1")
    by_flag = pulse("jobs", "list", "--json", "--topic", "mail", "--limit", "1")

    assert json.loads(by_env.stdout) == json.loads(by_flag.stdout)
    assert [job["topic"] for job in json.loads(by_env.stdout)["jobs"]] == ["mail"]


def test_a_version_in_the_environment_is_somebody_elses() -> None:
    assert call("jobs", "--help", PULSE_VERSION="1.2.3").exit_code == 0


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield " ".join((*above, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)


@pytest.mark.parametrize(("path", "command"), list(commands(cli, "pulse")))
def test_the_reference_names_every_command_and_flag(path: str, command: click.Command) -> None:
    reference = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()

    assert f"# {path}" in reference
    for option in (param for param in command.params if isinstance(param, click.Option) and not param.hidden):
        assert f"`{option.opts[0]}" in reference
        assert str(option.envvar or option.name.upper()) in reference


def test_a_bad_setting_is_refused_in_a_sentence(pulse: Pulse) -> None:
    result = pulse("jobs", "list", "--schema", "No Such")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: schema must have 1 to 48")


# What reaches the terminal


def test_escape_spells_out_what_a_terminal_would_obey() -> None:
    assert escape("a\x1b[31mb\x00\x9b\u202e\n\t") == r"a\x1b[31mb\x00\x9b\u202e\n\t"
    assert escape_block("a\x1b\nb\tc\r") == "a\\x1b\nb       c\\r"
    assert escape("Grüße 東京 🚀") == "Grüße 東京 🚀"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_nothing_in_a_job_controls_the_terminal(pulse: Pulse, flags: list[str]) -> None:
    payload = json.dumps({"text": NASTY, "raw \x7f": "\x7f\x9b"}, ensure_ascii=False)
    job_id = pulse.dead_letter(
        error=NASTY, traceback=NASTY, payload=payload, topic="ma\u202eil", task="t\u202esk", tags=("\u202e",)
    )
    pulse("topics", "pause", "ma\u202eil", "--reason", NASTY)

    commands = (("jobs", "list"), ("jobs", "show", job_id), ("topics", "list"), ("jobs", "cancel", job_id))
    outputs = [pulse(*command, *flags).output for command in commands]

    assert "evil" in "".join(outputs)
    assert not [RAW.findall(output) for output in outputs if RAW.search(output)]


def test_nor_does_it_on_a_real_terminal(pulse: Pulse) -> None:
    job_id = pulse.dead_letter(error=NASTY, traceback=NASTY)

    ended = run_on_terminal("jobs", "show", job_id, env=pulse.env)

    assert r"\x1b[31mred" in ended.output
    assert "\x1b[31mred" not in ended.output
    assert "[bold]not markup" in ended.output
    assert not re.search("[\x07\x9b\u202e]", ended.output)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_fits_its_terminal(pulse: Pulse, columns: int) -> None:
    pulse.dead_letter(error="x" * 300, topic="a-topic-with-a-long-name", task="a_task_with_a_name_as_long")

    ended = run_on_terminal("jobs", "list", columns=columns, env=pulse.env)

    lines = ended.text.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= columns


def test_in_a_pipe_nothing_is_cut(pulse: Pulse) -> None:
    pulse.dead_letter(error="x" * 300)

    assert "x" * 300 in run_process("jobs", "list", **pulse.env).stdout


def test_columns_shrink_before_they_go_and_the_least_important_goes_first() -> None:
    columns = [Column("ID"), Column("TASK", rank=2, min_width=6), Column("TOPIC", rank=1, min_width=6)]
    rows = [["1234567890", "a" * 20, "b" * 10]]

    assert _fit(columns, rows, 100) == {0: 10, 1: 20, 2: 10}
    assert _fit(columns, rows, 34) == {0: 10, 1: 10, 2: 10}
    assert _fit(columns, rows, 25) == {0: 10, 2: 10}
    assert _fit(columns, rows, 5) == {0: 10}


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (timedelta(), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=3, seconds=20), "3 min ago"),
        (timedelta(hours=30), "1 d ago"),
        (timedelta(minutes=59, seconds=59), "59 min ago"),
        (timedelta(milliseconds=999), "just now"),
        (-timedelta(hours=2), "in 2 h"),
        (-timedelta(days=2, hours=23, minutes=59), "in 3 d"),
        (-timedelta(minutes=59.9), "in 1 h"),
        (-timedelta(seconds=59.9), "in 1 min"),
        (-timedelta(minutes=31), "in 31 min"),
        (-timedelta(hours=13), "in 13 h"),
        (-timedelta(milliseconds=400), "just now"),
    ],
)
def test_ages_read_as_people_say_them(passed: timedelta, text: str) -> None:
    now = datetime(2026, 7, 31, tzinfo=UTC)

    assert age(now - passed, now) == text


@pytest.mark.parametrize("tz", ["America/Chicago", "Asia/Kolkata", "UTC"])
def test_times_say_their_distance_from_utc(pulse: Pulse, tz: str) -> None:
    job = pulse.get(pulse.submit())
    local = job.submitted_at.astimezone(ZoneInfo(tz)).isoformat(sep=" ", timespec="seconds")

    shown, listed = (run_process("jobs", *args, **pulse.env, TZ=tz).stdout for args in (["show", job.id], ["list"]))

    assert re.search(rf"^submitted_at +{re.escape(local)} \(", shown, re.MULTILINE)
    assert local in listed


# Migrate


def test_migrate_applies_once_and_then_is_up_to_date(fresh: Pulse) -> None:
    first, second = fresh("migrate"), fresh("migrate")

    assert "Applied 0001_jobs" in first.output
    assert f"now at version {migrations.newest()}" in first.output
    where = without_password(str(fresh.settings.database_url))
    assert second.output == f"Schema cli_fresh of {where} is up to date, at version {migrations.newest()}.\n"


def test_migrate_names_the_database_without_its_password(fresh: Pulse) -> None:
    url = str(fresh.settings.database_url)
    secret = f"{url}{'&' if '?' in url else '?'}password=hunter2"

    result, document = fresh("migrate", PULSE_DATABASE_URL=secret), fresh.json("migrate", PULSE_DATABASE_URL=secret)

    assert f"Schema cli_fresh of {document['database']} is now at version" in result.output
    assert document["database"].startswith("postgres")
    assert "hunter2" not in result.output + document["database"]


def test_migrate_answers_in_json(fresh: Pulse) -> None:
    first, second = fresh.json("migrate"), fresh.json("migrate")

    assert first["applied"][0] == {"version": 1, "name": "jobs"}
    where = without_password(str(fresh.settings.database_url))
    assert second == {"database": where, "schema": "cli_fresh", "version": migrations.newest(), "applied": []}


def test_migrate_check_in_each_state(fresh: Pulse) -> None:
    missing = fresh("migrate", "--check")
    fresh("migrate")
    good = fresh("migrate", "--check")
    execute(fresh.settings, "update cli_fresh.migrations set works_from = 9999")
    too_new = fresh("migrate", "--check")
    execute(fresh.settings, "update cli_fresh.migrations set works_from = 1, version = version - 9000")
    too_old = fresh("migrate", "--check")

    assert (missing.exit_code, good.exit_code, too_new.exit_code, too_old.exit_code) == (1, 0, 1, 1)
    assert "has no schema" in missing.stderr
    assert "up to date" in good.stdout
    assert "upgrade pulse-postgres" in too_new.stderr
    assert "run `pulse migrate`" in too_old.stderr


def test_migrate_check_finds_what_this_release_would_add(fresh: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh("migrate")
    version = migrations.newest()
    monkeypatch.setattr(migrations, "newest", lambda: version + 1)

    result = fresh("migrate", "--check", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["ok"] is False
    assert f"knows {version + 1}: run `pulse migrate`" in json.loads(result.stdout)["problem"]


def test_migrate_check_without_a_database_is_another_matter() -> None:
    assert call("migrate", "--check", "--database-url", UNREACHABLE).exit_code == 5


def test_migrate_sql_needs_no_database_and_can_be_applied(fresh: Pulse, tmp_path: Path) -> None:
    script = run_process("migrate", "--sql", "--schema", "cli_fresh", "--state-dir", tmp_path / "none")

    assert script.returncode == 0
    execute(fresh.settings, script.stdout)
    assert fresh("migrate", "--check").exit_code == 0


def test_migrate_takes_the_number_of_buckets_once(fresh: Pulse) -> None:
    assert fresh("migrate", PULSE_BUCKETS="4").exit_code == 0
    refused = fresh("migrate", "--buckets", "8")

    assert refused.exit_code == 1
    assert "made with 4 buckets" in refused.stderr


def test_sql_and_check_exclude_each_other() -> None:
    assert call("migrate", "--sql", "--check").exit_code == 2


# Jobs


def test_jobs_are_listed_by_what_they_have_in_common(pulse: Pulse) -> None:
    pulse.submit(topic="mail", tags=("vip",))
    pulse.submit(topic="mail", task="other")
    pulse.dead_letter(topic="late", error="Connection TIMEOUT after 3 s")

    def topics(*flags: str) -> list[str]:
        return [job["topic"] for job in pulse.json("jobs", "list", *flags)["jobs"]]

    assert topics() == ["late", "mail", "mail"]
    assert topics("--topic", "mail", "--task", "other") == ["mail"]
    assert topics("--tag", "vip") == ["mail"]
    assert topics("--error", "timeout") == ["late"]
    assert topics("--since", "1h") == ["late", "mail", "mail"]
    assert topics("--until", "1h") == []
    assert topics("--until", "2020-01-01") == []
    assert topics("--since", "2020-01-01T00:00+02:00") == ["late", "mail", "mail"]


@pytest.mark.parametrize("text", ["dead_lettered", "DEAD_LETTERED", "Dead-Lettered"])
def test_states_are_read_in_any_case(pulse: Pulse, text: str) -> None:
    pulse.submit()
    job_id = pulse.dead_letter(topic="late")

    assert [job["id"] for job in pulse.json("jobs", "list", "--status", text)["jobs"]] == [str(job_id)]


def test_pages_follow_one_another(pulse: Pulse) -> None:
    ids = [str(pulse.submit()) for _ in range(3)]

    first = pulse.json("jobs", "list", "--limit", 2)
    second = pulse.json("jobs", "list", "--limit", 2, "--after", first["next"])

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert second["next"] is None
    assert f"--after {first['next']}" in pulse("jobs", "list", "--limit", 2).output


@pytest.mark.parametrize("flags", [[], ["--status", "dead_lettered"], ["--status", "pending"]], ids=" ".join)
def test_how_to_get_the_next_page_fits_one_line(pulse: Pulse, flags: list[str]) -> None:
    for _ in range(2):
        pulse.dead_letter()
        pulse.submit(topic="late")

    [more] = [line for line in pulse("jobs", "list", "--limit", 1, *flags).output.splitlines() if "More:" in line]

    assert len(more) <= 80
    assert pulse("jobs", "list", *flags, *more.split()[-2:]).exit_code == 0


def test_a_list_for_people_says_what_matters(pulse: Pulse) -> None:
    job_id = pulse.dead_letter(error="smtp refused", topic="mail")

    lines = pulse("jobs", "list").output.splitlines()

    assert lines[0].split() == ["ID", "STATUS", "TOPIC", "TRY", "SUBMITTED", "AGE", "LAST", "ERROR"]
    assert re.match(rf"{job_id}  DEAD_LETTERED  mail +1/3  \d{{4}}-.+ (ago|now) +smtp refused", lines[1])
    assert pulse("jobs", "list", "--topic", "none").output == "No jobs match.\n"


@pytest.mark.parametrize("flags", [["--since", "yesterday"], ["--limit", "0"], ["--limit", "501"], ["--status", "x"]])
def test_a_flag_that_makes_no_sense_is_wrong_usage(flags: list[str]) -> None:
    assert call("jobs", "list", *flags).exit_code == 2


def test_a_job_is_shown_with_all_its_fields_and_failures(pulse: Pulse) -> None:
    job_id = pulse.dead_letter(error="boom", traceback="Traceback:\n  line 1", timeout=timedelta(seconds=90))

    result = pulse("jobs", "show", job_id)

    for name in set(Job.__struct_fields__) - {"max_attempts", "refunded"}:
        assert re.search(rf"^{name} ", result.output, re.MULTILINE), name
    assert re.search(r"^attempt +1 of 3 *$", result.output, re.MULTILINE)
    assert "1m30s" in result.output
    assert "Attempt 1 failed" in result.output
    assert "line 1" in result.output


def test_a_replay_does_not_count_what_was_before(pulse: Pulse) -> None:
    job_id = pulse.dead_letter(max_attempts=1)
    pulse("jobs", "replay", job_id)

    assert re.search(r"^attempt +0 of 1 \(1 not counted\) *$", pulse("jobs", "show", job_id).output, re.MULTILINE)


def test_json_has_the_fields_of_the_model_and_embeds_what_is_json(pulse: Pulse) -> None:
    payload = '{"n": 12345678901234567890123, "x": 1.10}'
    job_id = pulse.dead_letter(payload=payload, tags=("a", "b"))

    raw = pulse("jobs", "show", job_id, "--json").stdout
    shown = json.loads(raw)

    assert list(shown) == [*Job.__struct_fields__, "attempts"]
    assert shown["payload"] == {"n": 12345678901234567890123, "x": 1.10}
    assert "1.10" in raw  # to the last digit
    assert shown["tags"] == ["a", "b"]
    assert datetime.fromisoformat(shown["submitted_at"]).tzinfo is not None
    assert [attempt["error"] for attempt in shown["attempts"]] == ["boom"]


def test_jobs_are_cancelled_one_by_one(pulse: Pulse) -> None:
    waiting, done = pulse.submit(topic="wait"), pulse.dead_letter()

    result = pulse("jobs", "cancel", waiting, done, UNKNOWN, "--reason", "sent by hand")

    assert result.exit_code == 4
    assert result.stdout == f"{waiting} cancelled\n"
    assert [line[:6] for line in result.stderr.splitlines()] == ["Error:", "Error:"]
    assert pulse.get(waiting).status is JobStatus.CANCELLED
    assert pulse.get(waiting).last_error == "cancelled: sent by hand"


def test_outcomes_in_json(pulse: Pulse) -> None:
    waiting = pulse.submit()

    result = pulse("--json", "jobs", "cancel", waiting, UNKNOWN)

    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["cancelled"] == 1
    assert document["outcomes"][0] == {"id": str(waiting), "error": None}
    assert document["outcomes"][1]["error"]["code"] == "job_not_found"


def test_a_dead_letter_is_replayed_by_its_id(pulse: Pulse) -> None:
    job_id = pulse.dead_letter()

    assert pulse.json("jobs", "replay", job_id)["replayed"] == 1
    assert pulse.get(job_id).status is JobStatus.PENDING
    assert pulse("jobs", "replay", job_id).exit_code == 4


def test_a_job_is_run_before_its_time(pulse: Pulse) -> None:
    job_id = pulse.submit(delay=timedelta(hours=1))

    assert pulse.json("jobs", "run-now", job_id)["status"] == "PENDING"
    again = pulse("jobs", "run-now", job_id)
    assert (again.exit_code, "is already waiting for a worker" in again.output) == (4, True)


def test_dead_letters_are_replayed_by_what_they_have_in_common(pulse: Pulse) -> None:
    mail, other = pulse.dead_letter(), pulse.dead_letter(topic="other")

    assert pulse("jobs", "replay", "--topic", "mail", "--yes").output == "1 job replayed.\n"
    assert pulse.get(mail).status is JobStatus.PENDING
    assert pulse.get(other).status is JobStatus.DEAD_LETTERED
    assert pulse.json("jobs", "replay", "--all", "--yes") == {"replayed": 1, "left": 0, "next": None}
    assert pulse("jobs", "replay", "--all", "--yes").output == "No dead letter was replayed.\n"


def test_a_limit_bounds_what_is_replayed(pulse: Pulse) -> None:
    for _ in range(3):
        pulse.dead_letter()

    answer = pulse.json("jobs", "replay", "--all", "--limit", 2, "--yes")
    assert (answer["replayed"], answer["left"]) == (2, 1)


@pytest.mark.parametrize("flags", [["--all"], ["--topic", "mail"], ["--error", "boom"]], ids=" ".join)
def test_what_a_limit_leaves_is_said_with_how_to_go_on(pulse: Pulse, flags: list[str]) -> None:
    for _ in range(3):
        pulse.dead_letter()

    first = pulse("jobs", "replay", *flags, "--limit", 1, "--yes").output
    said = "1 job replayed.\nNot replayed because of --limit 1: 2 dead letters. Continue with --after "
    assert first.startswith(said)
    second = pulse("jobs", "replay", *flags, "--limit", 2, "--yes", "--after", first.removeprefix(said).strip())
    assert second.output == "2 jobs replayed.\n"


@pytest.mark.parametrize(
    "command", [["jobs", "show"], ["jobs", "cancel"], ["jobs", "replay"], ["explain"]], ids=" ".join
)
def test_an_id_cut_short_is_refused_with_what_it_should_be(pulse: Pulse, command: list[str]) -> None:
    refused = pulse(*command, "01998e5c-7a40")

    assert refused.exit_code == 2
    assert "'01998e5c-7a40' is not the id of a job: write all of its 36 characters." in refused.output


def test_ids_have_nothing_to_go_on_after(pulse: Pulse) -> None:
    refused = pulse("jobs", "replay", pulse.dead_letter(), "--after", "x")

    assert refused.exit_code == 2
    assert "--after can be used with a filter or with --all, not with IDs." in refused.output


def test_help_names_the_limit_of_a_replay() -> None:
    text = " ".join(call("jobs", "replay", "--help").output.split())

    assert "Replay every dead letter, up to --limit." in text
    assert "[default: 10000; x>=1]" in text


def test_what_is_done_in_batches_is_all_done(pulse: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.cli.jobs.commands.BATCH", 2)
    dead = [pulse.dead_letter() for _ in range(7)]

    assert pulse.json("jobs", "replay", *dead[:3])["replayed"] == 3
    assert pulse.json("jobs", "replay", "--all", "--limit", 3, "--yes")["left"] == 1
    assert pulse.json("jobs", "replay", "--all", "--yes") == {"replayed": 1, "left": 0, "next": None}
    assert pulse.json("jobs", "cancel", *dead)["cancelled"] == 7


def test_long_work_shows_on_a_terminal_that_it_goes_on_and_nowhere_else(pulse: Pulse) -> None:
    first, second, third = (pulse.dead_letter() for _ in range(3))

    shown = run_on_terminal("jobs", "replay", first, env=pulse.env)
    as_json = run_on_terminal("--json", "jobs", "replay", second, env=pulse.env)
    piped = run_process("jobs", "replay", third, **pulse.env)

    assert "replaying" in shown.text
    assert "replaying" not in as_json.text
    assert piped.stderr == ""


def test_a_bar_says_how_many_there_are_to_do(pulse: Pulse) -> None:
    dead = [pulse.dead_letter() for _ in range(2)]

    assert re.search(r"replaying .* 2 of 2", run_on_terminal("jobs", "replay", *dead, env=pulse.env).text)


def test_a_benchmark_says_on_a_terminal_what_it_measures_and_nowhere_else(settings: Settings) -> None:
    command, env = ("bench", "enqueue", "--jobs", 10), Pulse(settings).env
    doing = "round 1 of 1, enqueue: enqueueing many jobs at once, against a bare insert"

    shown = run_on_terminal(*command, env=env)
    as_json = run_on_terminal("--json", *command, env=env)
    piped = run_process(*command, **env)

    assert shown.exit_code == as_json.exit_code == piped.returncode == 0
    assert doing in shown.text
    assert doing not in as_json.text
    assert (piped.stderr, piped.stdout.count("round 1 of 1")) == ("", 1)


@pytest.mark.parametrize("flags", [[], ["--all", "--topic", "mail", "--yes"], ["--all", str(UNKNOWN)], ["--all"]])
def test_a_replay_wants_one_choice_and_without_a_terminal_a_yes(flags: list[str]) -> None:
    assert call("jobs", "replay", *flags).exit_code == 2


@pytest.mark.parametrize(
    ("flags", "question"),
    [
        (["--all"], "Replay 3 dead letters?"),
        (["--all", "--limit", "2"], "Replay 2 of 3 dead letters?"),
        (["--error", "boom"], "Replay 3 dead letters?"),
    ],
)
def test_the_question_before_a_replay_says_how_many(pulse: Pulse, flags: list[str], question: str) -> None:
    for _ in range(3):
        pulse.dead_letter()

    assert question in run_on_terminal("jobs", "replay", *flags, typed="n\n", env=pulse.env).text


@pytest.mark.parametrize(
    ("typed", "code", "status"), [("y\n", 0, JobStatus.PENDING), ("n\n", 1, JobStatus.DEAD_LETTERED)]
)
def test_on_a_terminal_one_is_asked_before_a_replay(pulse: Pulse, typed: str, code: int, status: JobStatus) -> None:
    job_id = pulse.dead_letter()

    ended = run_on_terminal("jobs", "replay", "--all", typed=typed, env=pulse.env)

    assert "Replay 1 dead letter? [y/N]" in ended.output
    assert ended.exit_code == code
    assert pulse.get(job_id).status is status


@pytest.mark.parametrize("flags", [["--all"], ["--topic", "mail"], ["--error", "boom"]], ids=" ".join)
def test_what_dies_while_the_question_stands_is_not_replayed(
    pulse: Pulse, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_about = [pulse.dead_letter() for _ in range(2)]
    later: list[UUID] = []
    monkeypatch.setattr("pulse.cli.jobs.commands.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr("click.confirm", lambda *_, **__: later.append(pulse.dead_letter()))

    ended = pulse("jobs", "replay", *flags)

    assert ended.output == "2 jobs replayed.\n"
    assert {pulse.get(job_id).status for job_id in asked_about} == {JobStatus.PENDING}
    assert [pulse.get(job_id).status for job_id in later] == [JobStatus.DEAD_LETTERED]


# Topics


def test_topics_are_counted_by_state(pulse: Pulse) -> None:
    pulse.submit()
    pulse.dead_letter(topic="late")

    document = pulse.json("topics", "list")

    assert [topic["topic"] for topic in document["topics"]] == ["late", "mail"]
    assert document["topics"][0]["counts"] == {status: int(status == "DEAD_LETTERED") for status in JobStatus}
    assert document["pauses"] == []
    lines = [line.split() for line in pulse("topics", "list").output.splitlines()]
    assert lines == [["TOPIC", "PENDING", "DEAD_LETTERED"], ["late", "0", "1"], ["mail", "1", "0"]]


def test_an_empty_queue_has_no_topics(pulse: Pulse) -> None:
    assert pulse("topics", "list").output == "There are no jobs yet.\n"


def test_a_topic_is_paused_and_resumed(pulse: Pulse) -> None:
    pulse.submit()

    assert pulse("topics", "pause", "mail", "--reason", "provider is down").output.startswith("mail is paused since ")
    assert "provider is down" in pulse("topics", "list").output
    assert pulse.json("topics", "list")["topics"][0]["paused"] is True
    assert pulse("topics", "resume", "mail").output == "mail resumed.\n"
    assert pulse("topics", "resume", "mail").output == "mail: not paused, so nothing was changed.\n"


def test_a_pause_of_a_topic_without_jobs_says_so(pulse: Pulse) -> None:
    pulse.submit(topic="mail")

    near, far, used = (pulse("topics", "pause", name) for name in ("mial", "nosuch", "mail"))
    everything = pulse("topics", "pause", "--all")

    assert near.stdout.startswith("mial is paused since ")
    assert near.stderr == "Note: topic 'mial' has no jobs; did you mean 'mail'?\n"
    assert far.stderr == "Note: topic 'nosuch' has no jobs.\n"
    assert used.stderr == everything.stderr == ""
    assert near.exit_code == far.exit_code == 0


def test_all_topics_are_paused_at_once(pulse: Pulse) -> None:
    assert pulse.json("topics", "pause", "--all")["topic"] == "*"
    pulse("topics", "pause", "mail")

    assert "All topics are paused since" in pulse("topics", "list").output
    assert "All topics are still paused" in pulse("topics", "resume", "mail").output
    pulse("topics", "pause", "mail")
    assert "Still paused one by one: mail." in pulse("topics", "resume", "--all").output


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("choice", [[], ["mail", "--all"]])
def test_a_topic_or_all_but_not_both(command: str, choice: list[str]) -> None:
    assert call("topics", command, *choice).exit_code == 2


# The embedded Postgres

needs_binaries = pytest.mark.skipif(not find_binaries(), reason="no Postgres binaries on this machine")


def started(*flags: object) -> subprocess.Popen[str]:
    """A `pulse db start` whose server is ready."""
    process = start_process("db", "start", *flags)
    assert process.stdout
    while (line := process.stdout.readline()) and "Ctrl-C" not in line:
        pass
    assert line, process.stderr and process.stderr.read()
    return process


@needs_binaries
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_db_start_serves_until_it_is_told_to_stop(folder: Path, ending: signal.Signals) -> None:
    with started("--state-dir", folder) as process:
        address = run_process("db", "dsn", "--state-dir", folder).stdout.strip()
        again = run_process("db", "start", "--state-dir", folder)
        answer = run_process("db", "psql", "--state-dir", folder, "-Atc", "select 6 * 7")

        process.send_signal(ending)
        process.communicate(timeout=30)

    assert again.returncode == 0
    assert "runs already" in again.stdout
    assert address in again.stdout
    assert answer.stdout == "42\n"
    assert process.returncode == 0
    assert embedded.running(folder) is None
    assert run_process("db", "dsn", "--state-dir", folder).returncode == 3


@needs_binaries
def test_db_stop_ends_a_db_start_elsewhere(folder: Path) -> None:
    with started("--state-dir", folder, "--port", "0") as process:
        stopped = run_process("db", "stop", "--json", "--state-dir", folder)
        process.communicate(timeout=30)

    assert json.loads(stopped.stdout) == {"was_running": True}
    assert process.returncode == 0
    assert call_json("db", "stop", "--state-dir", folder) == {"was_running": False}


@needs_binaries
def test_a_server_that_ends_by_itself_is_a_failure(folder: Path) -> None:
    with started("--state-dir", folder) as process:
        server = embedded.running(folder)
        assert server
        os.kill(server.pid, signal.SIGQUIT)
        _, stderr = process.communicate(timeout=30)

    assert process.returncode == 5
    assert "ended by itself" in stderr


@needs_binaries
def test_commands_side_by_side_share_one_of_these_servers(folder: Path) -> None:
    embedded.start(folder).close()
    run_process("migrate", "--state-dir", folder)

    processes = [start_process("topics", "list", "--state-dir", folder) for _ in range(5)]
    for process in processes:
        process.communicate(timeout=60)

    assert [process.returncode for process in processes] == [0] * 5
    assert embedded.running(folder) is None


@needs_binaries
def test_commands_start_the_embedded_server_for_their_own_duration(folder: Path) -> None:
    embedded.start(folder).close()

    migrated = run_process("migrate", "--state-dir", folder)
    assert f"Schema pulse of the embedded Postgres in {folder} (`pulse db dsn`) is now at version" in migrated.stdout
    assert json.loads(run_process("migrate", "--json", "--state-dir", folder).stdout)["database"].startswith("postgres")
    assert run_process("topics", "list", "--state-dir", folder).stdout == "There are no jobs yet.\n"
    assert embedded.running(folder) is None


@pytest.mark.parametrize("pulse", ["database"], indirect=True)
def test_psql_is_looked_for_and_missed(pulse: Pulse, tmp_path: Path) -> None:
    result = run_process("db", "psql", PATH=str(tmp_path), **pulse.env)

    assert result.returncode == 3
    assert "psql was not found" in result.stderr


def test_psql_gets_the_password_where_ps_does_not_show_it(tmp_path: Path) -> None:
    fake = tmp_path / "psql"
    fake.write_text('#!/bin/sh\necho "$*|$PGPASSWORD|$PGOPTIONS"\nexit 7\n')
    fake.chmod(0o755)

    url = "postgresql://me:s%40fe@db.example/app?sslmode=require"
    result = run_process("db", "psql", "-c", "select 1", PATH=f"{tmp_path}:/usr/bin:/bin", PULSE_DATABASE_URL=url)

    assert result.returncode == 7
    address = "postgresql://me@db.example/app?sslmode=require"
    assert result.stdout == f"--dbname {address} -c select 1|s@fe|-c search_path=pulse,public\n"


def test_help_is_quick() -> None:
    """Not a benchmark: a guard against an import that costs as much as the rest together."""
    best = min(_seconds_of_help() for _ in range(3))

    assert best < 1.5


def _seconds_of_help() -> float:
    before = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pulse.cli.main", "--help"], env=environment(), capture_output=True, check=True
    )
    return time.perf_counter() - before


def test_a_table_in_a_pipe_has_no_blanks_at_the_end_of_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([Column("NAME"), Column("WHY")], [["a", "x" * 300], ["b", ""], ["[bold]", " "]])
    show_fields([("name", "a" * 300), ("why", "")])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert [line for line in lines if line != line.rstrip()] == []
