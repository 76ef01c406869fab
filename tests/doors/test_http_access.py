"""Is every route open to whom the documents say and to nobody else, by a real server, and within its limits?"""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pulse.doors.http.access import RULES, rule_of
from pulse.doors.http.app import ROUTERS, routes
from pulse.doors.status_codes import http_status_of
from pulse.engine.engine import Engine
from pulse.engine.tokens import Tokens
from pulse.model import errors
from pulse.model.alarms import NewAlarm
from pulse.model.jobs import NewJob
from pulse.model.schedules import NewSchedule
from pulse.model.tokens import Right, new_secret
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.doors.http_client import Http, read_refusal, served_http

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
OF_TOPICS = ("submit", "submit:mail", "submit:other", "work", "work:mail")
SCOPES = (*OF_TOPICS, "alarms", "alarms:ada", "alarms:bob", "read", "operate", "admin")
JOB = {"task": "mail"}
DAILY = {"name": "daily", "task": "mail", "cron": "0 9 * * *"}
BODIES: dict[str, Any] = {
    "POST /v1/jobs": JOB,
    "POST /v1/jobs/batch": {"jobs": [JOB]},
    "POST /v1/schedules": DAILY,
    "POST /v1/schedules/preview": DAILY,
    "PATCH /v1/schedules/{name}": {"priority": 3},
    "POST /v1/alarms": {"owner": "ada", "delay_seconds": 60, "url": "http://127.0.0.1:9/"},
    "POST /v1/schedules/{name}/backfill": {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"},
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
def tokens(database: Database) -> Tokens:
    return Tokens(database)


# --- one rule for each


def test_every_route_has_exactly_one_rule() -> None:
    assert sorted(rule_of(route) for route in routes()) == sorted(RULES)
    assert sum(len(router.routes) for router in ROUTERS) == len(RULES)


class Row(NamedTuple):
    """A line of the table in the documents: `yes`, `topics`, `owners` or nothing."""

    no_token: str
    submit: str
    work: str
    alarms: str
    read: str
    operate: str
    admin: str

    def lets_in(self, scope: str) -> bool:
        kind, _, topic = scope.partition(":")
        cell = getattr(self, kind)
        return cell == "yes" or (cell in ("topics", "owners") and topic in ("", "mail", "ada"))


def _table() -> dict[str, Row]:
    lines = re.findall(r"^\| `([A-Z]+ /[^`]+)` \|((?:[^|\n]*\|){7})$", PAGE, re.MULTILINE)
    return {rule: Row(*(cell.strip() for cell in cells.split("|")[:7])) for rule, cells in lines}


TABLE = _table()


def test_the_documents_have_the_routes_of_the_rules_in_their_order() -> None:
    described = re.findall(r"^\| `([A-Z]+ /[^`]+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)

    assert list(TABLE) == list(RULES) == described
    assert {cell for row in TABLE.values() for cell in row} == {"yes", "topics", "owners", ""}


ROW_OF = {
    Right.SUBMIT: Row("", "topics", "", "", "", "", "yes"),
    Right.FOLLOW: Row("", "topics", "", "", "yes", "yes", "yes"),
    Right.MANAGE: Row("", "topics", "", "", "", "yes", "yes"),
    Right.VIEW: Row("", "", "", "", "yes", "yes", "yes"),
    Right.OPERATE: Row("", "", "", "", "", "yes", "yes"),
    Right.SET_ALARM: Row("", "", "", "owners", "", "", "yes"),
    Right.VIEW_ALARM: Row("", "", "", "owners", "yes", "yes", "yes"),
    Right.MANAGE_ALARM: Row("", "", "", "owners", "", "yes", "yes"),
    None: Row("yes", "yes", "yes", "yes", "yes", "yes", "yes"),
}


def test_the_gate_wants_what_the_documents_say() -> None:
    """Which the routes' own checks would hide: most of them ask for the same once more."""
    assert {rule: ROW_OF[right] for rule, right in RULES.items()} == TABLE


def test_the_documents_have_the_status_of_every_error() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|$", PAGE, re.MULTILINE)
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    kinds = [kind for kind in found if issubclass(kind, errors.PulseError) and kind is not errors.PulseError]

    assert sorted(listed) == sorted((kind.code, str(http_status_of(kind.__new__(kind)))) for kind in kinds)


# --- every route, every kind of caller


async def call(http: Http, engine: Engine, rule: str, **headers: str) -> tuple[int, str]:
    """The status and code of a route's answer about a job or schedule of the topic `mail`, or an alarm of ada's, made
    anew for each call."""
    method, _, path = rule.partition(" ")
    if path.startswith("/v1/alarms/"):
        new = NewAlarm(owner="ada", delay=timedelta(hours=1), url="http://127.0.0.1:9/")
        path = path.replace("{name}", str((await engine.alarms.set(new)).alarm.id))
    elif rule in ("GET /v1/alarms", "GET /v1/wake-secrets"):
        path += "?owner=ada"
    if "{id}" in path:
        [submitted] = await engine.jobs.submit([NewJob(task="mail")])
        path = path.replace("{id}", str(submitted.id))
    if "{name}" in path:
        await engine.schedules.create(NewSchedule(name="daily", job=NewJob(task="mail"), cron="0 9 * * *"))
    path = path.replace("{name}", "daily").replace("{topic}", "mail").replace("/wait", "/wait?seconds=0")
    response = await http.ask(method, path, BODIES.get(rule), headers=headers)
    if "schedules/{name}" in rule and response.status_code == 200 and method != "DELETE":
        await engine.schedules.delete("daily")
    code = "" if response.status_code < 400 else read_refusal(response)[1]
    return response.status_code, code


async def test_every_route_lets_in_whom_the_documents_say(settings: Settings, engine: Engine, tokens: Tokens) -> None:
    secrets = {scope: (await tokens.create(scope.replace(":", "-"), [scope]))[1] for scope in SCOPES}
    wrong = []

    async with served_http(settings) as http:
        for rule, row in TABLE.items():
            for scope, secret in secrets.items():
                status, code = await call(http, engine, rule, authorization=f"Bearer {secret}")
                expected = "in" if row.lets_in(scope) else "forbidden"
                if scope == "alarms:bob" and "alarms/{name}" in rule:
                    expected = "alarm_not_found"  # what is someone else's is not there
                found = "in" if status < 300 or code == "illegal_transition" else code
                if (status == 403) != (expected == "forbidden") or found != expected:
                    wrong.append((rule, scope, expected, status, code))

    assert wrong == []


async def test_every_route_wants_a_token_that_is_known(settings: Settings, engine: Engine, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["admin"])
    _, revoked = await tokens.create("old", ["admin"])
    await tokens.revoke("old")
    shown = ["", f"Bearer {new_secret()}", f"Bearer {revoked}", f"Basic {secret}", secret, "Bearer", "Bearer x"]

    async with served_http(settings) as http:
        for rule, row in TABLE.items():
            for header in shown:
                headers = {"authorization": header} if header else {}
                status, code = await call(http, engine, rule, **headers)
                assert (status == 200) if row.no_token else (status, code) == (401, "unauthenticated"), (rule, header)


async def test_who_has_no_token_is_told_how_to_show_one_before_the_body_is_read(
    settings: Settings, tokens: Tokens
) -> None:
    await tokens.create("web", ["submit"])

    async with served_http(settings) as http:
        response = await http.ask("POST", "/v1/jobs", content=b"{nonsense")
        twice = await http.client.get(
            "/v1/jobs", headers=[("authorization", "Bearer a"), ("authorization", "Bearer b")]
        )

    assert read_refusal(response) == (
        401,
        "unauthenticated",
        "no token: set PULSE_TOKEN, or send the header `authorization: Bearer <secret>` (`pulse tokens create`)",
    )
    assert response.headers["www-authenticate"] == "Bearer"
    assert read_refusal(twice)[0] == 401


async def test_a_route_without_a_rule_is_refused_even_to_an_administrator(
    settings: Settings, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = await tokens.create("web", ["admin"])
    monkeypatch.delitem(RULES, "GET /v1/workers")

    async with served_http(settings, token=secret) as http:
        assert (await http.refused("GET", "/v1/workers"))[:2] == (403, "forbidden")


# --- by topic


async def test_a_job_is_judged_by_its_own_topic(settings: Settings, engine: Engine, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit:mail"])
    [own, others] = await engine.jobs.submit([NewJob(task="x", topic="mail"), NewJob(task="mail", topic="x")])

    async with served_http(settings, token=secret) as http:
        for path in ("", "/wait?seconds=0"):
            await http.done("GET", f"/v1/jobs/{own.id}{path}")
            assert (await http.refused("GET", f"/v1/jobs/{others.id}{path}"))[:2] == (403, "forbidden")
        assert (await http.refused("POST", f"/v1/jobs/{others.id}/cancel"))[:2] == (403, "forbidden")
        await http.done("POST", f"/v1/jobs/{own.id}/cancel")
    assert (await engine.jobs.get(others.id)).status == "PENDING"


async def test_one_foreign_topic_refuses_a_batch(settings: Settings, engine: Engine, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit:mail"])

    async with served_http(settings, token=secret) as http:
        refused = await http.refused("POST", "/v1/jobs/batch", {"jobs": [JOB, {"task": "mail", "topic": "x"}]})

    assert refused[:2] == (403, "forbidden")
    assert (await engine.jobs.list_page()).jobs == []


async def test_a_schedule_is_moved_only_between_topics_one_may_submit_to(
    settings: Settings, engine: Engine, tokens: Tokens
) -> None:
    _, secret = await tokens.create("web", ["submit:mail", "submit:post"])
    for topic in ("mail", "x"):
        await engine.schedules.create(NewSchedule(name=topic, job=NewJob(task="t", topic=topic), cron="0 9 * * *"))

    async with served_http(settings, token=secret) as http:
        await http.done("PATCH", "/v1/schedules/mail", {"topic": "post"})
        for name, topic in (("mail", "x"), ("mail", ""), ("x", "mail")):
            refused = await http.refused("PATCH", f"/v1/schedules/{name}", {"topic": topic})
            assert refused[:2] == (403, "forbidden"), (name, topic)


async def test_keys_of_two_tokens_are_two_keys(settings: Settings, tokens: Tokens) -> None:
    secrets = [(await tokens.create(name, ["submit"]))[1] for name in ("a", "b")]
    ids = set()

    async with served_http(settings) as http:
        for secret in secrets:
            headers = {"authorization": f"Bearer {secret}", "idempotency-key": "k"}
            ids.add((await http.done("POST", "/v1/jobs", JOB, status=201, headers=headers))["id"])

    assert len(ids) == 2


# --- limits


async def test_calls_of_a_token_are_limited_at_both_doors_together(settings: Settings, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["operate"])

    async with served_http(settings, token=secret, calls_per_second=3) as http:
        gate = http.server._http._server.config.app.state.services.gate  # type: ignore[union-attr]
        for _ in range(2):
            await gate.admit([f"Bearer {secret}"], Right.OPERATE, where="metadata")  # as the other door does
        answers = [await http.ask("GET", "/v1/jobs") for _ in range(4)]

    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused
    assert read_refusal(refused[0])[:2] == (429, "limit_exceeded")
    assert refused[0].headers["retry-after"] == "1"
