"""Does `pulse doctor` show what was found, and end with the code that a script needs?"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pulse.model.doctor import diagnoses as judge
from pulse.model.doctor.findings import Finding
from pulse.settings import Settings
from pulse.version import __version__
from tests.doors.command_line import call
from tests.served import Served

WELL = judge.ok("schema", "'pulse' is at version 8")
SO_SO = judge.warn("bloat", "jobs has \x1b[31m9 dead rows", "VACUUM it.")
BAD = judge.fail("durability", "fsync is off", "Turn it on.")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the doctor is to find."""
    findings: list[Finding] = []

    async def examine(_: Settings) -> list[Finding]:
        return findings

    monkeypatch.setattr("pulse.engine.doctor.examine", examine)
    return findings


@pytest.mark.parametrize(
    ("given", "flags", "exit_code"),
    [
        ([WELL], ["--strict"], 0),
        ([WELL, SO_SO], [], 0),
        ([WELL, SO_SO], ["--strict"], 1),
        ([BAD, WELL], [], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(
    found: list[Finding], given: list[Finding], flags: list[str], exit_code: int
) -> None:
    found += given

    assert call("doctor", *flags, PULSE_DATABASE_URL="postgresql://nowhere/x").exit_code == exit_code


def test_what_was_found_is_shown_with_what_helps(found: list[Finding]) -> None:
    found += [WELL, SO_SO, BAD]

    shown = call("doctor", PULSE_DATABASE_URL="postgresql://nowhere/x").output
    document = json.loads(call("doctor", "--json", PULSE_DATABASE_URL="postgresql://nowhere/x").stdout)

    assert "fail  durability  fsync is off" in shown
    assert "→ Turn it on." in shown
    assert shown.endswith("1 failure, 1 warning.\n")
    assert "\x1b" not in shown
    assert document["level"] == "fail"
    assert document["findings"][2] == {
        "level": "fail",
        "name": "durability",
        "text": "fsync is off",
        "advice": "Turn it on.",
    }


def test_no_database_is_a_finding() -> None:
    result = call("doctor", PULSE_DATABASE_URL="postgresql://pulse@127.0.0.1:1/pulse", PULSE_PATIENCE="100ms")

    assert result.exit_code == 1
    assert "cannot reach the database" in result.output
    assert "Looked for pulse at 127.0.0.1:1." in result.output


@pytest.fixture
def server_url(settings: Settings) -> Iterator[str]:
    served = Served(settings, count=1)
    try:
        yield str(served.start().server_url)
    finally:
        served.stop()


def test_through_a_server_alone_the_database_is_not_seen(server_url: str) -> None:
    document = json.loads(call("doctor", "--json", PULSE_SERVER_URL=server_url).stdout)

    assert [(each["level"], each["name"]) for each in document["findings"]] == [
        ("ok", "servers"),
        ("ok", "workers"),
        ("ok", "database"),
    ]
    assert "needs PULSE_DATABASE_URL" in document["findings"][2]["text"]


def test_each_server_of_the_url_is_asked(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc")
    monkeypatch.setattr("pulse.links.remote.doctor.PATIENCE", 3)
    monkeypatch.setattr("pulse.links.remote.doctor.__version__", "9.9")
    result = call("doctor", "--json", PULSE_SERVER_URL=f"{server_url},grpc://127.0.0.1:1")

    found = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert {(each["level"], each["text"].split()[0]) for each in found if each["name"] == "servers"} == {
        ("fail", "127.0.0.1:1"),
        ("warn", server_url.removeprefix("grpc://")),
    }
    assert f"is of release {__version__}, and this is 9.9" in str(found)


def test_a_server_and_a_database_are_both_looked_at(server_url: str, settings: Settings) -> None:
    env = {"PULSE_SERVER_URL": server_url, "PULSE_DATABASE_URL": str(settings.database_url)}
    found = json.loads(call("doctor", "--json", **env).stdout)["findings"]

    assert {"servers", "database", "durability"} <= {each["name"] for each in found}
