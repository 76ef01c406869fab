"""Does `pulse alarms` set, show and change alarms, say what came of them, and refuse in a sentence?"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import click
import pytest
from click.testing import Result

from pulse.cli.main import cli
from pulse.cli.session import run_with_engine
from pulse.engine.engine import open_engine
from pulse.event_loop import run
from pulse.model.alarms import Alarm, AlarmStatus, WakeSecret
from pulse.settings import Settings
from tests.doors.command_line import call, call_json, run_on_terminal
from tests.served import Served

LINKS = ["database", "server"]
UNREACHABLE = "postgresql://pulse@127.0.0.1:1/pulse"
NASTY = "\x1b[31mred \x9b2J \u202eevil [bold]not markup[/bold]"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
URL = "http://127.0.0.1:9/hook"
COMMANDS = "set list show cancel pause resume fire deliveries secret"
HOUR = timedelta(hours=1)
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=400)


class Pulse:
    """`pulse alarms …` over the database of this test."""

    def __init__(self, settings: Settings, server_url: str | None = None) -> None:
        self.settings = settings
        self.env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
        if server_url is not None:
            self.env = {"PULSE_SERVER_URL": server_url}
        self.env |= {"TZ": "UTC", "PULSE_ALARM_NETWORKS": "127.0.0.0/8"}

    def __call__(self, *args: object, **env: str | None) -> Result:
        return call("alarms", *args, **self.env | env)

    def json(self, *args: object, **env: str | None) -> Any:
        return call_json("alarms", *args, **self.env | env)

    def set(self, *args: object) -> Alarm:
        return self.get(self.json("set", *(args or ("n", "--delay", "1h")), "--url", URL)["id"])

    def get(self, key: str, owner: str | None = None) -> Alarm:
        return run_with_engine(self.settings, lambda engine: engine.alarms.get(key, owner=owner))

    def secrets(self) -> list[WakeSecret]:
        return run_with_engine(self.settings, lambda engine: engine.alarms.secrets())

    def execute(self, sql: str, *args: object) -> None:
        async def work() -> None:
            conn = await asyncpg.connect(self.settings.database_url)
            try:
                await conn.execute(sql, *args)
            finally:  # or uvloop waits for it for ever
                await conn.close()

        run(work())

    def log(self, alarm: Alarm, number: int, outcome: str, **more: Any) -> None:
        """A line of the past, and not so far that a server would prune it."""
        at = datetime.now(UTC) - HOUR + timedelta(seconds=number)
        line = {"alarm_id": alarm.id, "lease_id": number, "occurrence": at, "attempt": number, "outcome": outcome}
        line |= {"started_at": at, "duration": timedelta(milliseconds=1234), "answer": ""} | more
        holes = ", ".join(f"${n}" for n in range(1, len(line) + 1))
        self.execute(f"insert into pulse.deliveries ({', '.join(line)}) values ({holes})", *line.values())


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture(params=LINKS)
def pulse(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Pulse]:
    if request.param == "database":
        yield Pulse(settings)
        return
    served = Served(settings, count=1)
    try:
        yield Pulse(settings, served.start().server_url)
    finally:
        served.stop()


# --- the whole


def commands() -> dict[str, click.Command]:
    group = cli.commands["alarms"]
    assert isinstance(group, click.Group)
    return dict(group.commands)


def test_all_of_the_commands_are_there() -> None:
    assert list(commands()) == COMMANDS.split()


@pytest.mark.parametrize("name", ["", *COMMANDS.split(), "secret rotate"])
def test_each_explains_itself(name: str) -> None:
    result = call("alarms", *name.split(), "--help")

    assert result.exit_code == 0
    assert "--json" in result.output


@pytest.mark.parametrize("name", ["show", "cancel", "pause", "resume", "fire", "deliveries"])
def test_what_is_not_there_is_not_found(pulse: Pulse, name: str) -> None:
    for key in ("nothing", str(uuid4())):
        result = pulse(name, key)

        assert result.exit_code == 3
        assert f"no alarm '{key}'" in result.stderr
    assert json.loads(pulse(name, "nothing", "--json").stdout)["error"]["code"] == "alarm_not_found"


def test_without_a_database_the_exit_code_says_so() -> None:
    assert call("alarms", "list", PULSE_DATABASE_URL=UNREACHABLE, PULSE_PATIENCE="1ms").exit_code == 5


# --- set


def test_all_that_an_alarm_is_can_be_said(pulse: Pulse) -> None:
    flags = ["--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--url", URL, "--payload", '{"a": 1}', "--label", "tea"]
    flags += [
        "--header",
        "x-team=a=b",
        "--header",
        "Authorization=Bearer geheim",
        "--owner",
        "shop",
        "--idempotency-key",
        "k",
    ]

    document = pulse.json("set", "standup", *flags, "--max-failures", "0")

    alarm = pulse.get("standup", owner="shop")
    assert (alarm.cron, alarm.tz, alarm.url, alarm.label) == ("0 9 * * 1-5", "Europe/Berlin", URL, "tea")
    assert alarm.headers == {"x-team": "…", "Authorization": "…"}
    assert (alarm.owner, alarm.idempotency_key, alarm.max_failures) == ("shop", "k", 0)
    assert document["payload"] == {"a": 1}
    assert (document["id"], document["created"], document["status"]) == (str(alarm.id), True, "active")
    assert (document["cron_expr"], document["tz"]) == (alarm.cron, alarm.tz)
    assert pulse.json("set", "standup", *flags, "--max-failures", "0")["created"] is False


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["tea", "--delay", "1h"], r"Set tea: once, at [\d: -]+\+00:00; next in (59 min|1 h)\.\n"),
        (
            ["tea", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo"],
            r"Set tea: at 09:00 every day, Asia/Tokyo; next in .*\.\n",
        ),
        (["--fire-at", "{soon}"], r"Set [0-9a-f-]{36}: once, at [\d: -]+\+00:00; next in (399|400) d\.\n"),
    ],
)
def test_what_was_set_is_told_in_words(pulse: Pulse, args: list[str], says: str) -> None:
    result = pulse("set", *(SOON.isoformat() if arg == "{soon}" else arg for arg in args), "--url", URL)

    assert result.exit_code == 0
    assert re.fullmatch(says, result.output), result.output


@pytest.mark.parametrize(
    ("flags", "exit_code", "says"),
    [
        ([], 2, "an alarm needs a time: give --delay 10m, --fire-at 2026-12-31T18:00:00+01:00 or --cron"),
        (["--delay", "1h", "--cron", "@daily"], 2, "--delay and --cron exclude each other"),
        (["--delay", "1h", "--tz", "UTC"], 2, "--tz can be used only with --cron"),
        (["--delay", "soon"], 2, "soon"),
        (["--delay", "0s"], 1, "once alarm requires delay_seconds or fire_at"),
        (["--fire-at", "tomorrow"], 2, "invalid fire_at 'tomorrow' (want RFC3339)"),
        (["--fire-at", "2030-01-01 09:00"], 2, "invalid fire_at '2030-01-01 09:00' (want RFC3339)"),
        (["--fire-at", "2020-01-01T00:00:00Z"], 1, "fire_at 2020-01-01T00:00:00+00:00 is not in the future"),
        (["--cron", "61 * * * *"], 1, "61"),
        (["--cron", "@daily", "--tz", "Europe/Berlim"], 1, "Europe/Berlin"),
        (["--delay", "1h", "--payload", "{"], 2, "write JSON"),
        (["--delay", "1h", "--header", "nothing"], 2, "must be NAME=VALUE, as in x-team=billing, not 'nothing'"),
        (["--delay", "1h", "--header", "host=x"], 1, "host"),
        (["--delay", "1h", "--max-failures", "101"], 2, "101"),
        (["--delay", "1h", "--url", "https://10.0.0.1/"], 1, "10.0.0.1 is not a public address"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    pulse: Pulse, flags: list[str], exit_code: int, says: str
) -> None:
    given = flags if "--url" in flags else [*flags, "--url", URL]

    result = pulse("set", "n", *given)

    assert result.exit_code == exit_code
    assert says in result.stderr
    assert pulse.json("list")["alarms"] == []


def test_a_key_that_was_used_for_another_is_a_conflict(pulse: Pulse) -> None:
    pulse.set("--delay", "1h", "--idempotency-key", "k")

    assert pulse("set", "--delay", "2h", "--url", URL, "--idempotency-key", "k").exit_code == 4


def test_without_a_url_there_has_to_be_a_default_target(settings: Settings) -> None:
    pulse = Pulse(settings)

    assert "no default target" in pulse("set", "--delay", "1h").stderr
    assert pulse.json("set", "--delay", "1h", PULSE_ALARM_TARGET="http://127.0.0.1:9/")["url"] is None


# --- looking


def test_a_list_is_filtered_and_goes_on(pulse: Pulse) -> None:
    made = [pulse.set(f"n{n}", "--delay", "1h", "--label", f"l{n % 2}", "--owner", f"o{n % 2}") for n in range(4)]
    pulse("pause", "n3", "--owner", "o1")
    pulse("cancel", made[0].id)

    def names(*flags: object) -> list[str]:
        return [alarm["name"] for alarm in pulse.json("list", *flags)["alarms"]]

    assert names() == ["n3", "n2", "n1", "n0"]
    assert names("--owner", "o0") == ["n2", "n0"]
    assert names("--status", "CANCELLED") == ["n0"]
    assert names("--paused") == names("--label", "l1", "--paused") == ["n3"]
    assert names("--not-paused", "--label", "l1") == ["n1"]
    first = pulse.json("list", "--limit", 3)
    assert [alarm["name"] for alarm in pulse.json("list", "--after", first["next"])["alarms"]] == ["n0"]
    assert f"More: repeat with --after {first['next']}" in pulse("list", "--limit", 3).output
    assert "No alarms match." in pulse("list", "--status", "failed").output
    refused = pulse("list", "--status", "broken")
    assert (refused.exit_code, "must be one of active, fired, failed, cancelled" in refused.stderr) == (2, True)


def test_a_table_says_how_each_stands(pulse: Pulse) -> None:
    for name in ("waiting", "paused", "retrying", "failed", "ringing", "due"):
        pulse.set(name, "--delay", "1h")
    pulse("pause", "paused")
    pulse.execute("update pulse.alarms set failure_count = 2, last_error = 'no' where name = 'retrying'")
    pulse.execute(
        "update pulse.alarms set status = 'failed', next_fire_at = null, finished_at = now() where name = 'failed'"
    )
    pulse.execute("update pulse.alarms set ready_at = now(), lease_until = now() + '1h' where name = 'ringing'")
    pulse.execute(
        "update pulse.alarms set next_fire_at = now() - interval '61s', lease_until = now() + '1h', ready_at = now() "
        "where name = 'due'"
    )

    lines = pulse("list").output.splitlines()

    rows = {re.split(r"\s{2,}", line)[3]: re.split(r"\s{2,}", line) for line in lines[1:]}
    assert lines[0].split() == ["ID", "STATUS", "NEXT", "NAME", "OWNER", "WHEN"]
    assert {name: row[1] for name, row in rows.items()} == {
        "waiting": "active",
        "paused": "paused",
        "retrying": "retrying (2 of 5)",
        "failed": "failed",
        "ringing": "ringing",
        "due": "ringing",
    }
    assert (rows["paused"][2], rows["failed"][2], rows["due"][2]) == ("-", "-", "due 1 min ago")


def test_a_page_has_everything_and_the_last_deliveries(pulse: Pulse) -> None:
    alarm = pulse.set("n", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo", "--payload", '{"a": 1}', "--header", "x-a=b")
    pulse.log(alarm, 1, "failed", status=503, error="it answered 503", answer="no")
    pulse.log(alarm, 2, "delivered", status=200, note="coalesced 2 occurrences from then")

    text = pulse("show", "n").output
    document = pulse.json("show", alarm.id)

    for words in ("at 09:00 every day, Asia/Tokyo", '{"a": 1}', "x-a: …", URL, "it answered 503", "1,234 ms", "local"):
        assert words in text
    assert [each["outcome"] for each in document["deliveries"]] == ["delivered", "failed"]
    assert document["deliveries"][1]["status"] == 503
    assert document["next_fire_at"] == alarm.next_fire_at.isoformat().replace("+00:00", "Z")  # type: ignore[union-attr]


def test_deliveries_come_in_pages(pulse: Pulse) -> None:
    alarm = pulse.set("n", "--delay", "1h")
    assert "There has been no attempt to deliver n yet." in pulse("deliveries", "n").output
    for number in range(1, 4):
        pulse.log(alarm, number, "failed", error="no route to host")

    first = pulse.json("deliveries", "n", "--limit", 2)
    rest = pulse.json("deliveries", "n", "--after", first["next"])

    assert [each["attempt"] for each in first["deliveries"] + rest["deliveries"]] == [3, 2, 1]
    assert rest["next"] is None
    assert first["deliveries"][0]["error"] == "no route to host"
    assert "no route to host" in pulse("deliveries", alarm.id).output


def test_what_others_wrote_does_not_command_the_terminal(settings: Settings) -> None:
    pulse = Pulse(settings)
    alarm = pulse.set("n", "--delay", "1h", "--payload", json.dumps(NASTY), "--label", NASTY)
    pulse.log(alarm, 1, "failed", error=NASTY, answer=NASTY)

    for args in (["list"], ["show", "n"], ["deliveries", "n"], ["list", "--json"], ["show", "n", "--json"]):
        result = pulse(*args)
        assert result.exit_code == 0
        assert not RAW.search(result.output), args
        assert "[bold]" in result.output


def test_a_narrow_terminal_gets_what_matters(settings: Settings) -> None:
    pulse = Pulse(settings)
    pulse.set("a rather long name of an alarm", "--delay", "1h", "--label", "and a label")

    ended = run_on_terminal("alarms", "list", columns=80, env=pulse.env)

    lines = ended.text.splitlines()
    assert ended.exit_code == 0
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert {"STATUS", "NAME", "OWNER", "WHEN"} <= set(lines[0].split())
    assert "ID" not in lines[0].split()


def test_on_a_narrow_terminal_alarms_of_one_name_are_told_apart_by_their_owners(settings: Settings) -> None:
    pulse = Pulse(settings)
    for owner in ("shop", "warehouse"):
        pulse.set("trial-ends:42", "--fire-at", "2030-12-31T18:00:00Z", "--owner", owner)
    pulse.execute("update pulse.alarms set failure_count = 2, last_error = 'no'")

    ended = run_on_terminal("alarms", "list", columns=80, env=pulse.env)

    for line, owner in zip(ended.text.splitlines()[1:], ("warehouse", "shop"), strict=True):
        for words in ("retrying (2 of 5)", "trial-ends:42", owner, "2030-12-31 18:00"):
            assert words in line


def test_on_a_narrow_terminal_an_alarm_without_a_name_has_its_id_whole(settings: Settings) -> None:
    pulse = Pulse(settings)
    named, unnamed = pulse.set("a-name", "--delay", "1h"), pulse.set("--delay", "1h")

    ended = run_on_terminal("alarms", "list", columns=80, env=pulse.env)

    assert str(unnamed.id) in ended.text
    assert str(named.id) not in ended.text
    assert {"STATUS", "NAME", "OWNER", "WHEN"} <= set(ended.text.splitlines()[0].split())


# --- changing


def test_an_alarm_is_paused_resumed_fired_and_cancelled(pulse: Pulse) -> None:
    alarm = pulse.set("n", "--cron", "@hourly")

    assert pulse("pause", "n").output == "n is paused.\n"
    assert pulse.get("n").paused_at is not None
    assert re.fullmatch(r"n is resumed; next in .*\.\n", pulse("resume", alarm.id).output)
    assert pulse.json("resume", "n")["paused_at"] is None
    assert pulse("cancel", "n").output == "n is cancelled.\n"
    assert pulse.json("cancel", alarm.id)["status"] == "cancelled"
    for deed in ("pause", "fire"):
        assert pulse(deed, "n").exit_code == 4
    assert pulse.get("n").status is AlarmStatus.CANCELLED


def test_what_is_fired_is_due_now(settings: Settings) -> None:
    pulse = Pulse(settings)  # a server would deliver it meanwhile
    alarm = pulse.set("n", "--delay", "1h")

    assert pulse("fire", "n").output == "n will be delivered now.\n"

    fired = pulse.get("n")
    assert fired.next_fire_at is not None
    assert alarm.next_fire_at is not None
    assert fired.next_fire_at < alarm.next_fire_at - HOUR / 2


def test_an_alarm_is_its_owners(pulse: Pulse) -> None:
    alarm = pulse.set("n", "--delay", "1h", "--owner", "shop")

    assert pulse("show", "n").exit_code == 3
    assert pulse("show", "n", "--owner", "bob").exit_code == 3
    assert pulse("show", alarm.id, "--owner", "bob").exit_code == 3
    assert pulse.json("show", "n", "--owner", "shop")["id"] == pulse.json("show", alarm.id)["id"] == str(alarm.id)


# --- signing


def test_the_secret_is_shown_and_replaced(pulse: Pulse) -> None:
    [before, *_] = pulse.secrets()

    assert pulse.json("secret")["secrets"][0]["secret"] == before.secret
    assert before.secret in pulse("secret").output
    rotated = pulse.json("secret", "rotate", "--overlap", "2h")["secrets"]
    assert rotated[0]["expires_at"] is None
    ends_at = datetime.fromisoformat(rotated[1]["expires_at"])
    assert abs(ends_at - datetime.now(UTC) - 2 * HOUR) < timedelta(minutes=5)
    assert [each.secret for each in pulse.secrets()][:2] == [rotated[0]["secret"], before.secret]
    lines = pulse("secret", "rotate", "--overlap", "0s").output.splitlines()
    assert lines[0].split() == ["SECRET", "SIGNS", "SINCE"]
    assert len(lines) == 2
    assert "from now on" in lines[1]
    assert pulse("secret", "rotate", "--overlap", "soon").exit_code == 2


async def test_through_a_server_the_secret_is_for_those_who_set_such_alarms(settings: Settings) -> None:
    async with open_engine(settings) as engine:
        tokens = {scope: (await engine.tokens.create(scope, [scope]))[1] for scope in ("alarms", "operate", "admin")}
    served = Served(settings, count=1)
    url = served.start().server_url
    try:
        codes = {
            scope: (await asyncio.to_thread(Pulse(settings, url), "secret", PULSE_TOKEN=token)).exit_code
            for scope, token in tokens.items()
        }
        mine = await asyncio.to_thread(
            Pulse(settings, url).json, "set", "--delay", "1h", "--url", URL, PULSE_TOKEN=tokens["alarms"]
        )
    finally:
        served.stop()

    assert codes == {"alarms": 0, "operate": 1, "admin": 0}
    assert mine["owner"] == "alarms"
