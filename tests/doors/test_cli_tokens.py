"""Can an administrator make, see and revoke tokens, and is the secret seen once and never again?"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from click.testing import Result

from pulse.cli.session import run_with_engine
from pulse.model.tokens import Token
from pulse.settings import Settings
from tests.doors.command_line import call, call_json

SECRET = re.compile(r"pulse_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")


class Pulse:
    """`pulse tokens …` over the database of this test."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}

    def __call__(self, *args: str, **env: str) -> Result:
        return call("tokens", *args, **self.env | env)

    def json(self, *args: str) -> Any:
        return call_json("tokens", *args, **self.env)

    def find(self, secret: str) -> Token | None:
        return run_with_engine(self.settings, lambda engine: engine.tokens.find(secret))


@pytest.fixture
def pulse(settings: Settings) -> Pulse:
    return Pulse(settings)


def test_a_token_is_made_and_its_secret_said_to_be_shown_once(pulse: Pulse) -> None:
    result = pulse("create", "web", "--scope", "submit", "--scope", "work:mail")

    assert result.exit_code == 0
    assert "Token web allows submit, work:mail." in result.output
    assert "shown only this once" in result.output
    [secret] = SECRET.findall(result.output)
    found = pulse.find(secret)
    assert found is not None
    assert (found.name, [str(scope) for scope in found.scopes]) == ("web", ["submit", "work:mail"])


def test_it_is_good_for_as_long_as_was_said(pulse: Pulse) -> None:
    made = pulse.json("create", "web", "--scope", "operate", "--expires", "90d")

    length = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert length == timedelta(days=90)
    assert SECRET.fullmatch(made["secret"])


def test_the_list_has_every_token_and_no_secret(pulse: Pulse) -> None:
    secret = pulse.json("create", "web", "--scope", "submit")["secret"]
    pulse.json("create", "ops", "--scope", "admin")
    pulse("revoke", "ops")

    listed, shown = pulse.json("list"), pulse("list").output

    assert [(token["name"], token["scopes"]) for token in listed["tokens"]] == [("ops", ["admin"]), ("web", ["submit"])]
    assert set(listed["tokens"][0]) == {"name", "scopes", "created_at", "expires_at", "revoked_at", "is_expired"}
    assert re.search(r"ops +revoked +admin", shown)
    assert re.search(r"web +valid +submit .* never", shown)
    assert secret not in shown + str(listed)


def test_only_the_first_token_ever_asks_for_a_restart_of_the_servers(pulse: Pulse) -> None:
    first, second = pulse("create", "web", "--scope", "submit"), pulse("create", "mail", "--scope", "work:mail")
    pulse("revoke", "web")
    pulse("revoke", "mail")
    third = pulse("create", "ops", "--scope", "operate")

    assert ["Restart the servers" in each.output for each in (first, second, third)] == [True, False, False]


def test_without_tokens_the_list_says_how_to_make_one(pulse: Pulse) -> None:
    assert "pulse tokens create" in pulse("list").output


def test_a_token_is_revoked_once_and_stays_so(pulse: Pulse) -> None:
    secret = pulse.json("create", "web", "--scope", "submit")["secret"]

    first, second = pulse.json("revoke", "web"), pulse.json("revoke", "web")

    assert first["revoked_at"] == second["revoked_at"] is not None
    assert "web was revoked at" in pulse("revoke", "web").output
    found = pulse.find(secret)
    assert found is not None
    assert not found.is_usable


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["create", "web"], 2, "--scope"),
        (["create", "web", "--scope", "sumbit"], 1, "scope must be submit, submit:TOPIC, work"),
        (["create", "web", "--scope", "operate:mail"], 1, "scope must be operate alone"),
        (["create", "we b", "--scope", "submit"], 1, "letters, digits"),
        (["create", "web", "--scope", "submit", "--expires", "soon"], 2, "not a duration"),
        (["create", "web", "--scope", "submit", "--expires", "0s"], 1, "from one second"),
        (["create", "taken", "--scope", "submit"], 4, "already exists"),
        (["revoke", "nobody"], 3, "no token 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_refused(pulse: Pulse, args: list[str], code: int, words: str) -> None:
    pulse("create", "taken", "--scope", "work")

    result = pulse(*args)

    assert result.exit_code == code
    assert words in result.stderr


def test_scopes_may_come_from_the_environment(pulse: Pulse) -> None:
    result = pulse("create", "web", PULSE_TOKENS_CREATE_SCOPES="submit work:mail")

    assert "allows submit, work:mail." in result.output
