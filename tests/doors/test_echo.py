"""Is every wake shown as it came, and is a wrong signature seen?"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from pulse.cli.alarms.echo import format_arrival
from pulse.delivery.signing import new_secret, sign
from pulse.doors.echo import Arrival, Echo, Signature, serve_echo
from pulse.engine.engine import Engine
from pulse.model.errors import DatabaseUnreachable
from pulse.sdk.logs import TextFormatter
from pulse.settings import Settings
from tests.doors.command_line import run_process
from tests.doors.worker_processes import PATIENCE, Started, started

SECRET = new_secret()


def a_wake(secret: str = SECRET, **said: Any) -> tuple[bytes, dict[str, str]]:
    whole = {"alarm_id": "a", "occurrence": "2026-07-31T09:00:00Z", "label": "look again", "owner": "ada"}
    body = json.dumps(whole | {"payload": {"step": 2}, "attempt": 1} | said).encode()
    now = int(datetime.now(UTC).timestamp())
    signed = sign([secret], id="w", timestamp=now, body=body)
    return body, {"webhook-id": "w", "webhook-timestamp": str(now), "webhook-signature": signed}


async def known(_owner: str | None) -> Sequence[str]:
    return [SECRET]


@asynccontextmanager
async def listening(**given: Any) -> AsyncIterator[tuple[httpx.AsyncClient, list[Arrival]]]:
    arrived: list[Arrival] = []
    async with (
        serve_echo(Echo(arrived.append, **given), port=0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
    ):
        yield client, arrived


async def test_a_wake_is_shown_as_it_came() -> None:
    body, headers = a_wake()
    async with listening(secrets=known) as (client, arrived):
        answer = await client.post("/some/where", content=body, headers=headers)

    [found] = arrived
    assert (answer.status_code, answer.json()) == (200, {"echo": "valid"})
    assert (found.label, found.owner, found.payload, found.attempt) == ("look again", "ada", {"step": 2}, 1)
    assert (found.path, found.wake_id, found.alarm_id) == ("/some/where", "w", "a")
    assert (found.signature, found.why) == (Signature.VALID, None)


async def test_a_wrong_signature_is_seen() -> None:
    body, headers = a_wake(new_secret())
    async with listening(secrets=known) as (client, arrived):
        await client.post("/", content=body, headers=headers)
        await client.post("/", content=body)
        right, signed = a_wake()
        await client.post("/", content=right.replace(b"2", b"3"), headers=signed)

    assert [found.signature for found in arrived] == [Signature.INVALID] * 3
    assert arrived[1].why == "header webhook-id is missing"


async def test_a_secret_that_was_replaced_is_read_again() -> None:
    newer = new_secret()
    secrets = iter([[SECRET], [newer, SECRET]])

    async def read(_owner: str | None) -> Sequence[str]:
        return next(secrets)

    async with listening(secrets=read) as (client, arrived):
        for secret in (SECRET, newer, SECRET):
            body, headers = a_wake(secret)
            await client.post("/", content=body, headers=headers)

    assert [found.signature for found in arrived] == [Signature.VALID] * 3


async def test_without_a_secret_nothing_is_claimed() -> None:
    async def away(_owner: str | None) -> Sequence[str]:
        raise DatabaseUnreachable("it is away")

    body, headers = a_wake()
    for secrets, why in ((None, "there is no secret"), (away, "it is away")):
        async with listening(secrets=secrets) as (client, arrived):
            await client.post("/", content=body, headers=headers)

        assert arrived[0].signature is Signature.UNCHECKED
        assert why in str(arrived[0].why)


@pytest.mark.parametrize("body", [b"", b"hello", b"\xff", b"[1]", b'{"a": 1}', b'{"alarm_id": 5, "attempt": "x"}'])
async def test_whatever_else_comes_is_shown_too(body: bytes) -> None:
    async with listening(secrets=known) as (client, arrived):
        assert (await client.post("/", content=body)).status_code == 200
        assert (await client.get("/")).text.startswith("Pulse echo")

    [found] = arrived
    assert found.signature is Signature.INVALID
    assert "not from Pulse" in format_arrival(found)


async def test_it_answers_as_it_is_told() -> None:
    async with listening(status=503) as (client, arrived):
        assert (await client.post("/", content=b"{}")).status_code == 503

    assert arrived[0].answered == 503
    assert "answered 503" in format_arrival(arrived[0])


def an_arrival(**given: Any) -> Arrival:
    usual: dict[str, Any] = dict.fromkeys(("wake_id", "alarm_id", "occurrence", "why"))
    usual |= {"at": datetime.now(UTC), "path": "/", "owner": "ada", "label": "nap", "payload": 1, "attempt": 2}
    return Arrival(**usual | {"signature": Signature.VALID, "answered": 200} | given)


def test_a_line_is_one_line_and_obeyed_by_no_terminal() -> None:
    line = format_arrival(an_arrival(label="\x1b[2Jnap\nnap", payload={"x": "y" * 500 + "\n"}))

    assert "\x1b" not in line
    assert "\n" not in line
    assert "…" in line
    assert len(line) < 200
    assert "nap · ada  attempt 2  ✓ signed  1" in format_arrival(an_arrival())
    assert "✗ signature (too old)" in format_arrival(an_arrival(signature=Signature.INVALID, why="too old"))


def test_a_line_has_the_stamp_of_log_lines_and_names_its_alarm() -> None:
    at, alarm_id = datetime(2026, 11, 18, 11, 30, 58, 123456, tzinfo=UTC), str(uuid4())

    line = format_arrival(an_arrival(at=at, alarm_id=alarm_id, label=None))

    stamp, rest = line.split("  ", 1)
    assert stamp == TextFormatter().format(logging.makeLogRecord({"created": at.timestamp()})).split()[0]
    assert rest == f"wake  ada  alarm {alarm_id}  attempt 2  ✓ signed  1"
    assert len(format_arrival(an_arrival(alarm_id="x" * 1_000))) < 200


# --- the command


def url_of(running: Started) -> str:
    return running.expect(r"at (http://127\.0\.0\.1:\d+)")[1]


async def test_the_command_checks_with_the_databases_secret(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    [secret, *_] = await engine.alarms.secrets("ada")
    with started(tmp_path, "echo", "--port", "0", PULSE_DATABASE_URL=str(settings.database_url)) as running:
        url = url_of(running)
        for signed_by in (secret.secret, SECRET):
            body, headers = a_wake(signed_by)
            await post(url, body, headers)

        running.expect(r'wake  look again · ada  alarm a  attempt 1  ✓ signed  \{"step": 2\}')
        running.expect("✗ signature")
        running.process.send_signal(signal.SIGINT)
        assert running.exit_code() == 0


async def post(url: str, body: bytes, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        await client.post(url, content=body, headers=headers)


async def test_the_command_prints_json_lines(tmp_path: Path) -> None:
    with started(tmp_path, "echo", "--port", "0", "--json", "--secret", SECRET, "--status", "500") as running:
        await post(url_of(running), *a_wake(payload="\x1b"))
        line = running.expect(r"^\{")

    found = json.loads(line.string)
    assert (found["payload"], found["signature"], found["answered"]) == ("\x1b", "valid", 500)
    assert "\x1b" not in line.string


async def test_without_secret_or_database_the_command_says_so(tmp_path: Path) -> None:
    with started(tmp_path, "echo", "--port", "0") as running:
        url = url_of(running)
        running.expect("not checked: that needs --secret or a database")
        await post(url, *a_wake())
        running.expect(r"\? not checked")


def test_a_wrong_secret_and_a_taken_port_are_refused(tmp_path: Path) -> None:
    assert "secret" in run_process("echo", "--secret", "hunter2").stderr
    with started(tmp_path, "echo", "--port", "0") as running:
        port = url_of(running).rpartition(":")[2]
        refused = run_process("echo", "--port", port)

    assert refused.returncode == 1
    assert "port must be one that this machine can listen on" in refused.stderr
