"""Does `pulse schedules` make, show and change what runs when, say what it means, and refuse in a sentence?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import click
import pytest
from click.testing import Result

from pulse.cli.main import cli
from pulse.cli.output import Column, console, show_table
from pulse.cli.schedules import options as schedule_options
from pulse.cli.session import run_with_engine
from pulse.engine.engine import Engine
from pulse.event_loop import run
from pulse.model.decisions.schedule_changes import EDITABLE
from pulse.model.jobs import Job, JobStatus, NewJob
from pulse.model.schedules import WHEN, CatchUp, Fire, Overlap, Schedule, ScheduleStatus
from pulse.settings import Settings
from tests.doors.command_line import call, call_json, run_on_terminal, run_process
from tests.doors.worker_processes import rewrite
from tests.factories import a_new_job
from tests.served import Served

LINKS = ["database", "server"]
UNREACHABLE = "postgresql://pulse@127.0.0.1:1/pulse"
NASTY = "\x1b[31mred \x9b2J \u202eevil [bold]not markup[/bold]"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DAILY = ("--task", "shop.report", "--cron", "0 9 * * *")
MARCH = datetime(2026, 3, 2, tzinfo=UTC)
SOON, LATER = (datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) for days in (400, 800))


class Pulse:
    """`pulse schedules …` over the database of this test."""

    def __init__(self, settings: Settings, server_url: str | None = None) -> None:
        self.settings = settings
        self.env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
        if server_url is not None:
            self.env = {"PULSE_SERVER_URL": server_url}
        self.env |= {"TZ": "UTC"}

    def __call__(self, *args: object, **env: str | None) -> Result:
        return call("schedules", *args, **self.env | env)

    def json(self, *args: object, **env: str | None) -> Any:
        return call_json("schedules", *args, **self.env | env)

    def create(self, name: str = "report", *flags: object) -> Schedule:
        done = self("create", name, *(flags or DAILY))
        assert done.exit_code == 0, done.output
        return self.get(name)

    def get(self, name: str = "report") -> Schedule:
        return run_with_engine(self.settings, lambda engine: engine.schedules.get(name))

    def names(self, *flags: object) -> list[str]:
        return [schedule["name"] for schedule in self.json("list", *flags)["schedules"]]

    def job(self, job_id: object) -> Job:
        return run_with_engine(self.settings, lambda engine: engine.jobs.get(UUID(str(job_id))))

    def jobs(self) -> list[Job]:
        async def read(engine: Engine) -> list[Job]:
            return (await engine.jobs.list_page(limit=500)).jobs

        return run_with_engine(self.settings, read)

    def fires(self, name: str = "report") -> list[Fire]:
        async def read(engine: Engine) -> list[Fire]:
            return (await engine.schedules.fires(name)).fires

        return run_with_engine(self.settings, read)

    def fire_late(self, name: str, late: str) -> None:
        """Let its next occurrence have been so long ago, and fire it."""
        self.move_back(name, late)
        run_with_engine(self.settings, lambda engine: engine.duties.fires.fire_due())

    def move_back(self, name: str, by: str) -> None:
        by = f"interval '{by}'"
        self.execute(
            f"update pulse.schedules set next_run_at = next_run_at - {by}, run_at = run_at - {by} where name = $1", name
        )

    def log(self, schedule: Schedule, outcome: str, at: datetime, **more: Any) -> None:
        """A line of the past."""
        line = {"schedule_id": schedule.id, "occurrence": at, "outcome": outcome, "cause": "timetable"}
        line |= {"logged_at": at, "newest": at} | more
        holes = ", ".join(f"${n}" for n in range(1, len(line) + 1))
        self.execute(f"insert into pulse.fires ({', '.join(line)}) values ({holes})", *line.values())

    def execute(self, sql: str, *args: object) -> None:
        async def work() -> None:
            conn = await asyncpg.connect(self.settings.database_url)
            try:
                await conn.execute(sql, *args)
            finally:  # or uvloop waits for it for ever
                await conn.close()

        run(work())


@pytest.fixture(params=LINKS)
def pulse(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Pulse]:
    if request.param == "database":
        yield Pulse(settings)
        return
    served = Served(replace(settings, keep_fires=timedelta(days=3_650)), count=1)  # it must not prune the past of these
    try:
        yield Pulse(settings, served.start().server_url)
    finally:
        served.stop()


def filled(flags: list[str]) -> list[str]:
    """With the instants that depend on when the tests run, which have no place in their names."""
    instants = {"{soon}": SOON.isoformat(), "{later}": LATER.isoformat()}
    return [instants.get(flag, flag) for flag in flags]


def lines_of(result: Result) -> list[str]:
    return [line.rstrip() for line in result.output.splitlines()]


# --- the whole


def commands() -> dict[str, click.Command]:
    group = cli.commands["schedules"]
    assert isinstance(group, click.Group)
    return dict(group.commands)


def test_all_of_the_commands_are_there() -> None:
    wanted = "list show create edit pause resume trigger backfill preview fires delete sync"

    assert set(commands()) == set(wanted.split())


@pytest.mark.parametrize("name", ["", *commands()])
def test_each_explains_itself(name: str) -> None:
    result = call("schedules", *name.split(), "--help")

    assert result.exit_code == 0
    assert "--json" in result.output


def test_the_choices_are_those_of_the_model() -> None:
    assert list(schedule_options.CATCH_UP) == [*CatchUp]
    assert list(schedule_options.OVERLAP) == [*Overlap]
    assert schedule_options.WHEN == WHEN


def test_all_that_can_be_edited_has_a_flag() -> None:
    flags = {schedule_options.FIELDS.get(str(param.name), param.name) for param in commands()["edit"].params}

    assert set(EDITABLE) - flags == {"retry"}  # it has parts; code says it


@pytest.mark.parametrize(
    "args",
    [
        *(["show"], ["fires"], ["preview"], ["pause"], ["resume"], ["trigger"]),
        *(["edit", "--max-occurrences", "3"], ["delete", "--yes"], ["backfill", "--from", "2d", "--to", "1d"]),
    ],
)
def test_what_is_not_there_is_not_found(pulse: Pulse, args: list[str]) -> None:
    result = pulse(args[0], "nothing", *args[1:])

    assert result.exit_code == 3
    assert "no schedule 'nothing'" in result.stderr


def test_a_refusal_is_a_document_too(pulse: Pulse) -> None:
    result = pulse("show", "nothing", "--json")

    assert json.loads(result.stdout)["error"]["code"] == "schedule_not_found"


def test_without_a_database_the_exit_code_says_so() -> None:
    assert call("schedules", "list", PULSE_DATABASE_URL=UNREACHABLE, PULSE_PATIENCE="1ms").exit_code == 5


# --- create


def test_what_was_made_is_told_in_words_with_the_occurrences_to_come(pulse: Pulse) -> None:
    lines = lines_of(pulse("create", "report", *DAILY, "--tz", "Asia/Tokyo"))

    assert lines[:2] == ["Created report: at 09:00 every day, Asia/Tokyo.", "Next:"]
    assert lines[2].split() == ["DATE", "TIME", "OFFSET", "WHEN"]
    assert len(lines) == 6
    for line in lines[3:]:
        assert re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) 20\d\d-\d\d-\d\d  09:00  \+09:00  in \d+ \w+", line)


@pytest.mark.parametrize(
    ("flags", "kind", "words"),
    [
        (["--cron", "*/15 9-17 * * 1-5"], "cron", "every 15 minutes from 09:00 to 17:45 on Monday to Friday, UTC"),
        (["--cron", "@every 90s"], "interval", "every 1m30s"),
        (["--every", "6h"], "interval", "every 6h"),
        (["--run-at", "{soon}"], "once", "once, at {soon:%Y-%m-%d %H:%M:%S}+00:00."),
        (["--delay", "10m"], "once", "once, at 20"),
    ],
)
def test_when_can_be_said_in_four_ways(pulse: Pulse, flags: list[str], kind: str, words: str) -> None:
    result = pulse("create", "s", "--task", "t", *filled(flags))

    assert result.output.startswith(f"Created s: {words.format(soon=SOON)}")
    assert pulse.get("s").timed.kind == kind


def test_every_flag_is_kept(pulse: Pulse) -> None:
    job = [
        "--payload",
        '{"to": "ada"}',
        "--topic",
        "mail",
        "--priority",
        "-5",
        "--max-attempts",
        "7",
        "--timeout",
        "30s",
    ]
    job += ["--result-ttl", "2d", "--tag", "a", "--tag", "b"]
    when = [
        "--starts-at",
        SOON.isoformat(),
        "--ends-at",
        LATER.isoformat(),
        "--max-occurrences",
        "9",
        "--tz",
        "Asia/Tokyo",
    ]
    policy = ["--jitter", "10s", "--catch-up", "replay", "--replay-limit", "8", "--overlap", "buffer_one"]

    made = pulse.create("s", *DAILY, *job, *when, *policy)

    assert made.job == NewJob(
        task="shop.report",
        payload='{"to": "ada"}',
        topic="mail",
        priority=-5,
        max_attempts=7,
        timeout=timedelta(seconds=30),
        result_ttl=timedelta(days=2),
        tags=("a", "b"),
    )
    assert (made.timed.cron, made.timed.tz) == ("0 9 * * *", "Asia/Tokyo")
    assert (made.timed.starts_at, made.timed.ends_at) == (SOON, LATER)
    assert (made.max_occurrences, made.jitter) == (9, timedelta(seconds=10))
    assert (made.catch_up, made.replay_limit, made.overlap) == (CatchUp.REPLAY, 8, Overlap.BUFFER_ONE)
    assert made.app is None


def test_the_same_again_is_unchanged_and_another_is_a_conflict(pulse: Pulse) -> None:
    made = pulse.create("report", *DAILY, "--payload", '{"to":"ada"}')

    again = pulse("create", "report", *DAILY, "--payload", '{ "to": "ada" }')
    other = pulse("create", "report", "--task", "shop.report", "--cron", "0 10 * * *")

    assert again.exit_code == 0
    assert again.output.startswith("report exists already, unchanged: at 09:00 every day, UTC.\n")
    assert other.exit_code == 4
    assert "another timetable and payload" in other.stderr
    assert pulse.get() == made


def test_what_is_over_does_not_begin_again_unsaid(pulse: Pulse) -> None:
    once = ("reminder", "--task", "t", "--delay", "1h")
    pulse.create(*once)
    pulse.fire_late("reminder", "2 hours")

    lines = lines_of(pulse("create", *once))

    assert lines[0].startswith("reminder exists already, unchanged: once, at ")
    assert lines[1:] == ["It has no more occurrences, because it is COMPLETED."]


def test_create_in_json(pulse: Pulse) -> None:
    first, second = pulse.json("create", "report", *DAILY), pulse.json("create", "report", *DAILY)

    assert (first["created"], second["created"]) == (True, False)
    assert [sorted(each) for each in first["upcoming"]] == [["at", "local", "note"]] * 3
    assert first["next_run_at"] == first["upcoming"][0]["at"]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--cron", "@daily"], 2, "--task"),
        (["--task", "t"], 2, "a schedule needs a time: give --cron '0 9 * * 1-5', --every 15m"),
        (["--task", "t", "--cron", "@daily", "--every", "5m"], 2, "--cron and --every exclude each other"),
        (
            ["--task", "t", "--run-at", "2100-01-01T00:00:00Z", "--delay", "5m"],
            2,
            "--run-at and --delay exclude each other",
        ),
        (["--task", "t", "--run-at", "tomorrow"], 2, "invalid run_at 'tomorrow' (want RFC3339), for example 2026-"),
        (["--task", "t", "--run-at", "2100-01-01T00:00:00"], 2, "add one, such as 2100-01-01T00:00:00Z.\n"),
        (["--task", "t", "--run-at", "2020-01-01T00:00:00Z"], 1, "is not in the future"),
        (["--task", "t", "--delay", "soon"], 2, "is not a duration"),
        (["--task", "t", "--every", "1ms"], 1, "from 1s to ten years"),
        ([*DAILY, "--starts-at", "2026"], 2, "invalid starts_at '2026' (want RFC3339)"),
        ([*DAILY, "--starts-at", "{later}", "--ends-at", "{soon}"], 1, "is not before ends_at"),
        ([*DAILY, "--tz", "Europe/Berln"], 1, "did you mean 'Europe/Berlin'?"),
        (["--task", "t", "--cron", "0 0 * * 7"], 1, "'7' is out of range"),
        (["--task", "t", "--cron", "0 0 31 2 *"], 1, "yields no future time"),
        ([*DAILY, "--catch-up", "all"], 2, "'all' is not one of 'fire_once', 'skip', 'replay'"),
        ([*DAILY, "--overlap", "never"], 2, "'never' is not one of 'allow', 'skip', 'buffer_one'"),
        ([*DAILY, "--replay-limit", "1001"], 2, "1<=x<=1000"),
        ([*DAILY, "--priority", "101"], 2, "-100<=x<=100"),
        ([*DAILY, "--max-occurrences", "0"], 2, "x>=1"),
        ([*DAILY, "--payload", "{to"], 2, """write an object, as in '{"to": "ada"}'"""),
        ([*DAILY, "--payload", "[1]"], 2, "must be an object with arguments by name"),
        ([*DAILY, "--topic", "*"], 1, "stands for all topics"),
    ],
)
def test_what_makes_no_schedule_is_refused(pulse: Pulse, flags: list[str], code: int, words: str) -> None:
    result = pulse("create", "s", *filled(flags))

    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert pulse.names() == []


# --- edit


def test_only_what_is_given_changes(pulse: Pulse) -> None:
    before = pulse.create("report", *DAILY, "--tz", "Asia/Tokyo", "--payload", '{"to": "ada"}', "--tag", "a")

    result = pulse("edit", "report", "--overlap", "skip", "--topic", "mail")

    after = pulse.get()
    assert result.output.startswith("Changed report: at 09:00 every day, Asia/Tokyo.\nNext:\n")
    assert (after.overlap, after.job.topic) == (Overlap.SKIP, "mail")
    assert (after.timed, after.next_run_at) == (before.timed, before.next_run_at)
    assert (after.job.payload, after.job.tags) == (before.job.payload, before.job.tags)


def test_another_way_to_say_when_replaces_the_first(pulse: Pulse) -> None:
    pulse.create()

    assert pulse.json("edit", "report", "--every", "6h")["explained"] == "every 6h"
    assert pulse.get().timed.cron is None


def test_what_is_there_can_be_taken_away(pulse: Pulse) -> None:
    given = [
        "--starts-at",
        SOON.isoformat(),
        "--ends-at",
        LATER.isoformat(),
        "--max-occurrences",
        "9",
        "--jitter",
        "10s",
    ]
    pulse.create("report", *DAILY, *given, "--timeout", "9s", "--result-ttl", "1d", "--tag", "a")

    cleared = [
        "--no-starts-at",
        "--no-ends-at",
        "--no-max-occurrences",
        "--no-jitter",
        "--no-timeout",
        "--no-result-ttl",
        "--no-tag",
    ]
    assert pulse("edit", "report", *cleared).exit_code == 0

    after = pulse.get()
    assert (after.timed.starts_at, after.timed.ends_at, after.max_occurrences, after.jitter) == (None,) * 4
    assert (after.job.timeout, after.job.result_ttl, after.job.tags) == (None, None, ())


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "nothing to change"),
        (["--ends-at", "2101-01-01T00:00:00Z", "--no-ends-at"], 2, "--ends-at and --no-ends-at exclude each other"),
        (["--tag", "a", "--no-tag"], 2, "--tag and --no-tag exclude each other"),
        (["--cron", "@daily", "--every", "5m"], 2, "--cron and --every exclude each other"),
        (["--cron", "* * *"], 1, "expected exactly 5 fields"),
        (["--tz", "Berlin"], 1, "did you mean 'Europe/Berlin'?"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(pulse: Pulse, flags: list[str], code: int, words: str) -> None:
    made = pulse.create()

    result = pulse("edit", "report", *flags)

    assert result.exit_code == code
    assert words in result.stderr
    assert pulse.get() == made


# --- pause, resume, delete


def test_a_schedule_is_paused_and_resumed(pulse: Pulse) -> None:
    pulse.create()

    paused = pulse("pause", "report", "--reason", "audit").output
    assert re.fullmatch(r"report is paused since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\+00:00\.\n", paused)
    assert pulse.get().pause_reason == "audit"
    assert pulse("preview", "report").output.startswith("At 09:00 every day, UTC, but paused.\n")
    assert re.fullmatch(r"report resumed; next in \d+ \w+\.\n", pulse("resume", "report").output)
    assert "not paused, so nothing was changed" in pulse("resume", "report").output


@pytest.mark.parametrize(
    ("catch_up", "says"), [("fire_once", r"it was due 2 min ago and runs now"), ("skip", "it is COMPLETED")]
)
def test_what_was_to_happen_once_during_a_pause_is_said_when_it_is_resumed(
    pulse: Pulse, catch_up: str, says: str
) -> None:
    pulse.create("once", "--task", "report", "--delay", "1h", "--catch-up", catch_up)
    pulse("pause", "once")
    pulse.move_back("once", "1 hour 2 minutes 1 second")

    assert re.fullmatch(rf"once resumed; {says}\.\n", pulse("resume", "once").output)


def test_pause_and_resume_in_json(pulse: Pulse) -> None:
    pulse.create()

    assert pulse.json("pause", "report", "--reason", "audit")["pause_reason"] == "audit"
    assert pulse.json("resume", "report")["was_paused"] is True
    assert pulse.json("resume", "report")["was_paused"] is False


def test_an_empty_zone_is_utc(pulse: Pulse) -> None:
    made = pulse.create("report", *DAILY, "--tz", "")

    assert made.timed.tz == "UTC"


def test_a_schedule_is_deleted_and_its_jobs_stay(pulse: Pulse) -> None:
    pulse.create()
    job_id = pulse("trigger", "report").output.strip()

    assert pulse("delete", "report", "--yes").output == "report is deleted.\n"
    assert pulse.names() == []
    assert pulse.job(job_id).status is JobStatus.PENDING


def test_the_jobs_and_the_log_of_a_schedule_are_found_by_its_id_once_it_is_deleted(pulse: Pulse) -> None:
    made = pulse.create()
    job_id = pulse("trigger", "report").output.strip()
    run_with_engine(pulse.settings, lambda engine: engine.jobs.submit([a_new_job()]))

    def jobs_of(schedule: object) -> list[str]:
        found = call_json("jobs", "list", "--schedule", schedule, **pulse.env)
        return [job["id"] for job in found["jobs"]]

    assert jobs_of("report") == jobs_of(made.id) == [job_id]
    pulse("delete", "report", "--yes")
    assert jobs_of(made.id) == [job_id]
    assert [fire["job_id"] for fire in pulse.json("fires", made.id)["fires"]] == [job_id]
    heading, _, line = lines_of(pulse("fires", made.id))
    assert heading == f"Occurrences of {made.id}, which was deleted, UTC:"
    assert job_id in line
    assert call("jobs", "list", "--schedule", "report", **pulse.env).exit_code != 0


def test_without_a_terminal_a_delete_needs_a_yes(pulse: Pulse) -> None:
    pulse.create()

    result = pulse("delete", "report")

    assert result.exit_code == 2
    assert "needs --yes" in result.stderr
    assert pulse.names() == ["report"]


@pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, []), ("n\n", 1, ["report"])])
def test_on_a_terminal_one_is_asked_before_a_delete(pulse: Pulse, typed: str, code: int, left: list[str]) -> None:
    pulse.create()

    ended = run_on_terminal("schedules", "delete", "report", typed=typed, env=pulse.env)

    assert "Delete report (at 09:00 every day, UTC)? [y/N]" in ended.output
    assert ended.exit_code == code
    assert pulse.names() == left


# --- list


def test_schedules_are_listed_by_what_they_have_in_common(pulse: Pulse) -> None:
    pulse.create("a", *DAILY, "--topic", "mail", "--tag", "vip")
    pulse.create("b", "--task", "shop.sweep", "--every", "1h")
    pulse.create("c", "--task", "shop.sweep", "--delay", "1h")
    pulse("pause", "b")
    pulse.fire_late("c", "2 hours")

    assert pulse.names() == ["a", "b", "c"]
    assert pulse.names("--task", "shop.sweep") == ["b", "c"]
    assert pulse.names("--topic", "mail") == pulse.names("--tag", "vip") == ["a"]
    assert pulse.names("--paused") == ["b"]
    assert pulse.names("--not-paused") == ["a", "c"]
    assert pulse.names("--status", "Completed") == ["c"]
    assert pulse.names("--status", "active", "--not-paused") == ["a"]


def test_the_list_for_people(pulse: Pulse) -> None:
    pulse.create("a", *DAILY, "--tz", "Europe/Berlin")
    pulse.create("b", "--task", "t", "--every", "1h")
    pulse.create("c", "--task", "t", "--delay", "3h")
    pulse.create("d", "--task", "t", "--every", "1h")
    pulse.create("e", "--task", "t", "--every", "1h")
    pulse("pause", "b")
    pulse.fire_late("c", "4 hours")
    pulse.execute("update pulse.schedules set next_run_at = now() - interval '5 minutes' where name = 'd'")
    pulse.execute("update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'x' where name = 'e'")

    lines = lines_of(pulse("list"))

    assert lines[0].split() == ["NAME", "STATUS", "NEXT", "LAST", "WHEN"]
    assert re.fullmatch(r"a +ACTIVE +in \d+ \w+ +- +at 09:00 every day, Europe/Berlin", lines[1])
    assert re.fullmatch(r"b +paused +- +- +every 1h", lines[2])
    assert re.fullmatch(r"c +COMPLETED +- +1 h ago +once, at 20.+", lines[3])
    assert re.fullmatch(r"d +ACTIVE +due 5 min ago +- +every 1h", lines[4])
    assert re.fullmatch(r"e +BROKEN +- +- +every 1h", lines[5])


def test_an_empty_list_says_so(pulse: Pulse) -> None:
    assert pulse("list").output == "No schedules match.\n"
    assert pulse.json("list") == {"schedules": [], "next": None}


def test_pages_follow_one_another_and_can_be_pasted_into_a_shell(pulse: Pulse) -> None:
    for name in ("a b", "c", "d"):
        pulse.create(name)

    first = pulse.json("list", "--limit", 1)

    assert first["next"] == "a b"
    assert lines_of(pulse("list", "--limit", 1))[-1] == "More: repeat with --after 'a b'"
    assert pulse.names("--limit", 2, "--after", first["next"]) == ["c", "d"]
    assert pulse.json("list", "--after", "c")["next"] is None


def test_a_pause_is_not_a_state_and_where_to_look_is_said() -> None:
    result = call("schedules", "list", "--status", "paused")

    assert result.exit_code == 2
    assert "one of active, completed, broken, disabled, not 'paused'. For paused ones use --paused." in result.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_its_terminal(pulse: Pulse, columns: int) -> None:
    cron = ["--cron", "*/15 9-17 1,15 * 1-5", "--tz", "America/Argentina/Buenos_Aires"]
    pulse.create("a-schedule-whose-name-is-a-long-one-" + "x" * 60, "--task", "t", *cron)

    ended = run_on_terminal("schedules", "list", columns=columns, env=pulse.env)

    lines = ended.text.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= columns
    assert "a-schedule-whos" in lines[1]
    assert "every 15 minutes from" in lines[1]


# --- show


def test_a_schedule_is_shown_with_all_there_is(pulse: Pulse) -> None:
    pulse.create("report", *DAILY, "--tz", "Europe/Berlin", "--jitter", "90s", "--tag", "a", "--tag", "b")
    pulse.fire_late("report", "7 days")
    pulse("pause", "report", "--reason", "audit")

    output = pulse("show", "report").output

    for name in (*EDITABLE, "status", "next_run_at", "last_run_at", "fired", "pause_reason", "error", "created_at"):
        if name not in ("every", "run_at", "delay"):  # which a cron schedule does not have
            assert re.search(rf"^{name} ", output, re.MULTILINE), name
    assert re.search(r"^status +ACTIVE, paused", output, re.MULTILINE)
    assert re.search(r"^owner +created by hand, not in code", output, re.MULTILINE)
    assert re.search(r"^means +at 09:00 every day, Europe/Berlin", output, re.MULTILINE)
    assert re.search(r"^jitter +1m30s", output, re.MULTILINE)
    assert re.search(r"^tags +a, b", output, re.MULTILINE)
    upcoming, last = output.split("\nNext, but it is paused, Europe/Berlin:\n")[1].split("\nLast, Europe/Berlin:\n")
    assert len(upcoming.splitlines()) == 1 + 5
    assert "COALESCED" in last
    assert "09:00" in last


def test_by_its_id_as_well(pulse: Pulse) -> None:
    made = pulse.create()

    assert pulse.json("show", made.id)["name"] == "report"


def test_what_broke_it_is_shown_in_red(pulse: Pulse) -> None:
    pulse.create()
    pulse.execute("update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'no such zone', tz = 'X'")

    ended = run_on_terminal("schedules", "show", "report", env=pulse.env)

    assert "\x1b[31mno such zone" in ended.output
    assert re.search(r"means +cron '0 9 \* \* \*', X", ended.text)
    assert ended.exit_code == 0
    assert "cron '0 9 * * *', X" in pulse("list").output


def test_the_document_has_one_flat_object_and_what_is_json_as_it_is(pulse: Pulse) -> None:
    pulse.create("report", *DAILY, "--payload", '{"n": 1.10}', "--jitter", "90s", "--tag", "a")
    pulse.fire_late("report", "2 days")

    raw = pulse("show", "report", "--json").stdout
    shown = json.loads(raw)

    assert set(EDITABLE) - {"delay"} <= set(shown)
    assert "1.10" in raw
    assert (shown["topic"], shown["tags"], shown["jitter"], shown["app"]) == ("shop.report", ["a"], "PT90S", None)
    assert shown["explained"] == "at 09:00 every day, UTC"
    assert len(shown["upcoming"]) == 5
    assert {fire["outcome"] for fire in shown["fires"]} == {"FIRED", "COALESCED"}
    listed = pulse.json("list")["schedules"][0]
    assert listed == {name: value for name, value in shown.items() if name not in ("upcoming", "fires")}


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_nothing_in_a_schedule_controls_the_terminal(pulse: Pulse, flags: list[str]) -> None:
    made = pulse.create("re\u202eport", *DAILY, "--payload", json.dumps({"x": NASTY}), "--tag", "\u202e")
    pulse("pause", made.id, "--reason", NASTY)
    pulse.execute("update pulse.schedules set error = $1", NASTY)
    pulse.log(made, "SKIPPED", MARCH, reason=NASTY)

    each = (["list"], ["show", made.id], ["fires", made.id], ["preview", made.id], ["delete", made.id, "--yes"])
    outputs = [pulse(*args, *flags).output for args in each]

    assert "evil" in "".join(outputs)
    assert not [RAW.findall(output) for output in outputs if RAW.search(output)]


# --- preview


def test_the_next_occurrences_of_a_schedule(pulse: Pulse) -> None:
    pulse.create("report", *DAILY, "--tz", "Asia/Tokyo", "--max-occurrences", "2")

    lines = lines_of(pulse("preview", "report", "-n", 7))
    document = pulse.json("preview", "report", "-n", 1)

    assert lines[0] == "At 09:00 every day, Asia/Tokyo."
    assert len(lines) == 2 + 2
    assert (document["explained"], document["tz"]) == ("at 09:00 every day, Asia/Tokyo", "Asia/Tokyo")
    assert [each["local"][10:] for each in document["occurrences"]] == ["T09:00:00+09:00"]


def test_one_that_is_over_has_none(pulse: Pulse) -> None:
    pulse.create("s", "--task", "t", "--delay", "1h")
    pulse.fire_late("s", "2 hours")

    assert ": no more occurrences.\n" in pulse("preview", "s").output


CLOCKS_CHANGE = ("preview", "--cron", "30 2 8-14 3 *", "--tz", "America/New_York", "-n", 7)


def test_a_clock_change_is_noted(pulse: Pulse) -> None:
    found = pulse.json(*CLOCKS_CHANGE)["occurrences"]

    [moved] = [each for each in found if each["note"]]
    assert moved["local"].endswith("T03:00:00-04:00")
    assert moved["note"].startswith("moved: 02:30 does not exist, clocks go forward on ")
    assert moved["note"] in pulse(*CLOCKS_CHANGE).output


def test_a_note_is_folded_and_not_cut(pulse: Pulse) -> None:
    [note] = [each["note"] for each in pulse.json(*CLOCKS_CHANGE)["occurrences"] if each["note"]]

    ended = run_on_terminal("schedules", *CLOCKS_CHANGE, env=pulse.env)

    lines = ended.text.splitlines()
    assert max(map(len, lines)) <= 80
    column = lines[1].index("NOTE")
    assert " ".join(line[column:].strip() for line in lines[2:]).strip() == note


def test_intervals_are_told_in_local_time_unless_a_zone_is_given(pulse: Pulse) -> None:
    assert "+00:00" in run_process("schedules", "preview", "--every", "6h", **pulse.env).stdout
    assert "+09:00" in run_process("schedules", "preview", "--every", "6h", **pulse.env | {"TZ": "Asia/Tokyo"}).stdout
    assert "+09:00" in pulse("preview", "--every", "6h", "--tz", "Asia/Tokyo").output


def test_a_timetable_needs_no_database(tmp_path: Path) -> None:
    nowhere = {"PULSE_DATABASE_URL": None, "DATABASE_URL": None, "PULSE_STATE_DIR": str(tmp_path / "none")}

    found = call_json("schedules", "preview", "--cron", "@daily", "-n", 3, **nowhere)

    instants = [datetime.fromisoformat(each["at"]) for each in found["occurrences"]]
    assert [instant - instants[0] for instant in instants] == [timedelta(days=n) for n in range(3)]
    assert timedelta() < instants[0] - datetime.now(UTC) <= timedelta(days=1)
    assert not (tmp_path / "none").exists()
    assert call("schedules", "preview", "report", **nowhere).exit_code == 5


def test_nor_one_that_answers_and_the_clock_it_goes_by_is_said() -> None:
    result = call("schedules", "preview", "--every", "6h", PULSE_DATABASE_URL=UNREACHABLE)

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 12
    assert "so the clock of this machine is used" in result.stderr


def test_where_there_is_a_database_its_clock_decides(pulse: Pulse) -> None:
    frozen = (
        "create or replace function pulse.now() returns timestamptz language sql stable parallel safe as $$select {}$$"
    )
    pulse.execute(frozen.format("timestamptz '2030-01-01T12:00Z'"))
    try:
        found = pulse.json("preview", "--cron", "@daily", "-n", 1)
    finally:
        pulse.execute(frozen.format("statement_timestamp()"))

    assert found["occurrences"][0]["at"] == "2030-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "give either a NAME, or --cron"),
        (["report", "--every", "5m"], 2, "give either a NAME, or --cron"),
        (["--cron", "@daily", "--every", "5m"], 2, "give either a NAME, or --cron"),
        (["report", "--tz", "UTC"], 2, "a schedule has its own time zone"),
        (["--cron", "@daily", "-n", "1001"], 2, "1<=x<=1000"),
        (["--cron", "@dayly"], 1, "unknown descriptor '@dayly'"),
        (["--cron", "@daily", "--tz", "berlin"], 1, "did you mean 'Europe/Berlin'?"),
        (["--cron", "0 0 31 2 *"], 1, "yields no future time"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_preview_of_nothing_is_refused(
    settings: Settings, flags: list[str], code: int, words: str, is_there: bool, tmp_path: Path
) -> None:
    address = str(settings.database_url) if is_there else None
    result = call("schedules", "preview", *flags, PULSE_DATABASE_URL=address, PULSE_STATE_DIR=str(tmp_path / "none"))

    assert result.exit_code == code
    assert words in result.stderr


# --- fires


def test_the_log_says_what_became_of_each(pulse: Pulse) -> None:
    made = pulse.create()
    minute = timedelta(minutes=1)
    at = MARCH + timedelta(hours=12)
    gone = UUID(int=7)
    pulse.log(made, "FIRED", at, job_id=gone, logged_at=at + timedelta(seconds=3))
    pulse.log(made, "COALESCED", at + minute, occurrences=59, newest=at + 59 * minute, reason="missed")
    pulse.log(made, "SKIPPED", at + 60 * minute, reason="overlap: a job before it is unfinished")
    pulse.log(made, "SKIPPED", at + 61 * minute, occurrences=2880, newest=at + timedelta(days=2), reason="missed")
    pulse.log(made, "FIRED", at + timedelta(days=3), cause="backfill", job_id=UUID(int=8))

    lines = lines_of(pulse("fires", "report"))

    assert lines[0] == "Occurrences of report, UTC:"
    assert re.split("  +", lines[1]) == ["OCCURRENCE", "LATE", "OUTCOME", "JOB, OR WHY NONE"]
    assert [re.split("  +", line) for line in lines[2:]] == [
        ["2026-03-05 12:00", "backfill", "FIRED", str(UUID(int=8))],
        ["2026-03-02 13:01", "on time", "SKIPPED", "2,880 missed, until 2026-03-04 12:00"],
        ["2026-03-02 13:00", "on time", "SKIPPED", "overlap: a job before it is unfinished"],
        ["2026-03-02 12:01", "on time", "COALESCED", "59 missed, 12:01 … 12:59"],
        ["2026-03-02 12:00", "3 s", "FIRED", str(gone)],
    ]


def test_with_how_the_job_stands(pulse: Pulse) -> None:
    pulse.create()
    pulse.fire_late("report", "3 days")
    job_id = pulse("trigger", "report").output.strip()

    output = pulse("fires", "report").output

    assert re.search(rf"trigger +PENDING +{job_id}", output)
    assert re.search(rf"\d d +PENDING +{pulse.fires()[-1].job_id}", output)


def test_the_log_is_told_in_the_zone_of_its_cron_line(pulse: Pulse) -> None:
    made = pulse.create("report", *DAILY, "--tz", "Asia/Tokyo")
    pulse.log(made, "SKIPPED", MARCH)

    assert "2026-03-02 09:00" in pulse("fires", "report").output
    assert pulse("fires", "report").output.startswith("Occurrences of report, Asia/Tokyo:\n")


def test_the_log_goes_on_from_page_to_page(pulse: Pulse) -> None:
    made = pulse.create()
    for day in range(3):
        pulse.log(made, "SKIPPED", MARCH + timedelta(days=day), reason="missed")

    first = pulse.json("fires", "report", "--limit", 2)
    second = pulse.json("fires", "report", "--limit", 2, "--after", first["next"])

    assert [fire["occurrence"][8:10] for fire in first["fires"] + second["fires"]] == ["04", "03", "02"]
    assert second["next"] is None
    assert set(first["fires"][0]) == {*Fire.__struct_fields__, "late"}
    assert lines_of(pulse("fires", "report", "--limit", 2))[-1] == f"More: repeat with --after '{first['next']}'"
    assert pulse("fires", "report", "--after", "x").exit_code == 1


def test_a_log_without_a_line(pulse: Pulse) -> None:
    pulse.create()

    assert pulse("fires", "report").output == "report has not had an occurrence yet.\n"


def test_the_log_fits_on_eighty_columns_with_the_ids_whole(pulse: Pulse) -> None:
    pulse.create("report", "--task", "t", "--every", "1h")
    pulse.fire_late("report", "3 days 7 seconds")
    pulse.execute("update pulse.jobs set status = 'DEAD_LETTERED', finished_at = now(), last_error = 'x'")
    pulse("backfill", "report", "--from", "6d", "--to", "5d")
    pulse("trigger", "report")

    for command, count in (("fires", 19), ("show", 1 + 4)):  # the schedule has one too; one line stands for none
        lines = run_on_terminal("schedules", command, "report", env=pulse.env).text.splitlines()

        assert max(map(len, lines)) <= 80
        assert len(UUIDS.findall("\n".join(lines))) == count


# --- trigger, backfill


def test_a_trigger_prints_the_id_and_nothing_else(pulse: Pulse) -> None:
    pulse.create("report", *DAILY, "--payload", '{"to": "ada"}')
    pulse("pause", "report")

    result = pulse("trigger", "report")

    assert UUIDS.fullmatch(result.output.strip())
    job = pulse.job(result.output.strip())
    assert (job.task, job.schedule_id) == ("shop.report", pulse.get().id)
    assert json.loads(job.payload) == {"to": "ada"}
    again = pulse.json("trigger", "report")
    assert (again["cause"], again["outcome"]) == ("trigger", "FIRED")
    assert pulse.job(again["job_id"]).status is JobStatus.PENDING


STRETCH = ("--from", "2026-03-02T00:00Z", "--to", "2026-03-05T00:00Z")


def test_a_backfill_is_shown_before_it_is_made(pulse: Pulse) -> None:
    pulse.create()

    lines = lines_of(pulse("backfill", "report", *STRETCH, "--dry-run"))

    assert lines == [
        "OCCURRENCE",
        "Mon 2026-03-02 09:00 +00:00",
        "Tue 2026-03-03 09:00 +00:00",
        "Wed 2026-03-04 09:00 +00:00",
        "3 jobs would be made without --dry-run.",
    ]
    assert pulse.jobs() == []


def test_a_backfill_makes_each_job_once(pulse: Pulse) -> None:
    pulse.create()

    first, second = pulse("backfill", "report", *STRETCH), pulse("backfill", "report", *STRETCH)

    assert lines_of(first)[-1] == "3 jobs made."
    assert {str(job.id) for job in pulse.jobs()} == set(UUIDS.findall(first.output))
    assert len(pulse.jobs()) == 3
    assert second.output == "Nothing to do: all occurrences of report in that time have made their jobs.\n"


def test_a_backfill_in_json(pulse: Pulse) -> None:
    pulse.create()

    dry = pulse.json("backfill", "report", *STRETCH, "--dry-run")
    done = pulse.json("backfill", "report", *STRETCH)

    assert dry == {"occurrences": done["occurrences"], "job_ids": [], "dry_run": True}
    assert done["dry_run"] is False
    assert {str(job.id) for job in pulse.jobs()} == set(done["job_ids"])
    assert done["occurrences"][0] == "2026-03-02T09:00:00Z"


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--from", "2d"], 2, "--to"),
        (["--from", "yesterday", "--to", "0s"], 2, "must be a time"),
        (["--from", "1d", "--to", "2d"], 1, "start must be before end"),
        (["--from", "1d", "--to", "2100-01-01T00:00Z"], 1, "end must be now or earlier"),
        ([*STRETCH, "--limit", "2"], 1, "limit must be large enough for all occurrences"),
        ([*STRETCH, "--limit", "10001"], 2, "1<=x<=1000"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_refused(pulse: Pulse, flags: list[str], code: int, words: str) -> None:
    pulse.create()

    result = pulse("backfill", "report", *flags)

    assert result.exit_code == code
    assert words in result.stderr
    assert pulse.jobs() == []


# --- sync

CODE = """
from datetime import timedelta
from types import SimpleNamespace

