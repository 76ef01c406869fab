"""Can an agent set, see and cancel its own alarms over MCP, and nobody else's?"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from mcp import Client

from pulse.doors.mcp.door import McpDoor
from pulse.doors.mcp.http import McpGate, OwnToken
from pulse.engine.engine import Engine, open_engine
from pulse.links.direct import DirectLink
from pulse.model.errors import DatabaseUnreachable, LimitExceeded, Unauthenticated
from pulse.model.jobs import Outcome, Report
from pulse.settings import Settings
from tests.doors.command_line import PROGRAM, call, environment, run_process
from tests.doors.mcp_client import Agent, over_http, over_stdio, started, url_of
from tests.doors.worker_processes import PATIENCE

TOOLS = ["alarm_set", "alarm_list", "alarm_cancel", "job_submit", "job_status"]
MINIMAL: dict[str, dict[str, Any]] = {
    "alarm_set": {"delay_seconds": 60},
    "alarm_list": {},
    "alarm_cancel": {"alarm": "nap"},
    "job_submit": {"task": "greet"},
    "job_status": {"id": "0190a0a0-0000-7000-8000-000000000000"},
}
TARGET = "http://127.0.0.1:9/wake"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"accept": "application/json, text/event-stream"}


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    return {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_ALARM_TARGET": TARGET}


@asynccontextmanager
async def by(way: str, folder: Path, env: dict[str, str]) -> AsyncIterator[Agent]:
    """By each way, and as clients of older releases of the protocol do it."""
    mode = "legacy" if "before" in way else "auto"
    if "stdio" in way:
        async with over_stdio(folder=folder, mode=mode, **env) as agent:
            yield agent
        return
    with started(folder, "mcp", "--http", "127.0.0.1:0", **env) as running:
        async with over_http(url_of(running), mode=mode) as agent:
            yield agent


@asynccontextmanager
async def within(settings: Settings, link: Any = None) -> AsyncIterator[Agent]:
    """Without a process between: for what does not depend on the way."""
    async with open_engine(replace(settings, alarm_target=TARGET)) as engine:
        door = McpDoor(link or DirectLink(engine), owner="local")
        async with Client(door.server) as client:
            yield Agent(client)


# --- tools


@pytest.mark.parametrize("way", ["stdio", "http", "stdio before 2026", "http before 2026"])
async def test_an_agent_sets_lists_and_cancels_an_alarm_and_submits_a_job(
    way: str, tmp_path: Path, env: dict[str, str], engine: Engine
) -> None:
    async with by(way, tmp_path, env) as agent:
        await go_through(agent, engine)


async def go_through(agent: Agent, engine: Engine) -> None:
    tools = await agent.client.list_tools()
    assert [tool.name for tool in tools.tools] == TOOLS
    assert "alarm_set" in (agent.client.instructions or "")

    before = datetime.now(UTC)
    found = await agent.call("alarm_set", delay_seconds=3600, payload={"step": 2}, label="look again", name="again")
    assert (found["status"], found["is_new"], found["owner"]) == ("active", True, "local")
    due = datetime.fromisoformat(found["next_fire_at"]) - before
    assert timedelta(minutes=59) < due < timedelta(minutes=61)

    [listed] = (await agent.call("alarm_list"))["alarms"]
    assert listed == {name: value for name, value in found.items() if name != "is_new"}
    assert listed["payload"] == {"step": 2}

    cancelled = await agent.call("alarm_cancel", alarm=found["id"])
    assert (cancelled["status"], cancelled["next_fire_at"]) == ("cancelled", None)
    assert (await agent.call("alarm_list", status="active"))["alarms"] == []

    submitted = await agent.call("job_submit", task="greet", payload={"name": "Ada"})
    assert submitted["is_new"]
    assert (await agent.call("job_status", id=submitted["id"]))["status"] == "PENDING"
    [claim] = await engine.claims.claim("greet", worker="w", slots=1)
    report = Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.COMPLETE, result='"hello Ada"')
    await engine.claims.report([report])
    done = await agent.call("job_status", id=submitted["id"])
    assert (done["status"], done["is_finished"], done["result"]) == ("COMPLETED", True, "hello Ada")


async def test_alarms_are_what_was_asked_for(settings: Settings, engine: Engine) -> None:
    async with within(settings) as agent:
        at = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)

        once = await agent.call("alarm_set", fire_at=at.isoformat(), url="", name=None, payload=None)
        often = await agent.call("alarm_set", cron_expr="0 9 * * mon-fri", tz="Europe/Berlin", payload=[1, "a"])

        assert (once["kind"], datetime.fromisoformat(once["next_fire_at"]), once["payload"]) == ("once", at, None)
        assert (often["kind"], often["cron_expr"], often["tz"]) == ("cron", "0 9 * * mon-fri", "Europe/Berlin")
        assert (await engine.alarms.get(often["id"])).payload == '[1, "a"]'


@pytest.mark.parametrize(
    "payload", ["null", '{"not": "an object"}', "", 0, False, [], {"deep": [{"er": None}]}, 1.5, "\u2603"]
)
async def test_a_payload_comes_back_as_it_was_given(settings: Settings, payload: Any) -> None:
    async with within(settings) as agent:
        found = await agent.call("alarm_set", delay_seconds=60, payload=payload)

        assert found["payload"] == payload
        assert type(found["payload"]) is type(payload)


async def test_a_name_is_replaced_and_a_key_is_answered_twice(settings: Settings) -> None:
    async with within(settings) as agent:
        first = await agent.call("alarm_set", delay_seconds=60, name="nap")
        second = await agent.call("alarm_set", delay_seconds=90, name="nap")
        keyed = await agent.call("alarm_set", delay_seconds=60, idempotency_key="k")
        again = await agent.call("alarm_set", delay_seconds=60, idempotency_key="k")

        assert first["id"] == second["id"]
        assert (keyed["id"], keyed["is_new"]) == (again["id"], True)
        assert not again["is_new"]
        assert (await agent.call("alarm_cancel", alarm="nap"))["id"] == first["id"]


async def test_lists_come_in_pages(settings: Settings) -> None:
    async with within(settings) as agent:
        ids = [(await agent.call("alarm_set", delay_seconds=60))["id"] for _ in range(3)]

        page = await agent.call("alarm_list", limit=2)
        rest = await agent.call("alarm_list", limit=2, after=page["next"])

        assert [alarm["id"] for alarm in page["alarms"] + rest["alarms"]] == ids[::-1]
        assert rest["next"] is None


# --- refusals


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "words"),
    [
        ("alarm_set", {}, "invalid_alarm", "once alarm requires delay_seconds or fire_at"),
        ("alarm_set", {"delay_seconds": 0}, "invalid_alarm", "requires delay_seconds"),
        ("alarm_set", {"delay_seconds": -5}, "invalid_option", "delay_seconds"),
        (
            "alarm_set",
            {"delay_seconds": 1e300},
            "invalid_input",
            "delay_seconds must be a number of seconds, at most ten years, not 1e+300",
        ),
        ("alarm_set", {"delay_seconds": "soon"}, "invalid_input", "$.delay_seconds"),
        ("alarm_set", {"delay_seconds": 5, "cron_expr": "@daily"}, "invalid_alarm", "cron alarm takes cron_expr"),
        ("alarm_set", {"fire_at": "tomorrow"}, "invalid_alarm", "invalid fire_at 'tomorrow' (want RFC3339)"),
        ("alarm_set", {"fire_at": "2099-01-01T00:00:00"}, "invalid_alarm", "(want RFC3339): it has no time zone"),
        ("alarm_set", {"fire_at": 5}, "invalid_input", "$.fire_at"),
        ("alarm_set", {"fire_at": "2001-01-01T00:00:00Z"}, "invalid_alarm", "future"),
        ("alarm_set", {"cron_expr": "61 * * * *"}, "invalid_alarm", "61"),
        ("alarm_set", {"cron_expr": "@daily", "tz": "Mars/Base"}, "invalid_alarm", "Mars/Base"),
        ("alarm_set", {"delay_seconds": 5, "url": "http://169.254.169.254/"}, "invalid_target", "169.254.169.254"),
        ("alarm_set", {"delay_seconds": 5, "payload": "x" * 70_000}, "invalid_payload", "64 KiB"),
        ("alarm_set", {"delay_seconds": 5, "payload": "\x00"}, "invalid_payload", "U+0000"),
        ("alarm_set", {"delay_seconds": 5, "owner": "root"}, "invalid_input", "owner"),
        ("alarm_list", {"status": "ringing"}, "invalid_input", "$.status"),
        ("alarm_list", {"limit": 5000}, "invalid_input", "$.limit"),
        ("alarm_list", {"after": "there"}, "invalid_filter", "there"),
        ("alarm_cancel", {}, "invalid_input", "alarm"),
        ("alarm_cancel", {"alarm": "nobody"}, "alarm_not_found", "nobody"),
        ("job_submit", {"task": ""}, "invalid_input", "task"),
        ("job_submit", {"task": "t", "payload": [1]}, "invalid_input", "$.payload"),
        ("job_status", {"id": "17"}, "invalid_input", "id must be the id that job_submit returned, not '17'"),
        ("job_status", {"id": "0190a0a0-0000-7000-8000-000000000000"}, "job_not_found", "0190a0a0"),
        ("alarm_snooze", {}, "invalid_input", "there is no tool 'alarm_snooze'"),
    ],
)
async def test_what_makes_no_sense_is_refused_with_a_code_and_why(
    settings: Settings, tool: str, arguments: dict[str, Any], code: str, words: str
) -> None:
    async with within(settings) as agent:
        error = await agent.refused(tool, **arguments)

        assert error["code"] == code
        assert words in error["message"]
        assert (await agent.call("alarm_list"))["alarms"] == []


async def test_without_a_target_an_alarm_needs_a_url(env: dict[str, str], tmp_path: Path) -> None:
    async with over_stdio(folder=tmp_path, PULSE_DATABASE_URL=env["PULSE_DATABASE_URL"]) as agent:
        assert "url is missing" in (await agent.refused("alarm_set", delay_seconds=5))["message"]


async def test_another_owners_alarm_is_not_there(env: dict[str, str], tmp_path: Path) -> None:
    async with over_stdio("--owner", "ada", folder=tmp_path, **env) as ada:
        hers = await ada.call("alarm_set", delay_seconds=60, name="nap")
        async with over_stdio("--owner", "bob", folder=tmp_path, **env) as bob:
            assert (await bob.call("alarm_list"))["alarms"] == []
            for key in (hers["id"], "nap"):
                assert (await bob.refused("alarm_cancel", alarm=key))["code"] == "alarm_not_found"
            his = await bob.call("alarm_set", delay_seconds=60, name="nap")

        assert his["id"] != hers["id"]
        [listed] = (await ada.call("alarm_list"))["alarms"]
        assert (listed["id"], listed["owner"], listed["status"]) == (hers["id"], "ada", "active")


class Lost:
    """A link whose alarms cannot be had."""

    def __init__(self, error: Exception) -> None:
        self.alarms = self
        self._error = error

    async def list_page(self, *_: object, **__: object) -> NoReturn:
        raise self._error


async def test_a_lost_database_is_a_refusal_too(settings: Settings) -> None:
    async with within(settings, Lost(DatabaseUnreachable("it is away"))) as agent:
        assert await agent.refused("alarm_list") == {"code": "database_unreachable", "message": "it is away"}


async def test_what_is_our_mistake_is_told_to_the_log_only(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with within(settings, Lost(RuntimeError("hunter2"))) as agent:
        error = await agent.refused("alarm_list")

    assert error["code"] == "internal"
    assert "hunter2" not in error["message"]
    assert "hunter2" in caplog.text


# --- stdin and stdout


def test_nothing_but_the_protocol_reaches_stdout(env: dict[str, str], tmp_path: Path) -> None:
    """Also with all logs on, and with what is no message at all."""
    said: list[dict[str, Any]] = [INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    said += [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
        for number, name in ((2, "alarm_list"), (3, "alarm_set"), (4, "nothing"))
    ]
    process = subprocess.Popen(
        [*PROGRAM, "mcp", "--log-level", "debug"],
        env=environment(**env),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        for message in said:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            if "id" in message:
                lines.append(process.stdout.readline())
        process.stdin.write("hello?\n")
        rest, logs = process.communicate(timeout=PATIENCE)

    answers = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    assert [answer["id"] for answer in answers[:4]] == [1, 2, 3, 4]
    assert "was refused: invalid_alarm" in logs
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_though_its_client_is_there(env: dict[str, str], tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [*PROGRAM, "mcp"], env=environment(**env), cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()

        process.send_signal(number)

        assert process.wait(PATIENCE) == 0


def test_it_refuses_to_start_without_a_database(tmp_path: Path) -> None:
    refused = run_process("mcp", "--state-dir", tmp_path / "none")

    assert (refused.returncode, refused.stdout) == (5, "")
    assert "no database" in refused.stderr


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pulse.cli.server.mcp_process", None)
    monkeypatch.delitem(sys.modules, "pulse.doors.mcp.door", raising=False)
    broken = ModuleNotFoundError("No module named 'mcp'", name="mcp")

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name in ("pulse.cli.server.mcp_process", "mcp"):
                raise broken

    monkeypatch.delitem(sys.modules, "pulse.cli.server.mcp_process")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])

    result = call("mcp")

    assert result.exit_code == 1
    assert "an MCP server needs mcp: `pip install 'pulse-postgres[mcp]'`" in result.output


# --- over HTTP


def get(url: str) -> httpx.Response:
    return httpx.get(url, headers=HEADERS, timeout=PATIENCE)


def post(url: str, **headers: str) -> httpx.Response:
    return httpx.post(url, json=INITIALIZE, headers=HEADERS | headers, timeout=PATIENCE)


def test_a_page_that_was_turned_to_this_machine_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    with started(tmp_path, "mcp", "--http", "127.0.0.1:0", "--allow-host", "agents.example.com", **env) as running:
        url = url_of(running)

        assert post(url).status_code == 200
        assert post(url, host="agents.example.com").status_code == 200
        assert post(url, host="evil.example").status_code == 421
        assert post(url, host="127.0.0.1.evil.example").status_code == 421
        assert post(url, origin="https://evil.example").status_code == 403


def test_beyond_this_machine_it_listens_only_with_tokens(env: dict[str, str], tmp_path: Path) -> None:
    for address in ("0.0.0.0:0", "[::]:0", "example.com:8702"):
        refused = run_process("mcp", "--http", address, **env)

        assert (refused.returncode, refused.stdout) == (1, "")
        assert "make a token first" in refused.stderr


async def test_with_tokens_every_request_shows_one(env: dict[str, str], tmp_path: Path, engine: Engine) -> None:
    _, ada = await engine.tokens.create("ada", ["submit", "alarms"])
    _, bob = await engine.tokens.create("bob", ["submit:mail", "alarms:bob"])
    _, worker = await engine.tokens.create("worker", ["work"])
    with started(tmp_path, "mcp", "--http", "0.0.0.0:0", **env) as running:
        url = url_of(running).replace("0.0.0.0", "127.0.0.1")
        for shown in ({}, {"authorization": "Bearer nonsense"}, {"authorization": f"Basic {ada}"}):
            refused = post(url, **shown)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="pulse"')
        assert get(url).status_code == 401
        assert post(url, authorization=f"Bearer {ada}", host="evil.example").status_code == 421

        async with over_http(url, token=ada) as hers, over_http(url, token=bob) as his:
            alarm = await hers.call("alarm_set", delay_seconds=60)
            assert alarm["owner"] == "ada"
            assert (await his.call("alarm_list"))["alarms"] == []
            assert (await his.refused("alarm_cancel", alarm=alarm["id"]))["code"] == "alarm_not_found"
            assert (await his.refused("job_submit", task="greet"))["code"] == "forbidden"
            mail = await his.call("job_submit", task="send", topic="mail")
            job = await hers.call("job_submit", task="greet")
            assert (await hers.call("job_status", id=mail["id"]))["topic"] == "mail"
            assert (await his.refused("job_status", id=job["id"]))["code"] == "forbidden"
        async with over_http(url, token=worker) as other:
            for tool, arguments in MINIMAL.items():
                assert (await other.refused(tool, **arguments))["code"] == "forbidden", tool

        refused_owner = run_process("mcp", "--http", "127.0.0.1:0", "--owner", "root", **env)
        assert (refused_owner.returncode, "omit --owner" in refused_owner.stderr) == (1, True)

        running.process.send_signal(signal.SIGTERM)
        assert running.exit_code() == 0


async def test_a_revoked_token_is_refused(env: dict[str, str], tmp_path: Path, engine: Engine) -> None:
    _, secret = await engine.tokens.create("ada", ["submit", "alarms"])
    await engine.tokens.revoke("ada")
    with started(tmp_path, "mcp", "--http", "127.0.0.1:0", **env) as running:
        url = url_of(running)

        assert "revoked" in post(url, authorization=f"Bearer {secret}").text


@pytest.mark.parametrize("owner", [(), ("--owner", "local")])
def test_behind_a_server_with_a_token_the_owner_has_to_be_said(owner: tuple[str, ...]) -> None:
    refused = run_process("mcp", *owner, PULSE_SERVER_URL="grpc://127.0.0.1:9", PULSE_TOKEN="pulse_x")

    assert refused.returncode == 1
    assert "use --owner NAME" in refused.stderr


async def test_behind_a_server_callers_show_the_token_it_has() -> None:
    gate = McpGate(OwnToken("pulse_secret", owner="planner"), calls_per_second=5)

    found = await gate.recognize(["Bearer pulse_secret"])

    assert (found.name, found.is_trusted) == ("planner", False)
    for shown in ([], ["Bearer pulse_secre"], ["Bearer pulse_secret", "Bearer pulse_secret"], ["Bearer \u00fc"]):
        with pytest.raises(Unauthenticated):
            await gate.recognize(shown)


async def test_a_token_has_its_limit() -> None:
    gate = McpGate(OwnToken("pulse_secret", owner="planner"), calls_per_second=1)

    with pytest.raises(LimitExceeded):
        for _ in range(50):
            await gate.recognize(["Bearer pulse_secret"])


def test_a_port_that_is_taken_is_named(env: dict[str, str], tmp_path: Path) -> None:
    with started(tmp_path, "mcp", "--http", "127.0.0.1:0", **env) as running:
        taken = url_of(running).removeprefix("http://").removesuffix("/mcp")

        refused = run_process("mcp", "--http", taken, **env)

    assert refused.returncode == 1
    assert "can be listened on" in refused.stderr
