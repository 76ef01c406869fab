"""Can jobs be submitted, followed and operated by anything that speaks HTTP?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import NewJob, Outcome, Report
from pulse.settings import Settings
from tests.doors.http_client import Http, read_refusal, served_http

KEY = {"idempotency-key": "order-42"}


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def submit(http: Http, **fields: Any) -> Any:
    return await http.done("POST", "/v1/jobs", {"task": "mail"} | fields, status=201)


async def finish(engine: Engine, outcome: Outcome = Outcome.COMPLETE, **how: Any) -> None:
    [claim] = await engine.claims.claim("mail", worker="w", slots=1)
    await engine.claims.report([Report(id=claim.id, lease_id=claim.lease_id, outcome=outcome, **how)])


# --- submitting


async def test_a_job_needs_no_more_than_a_task(http: Http, engine: Engine) -> None:
    job = await submit(http)

    assert (job["status"], job["topic"], job["payload"], job["tags"]) == ("PENDING", "mail", {}, [])
    assert (await engine.jobs.get(UUID(job["id"]))).task == "mail"


async def test_everything_that_is_said_of_a_job_is_kept(http: Http) -> None:
    run_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    said = {
        "topic": "post/büro",
        "payload": {"to": ["ada", "grace 🐘"], "n": None},
        "priority": -7,
        "run_at": run_at.isoformat(),
        "deadline": (run_at + timedelta(days=1)).isoformat(),
        "max_attempts": 9,
        "retry": {"kind": "list", "delays": [1, "5m", 0.5]},
        "timeout": "1m30s",
        "unique_key": "order:42",
        "unique_window": "1d",
        "result_ttl": 3600,
        "tags": ["eu", "vip"],
        "trace": {"traceparent": "00-1"},
    }

    job = await submit(http, **said)

    same = ("topic", "payload", "priority", "max_attempts", "unique_key", "tags", "trace")
    assert {name: job[name] for name in same} == {name: said[name] for name in same}
    assert job["run_at"] == run_at.isoformat().replace("+00:00", "Z")
    assert (job["timeout"], job["result_ttl"]) == (90.0, 3600.0)
    rest = {"base": 1, "factor": 2, "max_delay": 86400, "jitter": 0.1}
    assert job["retry"] == {"kind": "list", "delays": [1, 300, 0.5]} | rest
    assert job["status"] == "SCHEDULED"


@pytest.mark.parametrize(("delay", "seconds"), [("5m", 300), (300, 300), (0.25, 0.25), ("250ms", 0.25), ("90", 90)])
async def test_a_delay_is_text_or_seconds(http: Http, delay: object, seconds: float) -> None:
    job = await submit(http, delay=delay)

    waits = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["submitted_at"])
    assert waits == timedelta(seconds=seconds)


async def test_an_instant_may_be_told_in_any_zone(http: Http) -> None:
    job = await submit(http, run_at="2035-05-01T09:00:00+02:00", deadline="2035-05-02t00:00:00.5z")

    assert (job["run_at"], job["deadline"]) == ("2035-05-01T07:00:00Z", "2035-05-02T00:00:00.500000Z")


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "0.1000000000000000055511151231257827", "1.50"])
async def test_a_payload_is_kept_to_the_last_digit(http: Http, number: str) -> None:
    body = f'{{"task": "mail", "payload": [{number}]}}'

    response = await http.ask("POST", "/v1/jobs", content=body, headers={"content-type": "application/json"})

    assert f'"payload":[{number}]' in response.text


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"dealy": 5}, "invalid_input", "dealy: there is no such field here"),
        ({"retry": {"tries": 5}}, "invalid_input", "retry.tries: there is no such field here"),
        ({"task": ""}, "invalid_input", "task"),
        ({"task": None}, "invalid_input", "task"),
        ({"task": "a\nb"}, "invalid_name", "must be printable text"),
        ({"topic": "*"}, "invalid_name", "stands for all topics"),
        ({"priority": 101}, "invalid_input", "priority"),
        ({"priority": "5"}, "invalid_input", "priority"),
        ({"priority": True}, "invalid_input", "priority"),
        ({"delay": "5 minutes"}, "invalid_input", "not a duration"),
        ({"delay": -1}, "invalid_option", "length of time"),
        ({"delay": 1e300}, "invalid_input", "must be at most ten years"),
        ({"delay": True}, "invalid_input", "length of time"),
        (
            {"delay": "5m", "run_at": "2035-01-01T00:00:00Z"},
            "invalid_option",
            "delay must be left out where run_at is given",
        ),
        ({"run_at": "2035-01-01T00:00:00"}, "invalid_input", "must have a time zone"),
        ({"run_at": "tomorrow"}, "invalid_input", "must be an instant"),
        ({"run_at": 1_900_000_000}, "invalid_input", "RFC 3339"),
        ({"run_at": "0001-01-01T00:00:00+23:00"}, "invalid_input", "within the years 1 to 9999"),
        ({"run_at": "1969-01-01T00:00:00Z"}, "invalid_option", "must be 1970 or later"),
        ({"unique_window": "1d"}, "invalid_option", "unique_window must come with a unique_key"),
        ({"retry": {"kind": "list"}}, "invalid_option", "retry delays"),
        ({"payload": "\x00"}, "invalid_payload", "U+0000"),
        ({"tags": ["a"] * 33}, "invalid_input", "tags"),
        ({"tags": "eu"}, "invalid_input", "tags"),
    ],
)
async def test_a_job_that_could_not_be_is_refused_by_name(http: Http, fields: Any, code: str, said: str) -> None:
    status, found, message = await http.refused("POST", "/v1/jobs", {"task": "mail"} | fields)

    assert (status, found) == (400, code)
    assert said in message
    assert await http.done("GET", "/v1/jobs") == {"jobs": [], "next": None}


async def test_a_payload_over_a_mebibyte_is_refused(http: Http) -> None:
    refused = await http.refused("POST", "/v1/jobs", {"task": "mail", "payload": "x" * (1 << 20)})

    assert refused[:2] == (400, "invalid_payload")


async def test_a_held_key_answers_with_the_first_job(http: Http) -> None:
    first = await submit(http, unique_key="k")

    again = await http.done("POST", "/v1/jobs", {"task": "mail", "unique_key": "k"}, status=200)

    assert again["id"] == first["id"]


# --- many


async def test_a_batch_is_submitted_as_one(http: Http) -> None:
    jobs = [{"task": "mail", "unique_key": "k"}, {"task": "post"}, {"task": "mail", "unique_key": "k"}]

    answer = await http.done("POST", "/v1/jobs/batch", {"jobs": jobs})

    assert [each["created"] for each in answer["jobs"]] == [True, True, False]
    assert answer["jobs"][0]["id"] == answer["jobs"][2]["id"]


async def test_one_bad_job_refuses_its_batch_and_is_named(http: Http) -> None:
    _, code, message = await http.refused("POST", "/v1/jobs/batch", {"jobs": [{"task": "a"}, {"tsak": "b"}]})

    assert (code, "jobs.1.tsak" in message) == ("invalid_input", True)
    assert (await http.done("GET", "/v1/jobs"))["jobs"] == []


async def test_a_batch_has_a_limit(http: Http) -> None:
    refused = await http.refused("POST", "/v1/jobs/batch", {"jobs": [{"task": "a"}] * 10_001})

    assert refused[:2] == (400, "batch_too_large")
    assert (await http.refused("POST", "/v1/jobs/batch", {"jobs": []}))[0] == 400


async def test_a_batch_takes_no_key_in_silence(http: Http) -> None:
    refused = await http.refused("POST", "/v1/jobs/batch", {"jobs": [{"task": "a"}]}, headers=KEY)

    assert (refused[0], "unique_key" in refused[2]) == (400, True)


# --- following


async def test_a_job_can_be_read(http: Http) -> None:
    job = await submit(http)

    assert await http.done("GET", f"/v1/jobs/{job['id']}") == job


@pytest.mark.parametrize("path", ["", "/wait", "/attempts", "/explain"])
async def test_there_is_no_such_job(http: Http, path: str) -> None:
    missing = uuid4()

    response = await http.ask("GET", f"/v1/jobs/{UUID(int=missing.int & ~0xFFF)}{path}")

    assert read_refusal(response)[:2] == (404, "job_not_found")
    assert "job_id" in response.json()["error"]["details"]
    assert (await http.refused("GET", f"/v1/jobs/abc{path}"))[0] == 400


async def test_a_wait_answers_when_the_job_is_over(http: Http, engine: Engine) -> None:
    job = await submit(http)
    waiting = asyncio.create_task(http.done("GET", f"/v1/jobs/{job['id']}/wait"))
    await asyncio.sleep(0.1)
    assert not waiting.done()

    await finish(engine, result="[1e2]")

    found = await asyncio.wait_for(waiting, 10)
    assert (found["status"], found["result"]) == ("COMPLETED", [100])


async def test_a_wait_ends_when_its_time_has_passed(http: Http) -> None:
    job = await submit(http)

    for seconds in ("0", "0.05"):
        assert (await http.done("GET", f"/v1/jobs/{job['id']}/wait?seconds={seconds}"))["status"] == "PENDING"


@pytest.mark.parametrize("seconds", ["-1", "20.1", "nan", "inf", "soon"])
async def test_a_wait_is_bounded(http: Http, seconds: str) -> None:
    assert (await http.refused("GET", f"/v1/jobs/{uuid4()}/wait?seconds={seconds}"))[:2] == (400, "invalid_input")


async def test_a_job_can_be_cancelled_once(http: Http) -> None:
    job = await submit(http)

    cancelled = await http.done("POST", f"/v1/jobs/{job['id']}/cancel", {"reason": "sold out"})

    assert (cancelled["status"], cancelled["last_error"]) == ("CANCELLED", "cancelled: sold out")
    refused = await http.refused("POST", f"/v1/jobs/{job['id']}/cancel")
    assert refused[:2] == (409, "illegal_transition")


async def test_a_job_can_be_run_before_its_time_once(http: Http) -> None:
    body = {"task": "mail", "delay": "1h"}
    job = await http.done("POST", "/v1/jobs", body, status=201, headers={"idempotency-key": "k"})

    hastened = await http.done("POST", f"/v1/jobs/{job['id']}/run-now")

    assert hastened["status"] == "PENDING"
    assert (await http.refused("POST", f"/v1/jobs/{job['id']}/run-now"))[:2] == (409, "illegal_transition")
    again = await http.done("POST", "/v1/jobs", body, headers={"idempotency-key": "k"})
    assert again["id"] == job["id"], "it is still the job of this key"


async def test_a_dead_letter_can_be_replayed_and_tells_what_it_died_of(http: Http, engine: Engine) -> None:
    job = await submit(http)
    assert (await http.refused("POST", f"/v1/jobs/{job['id']}/replay"))[:2] == (409, "illegal_transition")
    await finish(engine, Outcome.DISCARD, error="no such address", traceback="line 1")

    [attempt] = (await http.done("GET", f"/v1/jobs/{job['id']}/attempts"))["attempts"]
    replayed = await http.done("POST", f"/v1/jobs/{job['id']}/replay", {})

    assert (attempt["error"], attempt["traceback"], attempt["worker"]) == ("no such address", "line 1", "w")
    assert replayed["status"] == "PENDING"


# --- lists


async def test_jobs_are_listed_page_by_page(http: Http) -> None:
    made = [(await submit(http))["id"] for _ in range(5)]

    found, after = [], ""
    while after is not None:
        page = await http.done("GET", "/v1/jobs", params={"limit": "2"} | ({"after": after} if after else {}))
        assert len(page["jobs"]) <= 2
        found += [job["id"] for job in page["jobs"]]
        after = page["next"]

    assert found == made[::-1]


async def test_jobs_are_listed_by_what_they_are(http: Http, engine: Engine) -> None:
    await submit(http, tags=["a"])
    await finish(engine, Outcome.DISCARD, error="no such address")
    await submit(http, task="post", topic="other")

    async def count(**filters: str) -> int:
        return len((await http.done("GET", "/v1/jobs", params=filters))["jobs"])

    assert await count(topic="mail") == await count(task="post") == await count(status="DEAD_LETTERED") == 1
    assert await count(tag="a") == await count(error="ADDRESS") == 1
    assert await count(submitted_after="2020-01-01T00:00:00+02:00") == 2
    assert await count(submitted_before="2020-01-01T00:00:00Z") == 0


@pytest.mark.parametrize(
    "query",
    [
        *("statsu=PENDING", "status=penned", "limit=0", "limit=501", "limit=x", "after=nonsense", "topic="),
        *("submitted_after=2020-01-01T00:00:00+02:00", "submitted_after=2020-01-01"),
    ],
)
async def test_a_list_that_could_not_be_meant_is_refused(http: Http, query: str) -> None:
    assert (await http.refused("GET", f"/v1/jobs?{query}"))[0] == 400


@pytest.mark.parametrize("status", ["SCHEDULED", "scheduled", "Dead-Lettered", "dead_lettered"])
async def test_a_state_may_be_written_in_any_case(http: Http, status: str) -> None:
    await submit(http, delay="1h")

    found = await http.done("GET", f"/v1/jobs?status={status}")
    assert [job["status"] for job in found["jobs"]] == (["SCHEDULED"] if status.upper() == "SCHEDULED" else [])


async def test_a_page_of_large_jobs_is_cut_short_and_goes_on(settings: Settings) -> None:
    async with served_http(settings, message_limit=4 << 20) as http:
        jobs = [NewJob(task="mail", payload=f'"{"x" * 900_000}"') for _ in range(5)]
        await http.server._engine.jobs.submit(jobs)

        first = await http.done("GET", "/v1/jobs")
        second = await http.done("GET", "/v1/jobs", params={"after": first["next"]})

    assert (len(first["jobs"]), len(second["jobs"])) == (2, 2)


# --- large bodies, of which only the outline is read

JSON = {"content-type": "application/json"}
LARGE = {"task": "t", "payload": "x" * 20_000}


async def test_a_large_job_is_kept_to_the_last_digit(http: Http) -> None:
    body = '{"task": "t", "delay": "5m", "payload": [1.10, 12345678901234567890.5, "' + "ü" * 20_000 + '"]}'

    job = (await http.client.post("/v1/jobs", content=body.encode(), headers=JSON)).text

    assert '"payload":[1.10, 12345678901234567890.5, "' in job


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (LARGE | {"dealy": 5}, "invalid_input", "dealy: there is no such field here"),
        (LARGE | {"task": 5}, "invalid_input", "task: "),
        (LARGE | {"tags": ["x" * 70_000]}, "invalid_input", "tags must have at most 65,536 bytes, not 70,004"),
        (LARGE | {"tags": ["x"] * 33}, "invalid_input", "tags: "),
        (LARGE | {"trace": {str(number): "" for number in range(65)}}, "invalid_input", "trace: "),
        (LARGE | {"retry": {"kind": "list", "delays": [1] * 1_001}}, "invalid_input", "retry.delays: "),
        ([LARGE], "invalid_input", "Expected `object`"),
    ],
)
async def test_a_large_job_is_refused_in_the_same_words(http: Http, body: Any, code: str, said: str) -> None:
    status, found, message = await http.refused("POST", "/v1/jobs", body)

    assert (status, found) == (400, code)
    assert message.startswith(said)


async def test_a_mistake_in_a_large_batch_is_named_by_its_place(http: Http) -> None:
    body = {"jobs": [LARGE, LARGE | {"dealy": 5}]}

    assert (await http.refused("POST", "/v1/jobs/batch", body))[2] == "jobs.1.dealy: there is no such field here"


@pytest.mark.parametrize("field", [{"tags": [1.5] * 10_000}, {"retry": {"kind": "list", "delays": [[]] * 10_000}}])
async def test_a_batch_of_long_lists_is_refused_before_they_are_built(http: Http, field: Any) -> None:
    """Each of them is small; all together took half a gigabyte before the first was found to be wrong."""
    body = {"jobs": [{"task": "t"} | field] * 100}

    refused = (400, "invalid_input", "the lists of the body have more than 300,000 values: send it in parts")
    assert await http.refused("POST", "/v1/jobs/batch", body) == refused


async def test_the_largest_batch_with_all_that_a_job_usually_has_is_taken(http: Http) -> None:
    job = {
        "task": "t",
        "tags": ["a", "b, c"],
        "retry": {"kind": "list", "delays": ["1s", "5s", "1m"]},
        "trace": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    }

    assert (await http.ask("POST", "/v1/jobs/batch", {"jobs": [job] * 10_000})).status_code == 200


async def test_numbers_that_would_fill_a_message_are_refused(http: Http) -> None:
    """Postgres writes each of them out, with a hundred digits."""
    body = '{"task": "t", "payload": [' + "1e100," * 20_000 + "0]}"

    answer = await http.client.post("/v1/jobs", content=body, headers=JSON)

    assert read_refusal(answer)[1:] == ("invalid_payload", "payload is larger than 1 MiB with its numbers written out")
