"""Can schedules be made, seen and acted upon by anything that speaks HTTP?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import NewJob
from pulse.model.schedules import Declared, NewSchedule
from pulse.settings import Settings
from tests.doors.http_client import Http, segment, served_http

DAILY = {"name": "daily", "task": "report", "cron": "0 9 * * 1-5", "tz": "Europe/Berlin"}
ODD_NAMES = ["a/fires", "preview", "a b", "100%", "café/ü", "?x=1#y", "%2F", "a/b/pause", "..."]


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def make(http: Http, **fields: Any) -> Any:
    return await http.done("POST", "/v1/schedules", DAILY | fields, status=201)


# --- making


async def test_everything_that_is_said_of_a_schedule_is_kept(http: Http) -> None:
    said = {
        "payload": {"to": "ada"},
        "topic": "reports",
        "priority": 5,
        "max_attempts": 2,
        "retry": {"kind": "fixed", "base": "1m"},
        "timeout": "10m",
        "result_ttl": 60,
        "tags": ["eu"],
        "starts_at": "2030-01-01T00:00:00+01:00",
        "ends_at": "2031-01-01T00:00:00Z",
        "max_occurrences": 100,
        "jitter": 2.5,
        "catch_up": "replay",
        "replay_limit": 7,
        "overlap": "buffer_one",
    }

    schedule = await make(http, **said)

    expected = DAILY | said | {"timeout": 600.0, "starts_at": "2029-12-31T23:00:00Z", "kind": "cron"}
    expected["retry"] = {"kind": "fixed", "base": 60.0, "factor": 2, "delays": [], "max_delay": 86400, "jitter": 0.1}
    assert {name: schedule[name] for name in expected} == expected
    assert (schedule["status"], schedule["fired"], schedule["app"]) == ("ACTIVE", 0, None)
    assert schedule["next_run_at"] == "2030-01-01T08:00:00Z"


@pytest.mark.parametrize(
    ("when", "kind"),
    [({"every": "5m"}, "interval"), ({"run_at": "2035-01-01T00:00:00Z"}, "once"), ({"delay": 60}, "once")],
)
async def test_there_are_other_ways_to_say_when(http: Http, when: dict[str, Any], kind: str) -> None:
    schedule = await http.done("POST", "/v1/schedules", {"name": "x", "task": "t"} | when, status=201)

    assert (schedule["kind"], schedule["topic"]) == (kind, "t")


async def test_the_same_again_is_no_error_and_another_is(http: Http) -> None:
    first = await make(http)

    assert await http.done("POST", "/v1/schedules", DAILY, status=200) == first
    refused = await http.refused("POST", "/v1/schedules", DAILY | {"priority": 1})
    assert refused[:2] == (409, "schedule_exists")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"corn": "* * * * *"}, "invalid_input"),
        ({"cron": "every day"}, "invalid_schedule"),
        ({"cron": None}, "invalid_schedule"),
        ({"every": "5m"}, "invalid_schedule"),
        ({"tz": "Europe/Bonn"}, "invalid_schedule"),
        ({"cron": "0 0 30 2 *"}, "invalid_schedule"),
        ({"catch_up": "sometimes"}, "invalid_input"),
        ({"replay_limit": 0}, "invalid_input"),
        ({"name": "0190a000-0000-7000-8000-000000000000"}, "invalid_name"),
        ({"delay": "5m"}, "invalid_schedule"),
        ({"unique_key": "k"}, "invalid_input"),
        ({"task": ""}, "invalid_input"),
    ],
)
async def test_a_schedule_that_could_not_be_is_refused(http: Http, fields: dict[str, Any], code: str) -> None:
    for path in ("/v1/schedules", "/v1/schedules/preview"):
        assert (await http.refused("POST", path, DAILY | fields))[:2] == (400, code)


# --- by name


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_name_is_one_segment_of_a_path(http: Http, name: str) -> None:
    made = await make(http, name=name)
    path = f"/v1/schedules/{segment(name)}"

    assert (await http.done("GET", path)) == made
    assert (await http.done("GET", f"{path}/preview"))["occurrences"]
    assert (await http.done("POST", f"{path}/pause"))["paused_at"]
    assert (await http.done("DELETE", path))["name"] == name
    assert (await http.refused("GET", path))[:2] == (404, "schedule_not_found")


async def test_a_schedule_has_an_id_too(http: Http) -> None:
    made = await make(http)

    assert await http.done("GET", f"/v1/schedules/{made['id']}") == made


async def test_what_is_not_utf8_is_no_name(http: Http) -> None:
    assert (await http.refused("GET", "/v1/schedules/%ff"))[:2] == (400, "invalid_input")
    assert (await http.refused("GET", "/v1/schedules/a%00"))[:2] == (400, "invalid_name")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/trigger")),
        *(("GET", "/fires"), ("GET", "/preview")),
    ],
)
async def test_there_is_no_such_schedule(http: Http, method: str, path: str) -> None:
    assert (await http.refused(method, f"/v1/schedules/nobody{path}"))[:2] == (404, "schedule_not_found")


async def test_an_empty_zone_is_utc(http: Http) -> None:
    made = await make(http, tz="")
    await http.done("PATCH", "/v1/schedules/daily", {"tz": "Europe/Berlin"})
    edited = await http.done("PATCH", "/v1/schedules/daily", {"tz": ""})

    assert made["tz"] == edited["tz"] == "UTC"


async def test_what_a_deleted_schedule_has_made_is_found_by_its_id(http: Http) -> None:
    made = await make(http)
    fire = await http.done("POST", "/v1/schedules/daily/trigger")
    await http.done("POST", "/v1/jobs", {"task": "another"}, status=201)
    await http.done("DELETE", "/v1/schedules/daily")

    fires = await http.done("GET", f"/v1/schedules/{made['id']}/fires")
    jobs = await http.done("GET", f"/v1/jobs?schedule_id={made['id']}")

    assert [each["job_id"] for each in fires["fires"]] == [each["id"] for each in jobs["jobs"]] == [fire["job_id"]]
    assert (await http.refused("GET", "/v1/jobs?schedule_id=daily"))[0] == 400
    assert (await http.refused("GET", "/v1/schedules/daily/fires"))[:2] == (404, "schedule_not_found")


# --- changing


async def test_only_what_is_named_is_changed(http: Http) -> None:
    made = await make(http, tags=["eu"], jitter="5s", priority=3)

    changes = {"every": "1h", "tz": "UTC", "jitter": None, "payload": [1], "topic": "other"}
    edited = await http.done("PATCH", "/v1/schedules/daily", changes)

    assert (edited["kind"], edited["every"], edited["cron"], edited["jitter"]) == ("interval", 3600.0, None, None)
    assert (edited["payload"], edited["topic"], edited["tags"], edited["priority"]) == ([1], "other", ["eu"], 3)
    assert edited["id"] == made["id"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({}, 400, "invalid_schedule"),
        ({"name": "other"}, 400, "invalid_input"),
        ({"task": None}, 400, "invalid_input"),
        ({"cron": "x"}, 400, "invalid_schedule"),
    ],
)
async def test_a_change_that_could_not_be_is_refused(http: Http, changes: Any, status: int, code: str) -> None:
    before = await make(http)

    assert (await http.refused("PATCH", "/v1/schedules/daily", changes))[:2] == (status, code)
    assert await http.done("GET", "/v1/schedules/daily") == before


async def test_what_code_declares_is_not_changed_here(http: Http, engine: Engine) -> None:
    declared = NewSchedule(name="daily", job=NewJob(task="report"), cron="0 9 * * *")
    await engine.schedules.sync("shop", [Declared(schedule=declared)])

    for method, body in (("PATCH", {"priority": 1}), ("DELETE", None)):
        assert (await http.refused(method, "/v1/schedules/daily", body))[:2] == (409, "schedule_owned")


async def test_a_schedule_is_paused_and_resumed(http: Http) -> None:
    await make(http)

    paused = await http.done("POST", "/v1/schedules/daily/pause", {"reason": "holidays"})
    resumed = await http.done("POST", "/v1/schedules/daily/resume")

    assert (paused["paused_at"] is None, paused["pause_reason"]) == (False, "holidays")
    assert resumed["paused_at"] is None


# --- firing by hand


async def test_a_trigger_makes_a_job_and_is_seen_among_the_fires(http: Http) -> None:
    await make(http)

    fire = await http.done("POST", "/v1/schedules/daily/trigger")
    page = await http.done("GET", "/v1/schedules/daily/fires")

    job = await http.done("GET", f"/v1/jobs/{fire['job_id']}")
    assert (job["task"], job["scheduled_for"]) == ("report", fire["occurrence"])
    assert [(each["job_id"], each["cause"], each["outcome"]) for each in page["fires"]] == [
        (fire["job_id"], "trigger", "FIRED")
    ]
    assert page["next"] is None


async def test_a_repeated_trigger_makes_one_job(http: Http) -> None:
    await make(http)
    await make(http, name="other")
    key = {"idempotency-key": "k"}

    fires = [await http.done("POST", "/v1/schedules/daily/trigger", headers=key) for _ in range(2)]
    other = await http.done("POST", "/v1/schedules/other/trigger", headers=key)

    assert fires[0] == fires[1]
    assert UUID(other["job_id"]) != UUID(fires[0]["job_id"])


async def test_fires_are_read_page_by_page(http: Http) -> None:
    await make(http)
    made = [(await http.done("POST", "/v1/schedules/daily/trigger"))["job_id"] for _ in range(3)]

    first = await http.done("GET", "/v1/schedules/daily/fires?limit=2")
    second = await http.done("GET", "/v1/schedules/daily/fires", params={"after": first["next"]})

    assert [fire["job_id"] for fire in first["fires"] + second["fires"]] == made[::-1]
    assert (await http.refused("GET", "/v1/schedules/daily/fires?after=x"))[:2] == (400, "invalid_filter")


async def test_the_past_is_made_up_for(http: Http) -> None:
    await make(http, cron="0 * * * *", tz="UTC")
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    stretch = {"start": (end - timedelta(hours=3)).isoformat(), "end": end.isoformat()}

    dry = await http.done("POST", "/v1/schedules/daily/backfill", stretch | {"dry_run": True})
    done = await http.done("POST", "/v1/schedules/daily/backfill", stretch)
    again = await http.done("POST", "/v1/schedules/daily/backfill", stretch)

    assert (len(dry["occurrences"]), dry["job_ids"], dry["dry_run"]) == (3, [], True)
    assert (done["occurrences"], len(done["job_ids"])) == (dry["occurrences"], 3)
    assert again["occurrences"] == []
    refused = await http.refused("POST", "/v1/schedules/daily/backfill", stretch | {"limit": 2})
    assert refused[:2] == (400, "invalid_option")
    assert (await http.refused("POST", "/v1/schedules/daily/backfill", {"start": end.isoformat()}))[0] == 400


# --- looking


async def test_schedules_are_listed_page_by_page(http: Http) -> None:
    for name in ("a", "b", "c"):
        await make(http, name=name, tags=[name])
    await http.done("POST", "/v1/schedules/b/pause")

    first = await http.done("GET", "/v1/schedules?limit=2")
    second = await http.done("GET", "/v1/schedules", params={"after": first["next"]})
    paused = await http.done("GET", "/v1/schedules?paused=true&status=ACTIVE&task=report&topic=report&tag=b")

    assert [each["name"] for each in first["schedules"] + second["schedules"]] == ["a", "b", "c"]
    assert [each["name"] for each in paused["schedules"]] == ["b"]
    assert (await http.refused("GET", "/v1/schedules?status=sleeping"))[0] == 400


async def test_occurrences_are_told_before_they_come(http: Http) -> None:
    winter = DAILY | {"starts_at": "2030-01-01T00:00:00Z"}

    new = await http.done("POST", "/v1/schedules/preview?n=2", winter)
    await http.done("POST", "/v1/schedules", winter, status=201)
    made = await http.done("GET", "/v1/schedules/daily/preview?n=2")

    assert new == made
    assert new["occurrences"][0] == {
        "at": "2030-01-01T08:00:00Z",
        "local": "2030-01-01T09:00:00+01:00",
        "note": None,
    }
    assert (await http.refused("GET", "/v1/schedules/daily/preview?n=201"))[0] == 400
