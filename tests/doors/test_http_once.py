"""Does a repeated request make one job, and does a key stand for one body?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.model.ids import bucket_of_id, bucket_of_topic
from pulse.settings import Settings
from tests.doors.http_client import Http, served_http
from tests.doors.test_http_jobs import finish

KEY = {"idempotency-key": "order-42"}


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def test_a_repeated_request_makes_one_job(http: Http, engine: Engine) -> None:
    body = {"task": "mail", "payload": {"b": 1.0, "a": [2]}, "delay": "5m", "tags": ["x"], "retry": {"kind": "fixed"}}

    first = await http.done("POST", "/v1/jobs", body, status=201, headers=KEY)
    again = await http.done("POST", "/v1/jobs", body, status=200, headers=KEY)

    assert first == again
    assert len((await engine.jobs.list_page()).jobs) == 1


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/jobs", {"task": "mail"}), ("/v1/schedules", {"name": "s", "task": "mail", "every": "1h"})]
)
async def test_a_payload_spelled_otherwise_is_the_same(http: Http, path: str, body: dict[str, Any]) -> None:
    async def send(payload: dict[str, Any]) -> int:
        return (await http.ask("POST", path, body | {"payload": payload}, headers=KEY)).status_code

    assert await send({"b": 1.0, "a": "é", "big": 12345678901234567890123}) == 201
    assert await send({"big": 12345678901234567890123, "a": "é", "b": 1}) == 200
    assert await send({"big": 12345678901234567890124, "a": "é", "b": 1}) == 409
    assert await send({"big": 12345678901234567890123, "a": "é", "b": True}) == 409


async def test_requests_side_by_side_make_one_job(http: Http) -> None:
    answers = await asyncio.gather(*[http.ask("POST", "/v1/jobs", {"task": "mail"}, headers=KEY) for _ in range(8)])

    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_the_id_of_a_key_is_in_the_bucket_of_its_topic(http: Http, settings: Settings) -> None:
    job = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=201, headers=KEY)

    assert UUID(job["id"]).version == 8
    assert bucket_of_id(UUID(job["id"])) == bucket_of_topic("mail", settings.buckets)


@pytest.mark.parametrize(
    "other",
    [
        *({"payload": {"a": 2}}, {"priority": 1}, {"topic": "other"}, {"task": "other"}, {"delay": "5m"}),
        *({"tags": ["x"]}, {"max_attempts": 5}, {"retry": {"base": 5}}, {"timeout": 1}, {"trace": {"a": "b"}}),
        *({"deadline": "2035-01-01T00:00:00Z"}, {"result_ttl": 60}, {"run_at": "2035-01-01T00:00:00Z"}),
    ],
    ids=str,
)
async def test_a_key_is_for_one_body(http: Http, other: dict[str, Any]) -> None:
    body = {"task": "mail", "payload": {"a": 1}}
    await http.done("POST", "/v1/jobs", body, status=201, headers=KEY)

    refused = await http.refused("POST", "/v1/jobs", body | other, headers=KEY)

    assert refused[:2] == (409, "idempotency_key_reused")
    assert len((await http.done("GET", "/v1/jobs"))["jobs"]) == 1


async def test_a_key_still_answers_when_its_job_is_over(http: Http, engine: Engine) -> None:
    first = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=201, headers=KEY)
    await finish(engine, result='{"ok": true}')

    again = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=200, headers=KEY)

    assert (again["id"], again["status"], again["result"]) == (first["id"], "COMPLETED", {"ok": True})


async def test_another_key_is_another_job(http: Http) -> None:
    for key in ("a", "b", "c"):
        await http.done("POST", "/v1/jobs", {"task": "mail"}, status=201, headers={"idempotency-key": key})


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_has_a_length(http: Http, key: str) -> None:
    assert (await http.refused("POST", "/v1/jobs", {"task": "mail"}, headers={"idempotency-key": key}))[0] == 400
