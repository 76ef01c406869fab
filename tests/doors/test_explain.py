"""Is the reason why a job does not run the same, in the same words, at every door?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from pulse.engine.engine import Engine
from pulse.model.explain.facts import Explanation, Reason
from pulse.model.ids import Mint
from pulse.model.jobs import JobStatus
from pulse.settings import Settings
from pulse.wire.convert_watching import read_explanation, write_explanation
from tests.clock import FrozenClock
from tests.doors.command_line import call, call_json
from tests.doors.http_client import Http, served_http
from tests.factories import submit_one
from tests.served import Served


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as client:
        yield client


async def test_every_door_says_the_same(http: Http, engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await engine.jobs.pause("mail", reason="\x1b[31mprovider is down")
    expected = await engine.explain(job_id)
    database = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
    served = Served(settings, count=1)
    server = {"PULSE_SERVER_URL": str(served.start().server_url)}
    try:
        straight = await asyncio.to_thread(call_json, "explain", job_id, **database)
        through = await asyncio.to_thread(call_json, "explain", job_id, **server)
    finally:
        served.stop()

    assert expected.reason is Reason.PAUSED
    assert await http.done("GET", f"/v1/jobs/{job_id}/explain") == straight == through
    assert straight == {
        "job_id": str(job_id),
        "status": "PENDING",
        "topic": "mail",
        "reason": "PAUSED",
        "text": expected.text,
        "worker": None,
        "ahead": 0,
        "expected_at": None,
    }
    shown = (await asyncio.to_thread(call, "explain", job_id, **database)).output
    assert "\\x1b[31mprovider is down" in shown
    assert "\x1b" not in shown


def test_what_is_not_there_has_its_exit_code(settings: Settings) -> None:
    job_id = Mint().ids([4095])[0]
    result = call("--json", "explain", job_id, PULSE_DATABASE_URL=settings.database_url)

    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["code"] == "job_not_found"
    assert "from another one" in result.stderr


def test_what_is_no_id_is_refused() -> None:
    assert call("explain", "mail").exit_code == 2


@pytest.mark.parametrize("ahead", [None, 0, 7])
def test_it_comes_back_from_the_wire_as_it_was(ahead: int | None) -> None:
    job_id = Mint().ids([0])[0]
    found = Explanation(
        job_id=job_id, status=JobStatus.PENDING, topic="mail", reason=Reason.BEHIND, text="…", ahead=ahead
    )

    assert read_explanation(write_explanation(found)) == found


def test_a_reason_of_a_newer_server_keeps_its_text() -> None:
    message = write_explanation(
        Explanation(
            job_id=Mint().ids([0])[0], status=JobStatus.PENDING, topic="mail", reason=Reason.NEXT, text="a new reason"
        )
    )
    message.reason = "RATE_LIMITED"

    found = read_explanation(message)

    assert (found.reason, found.text) == (Reason.OTHER, "a new reason")