from pulse import Pulse
from pulse.model.jobs import NewJob
from pulse.model.schedules import Declared, NewSchedule

def declared(name, **given):
    aliases = given.pop("aliases", ())
    return Declared(schedule=NewSchedule(name=name, job=NewJob(task="t"), **given), aliases=aliases)

app = Pulse({address})
app.schedules = SimpleNamespace(declared=[{declared}])
"""
HOURLY = "every=timedelta(hours=1)"


class Code:
    """An application in a file, whose schedules change from deploy to deploy."""

    def __init__(self, pulse: Pulse, folder: Path) -> None:
        self.file = folder / "shop_tasks.py"
        self.pulse = pulse
        self.address = ""
        self.path = "shop_tasks:app"

    def declare(self, *declared: str) -> None:
        rewrite(self.file, CODE.format(declared=", ".join(declared), address=self.address))

    def sync(self, *flags: object, **env: str) -> tuple[int, list[str], str]:
        done = run_process("schedules", "sync", self.path, *flags, **self.pulse.env | env)
        return done.returncode, [line.rstrip() for line in done.stdout.splitlines()], done.stderr

    def report(self, *flags: object) -> dict[str, Any]:
        code, lines, stderr = self.sync("--json", *flags)
        assert code == 0, stderr
        return dict(json.loads("\n".join(lines)))


@pytest.fixture
def code(pulse: Pulse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Code:
    monkeypatch.chdir(tmp_path)
    return Code(pulse, tmp_path)


def test_what_code_declares_is_made_changed_renamed_disabled_and_enabled(pulse: Pulse, code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})", f"declared('b', {HOURLY})", f"declared('c', {HOURLY})")
    assert code.sync() == (0, ["created  a", "created  b", "created  c"], "")
    assert code.sync() == (0, ["Nothing to do: 3 schedules of shop_tasks:app, as declared."], "")

    code.declare(f"declared('a', {HOURLY})", "declared('b', cron='@daily')", f"declared('z', {HOURLY}, aliases=('c',))")
    assert code.sync() == (0, ["renamed  c to z", "changed  b", "1 schedule unchanged."], "")

    code.declare(f"declared('a', {HOURLY})")
    assert code.sync() == (0, ["disabled  b", "disabled  z", "1 schedule unchanged."], "")
    assert pulse.names("--status", "disabled") == ["b", "z"]

    code.declare(f"declared('a', {HOURLY})", "declared('b', cron='@daily')")
    assert code.sync() == (0, ["enabled  b", "1 schedule unchanged."], "")
    assert code.sync("--prune") == (0, ["deleted  z", "2 schedules unchanged."], "")
    assert pulse.names() == ["a", "b"]


def test_a_dry_run_writes_nothing(pulse: Pulse, code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")

    assert code.sync("--dry-run", "--deploy", "9") == (
        0,
        ["created  a", "Nothing was changed, because of --dry-run."],
        "",
    )
    assert pulse.names() == []
    assert code.sync("--deploy", "8")[0] == 0  # not even the number of the deploy


def test_a_sync_in_json(code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")

    document = code.report("--dry-run")

    assert document["app"] == "shop_tasks:app"
    assert document["report"]["created"] == ["a"]
    assert document["report"]["dry_run"] is True
    assert set(document["report"]) == {
        *("created", "changed", "renamed", "enabled", "disabled", "deleted", "unchanged", "dry_run")
    }


def test_however_it_is_named_it_is_one_app(pulse: Pulse, code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")
    code.sync()

    for path in ("shop_tasks", "shop_tasks.py", "shop_tasks.py:app"):
        code.path = path
        assert code.report()["report"]["unchanged"] == ["a"]
    assert pulse.get("a").app == "shop_tasks:app"
    assert "the code of shop_tasks:app" in pulse("show", "a").output


def test_another_name_is_another_owner(pulse: Pulse, code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")

    assert code.report("--as", "shop")["app"] == "shop"
    assert pulse.get("a").app == "shop"
    result = code.sync()
    assert result[0] == 4
    assert "declared in code (shop)" in result[2]


def test_an_older_deploy_comes_too_late(code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")

    assert code.sync("--deploy", 5)[0] == 0
    assert code.sync(PULSE_DEPLOY="6")[0] == 0
    late = code.sync("--deploy", 5)
    silent = code.sync()
    unreadable = code.sync(PULSE_DEPLOY="main")

    assert (late[0], silent[0], unreadable[0]) == (4, 4, 2)
    assert "deploy 6 declared them" in late[2]
    assert "--deploy NUMBER" in silent[2]
    assert "PULSE_DEPLOY" in unreadable[2]


def test_what_code_declares_is_changed_there(pulse: Pulse, code: Code) -> None:
    code.declare(f"declared('a', {HOURLY})")
    code.sync()

    for args in (["edit", "a", "--every", "2h"], ["delete", "a", "--yes"]):
        result = pulse(*args)
        assert result.exit_code == 4
        assert "declared in code (shop_tasks:app)" in result.stderr
    assert pulse("pause", "a").exit_code == 0
    code.sync()
    assert pulse.get("a").paused_at is not None


def test_it_goes_to_the_database_that_the_code_names_unless_a_flag_names_another(pulse: Pulse, code: Code) -> None:
    code.address = repr(UNREACHABLE)
    code.declare(f"declared('a', {HOURLY})")

    reached_through_a_server = "PULSE_SERVER_URL" in pulse.env  # which has a database of its own
    assert code.sync(PULSE_PATIENCE="1s")[0] == (0 if reached_through_a_server else 5)
    if "PULSE_DATABASE_URL" in pulse.env:
        assert code.sync("--database-url", pulse.env["PULSE_DATABASE_URL"])[0] == 0


def test_an_app_without_schedules_and_one_that_is_none(code: Code) -> None:
    code.declare()

    assert code.sync()[:2] == (
        0,
        ["shop_tasks:app declares no schedules, and none of its schedules are in the database."],
    )
    code.path = "nowhere:app"
    assert code.sync()[0] == 1
    code.path = "shop_tasks:nothing"
    assert "it has shop_tasks:app" in code.sync()[2]


def test_code_that_does_not_import_is_said_before_any_database_is_asked(code: Code) -> None:
    rewrite(code.file, "1 / 0")

    result = code.sync(PULSE_DATABASE_URL=UNREACHABLE)

    assert result[0] == 1
    assert "cannot be imported: ZeroDivisionError" in result[2]


# --- tables


def test_a_column_that_folds_goes_on_below(capsys: pytest.CaptureFixture[str]) -> None:
    on = console()
    on.width = 20
    show_table([Column("A"), Column("B", rank=1, folds=True)], [["1", "one two three four"], ["2", ""]], on=on)

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "A  B",
        "1  one two three",
        "   four",
        "2",
    ]


def test_states_have_a_style_each() -> None:
    from pulse.cli.schedules.views import FIRE_STYLES, STYLES
    from pulse.model.schedules import FireOutcome

    assert set(STYLES) == set(ScheduleStatus)
    assert {*FireOutcome, *JobStatus} <= set(FIRE_STYLES)
