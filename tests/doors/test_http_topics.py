"""Can topics, workers and the server itself be looked at by anything that speaks HTTP?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import pulse
from pulse.engine.dispatch.worker_stream import Pool, WorkerStream
from pulse.engine.engine import Engine
from pulse.model.jobs import NewJob
from pulse.settings import Settings
from tests.doors.http_client import Http, segment, served_http


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


@pytest.mark.parametrize("topic", ["mail", "a/b", "pause", "a/pause", "a b", "50%", "büro", "*", "%2F", "a?b#c"])
async def test_any_topic_can_be_paused_and_resumed(http: Http, engine: Engine, topic: str) -> None:
    path = f"/v1/topics/{segment(topic)}"

    paused = await http.done("POST", f"{path}/pause", {"reason": "printer broken"})
    pauses = await engine.jobs.pauses()

    assert (paused["topic"], paused["reason"]) == (topic, "printer broken")
    assert [(pause.topic, pause.reason) for pause in pauses] == [(topic, "printer broken")]
    assert (await http.done("GET", "/v1/topics"))["pauses"] == [paused]
    assert await http.done("POST", f"{path}/resume") == {"was_paused": True}
    assert await http.done("POST", f"{path}/resume") == {"was_paused": False}


async def test_a_slash_that_is_not_encoded_is_another_path(http: Http) -> None:
    assert (await http.refused("POST", "/v1/topics/a/b/pause"))[:2] == (404, "not_found")
    assert (await http.refused("POST", "/v1/topics//pause"))[0] == 404
    assert (await http.refused("POST", "/v1/topics/a%0Ab/pause"))[:2] == (400, "invalid_name")


async def test_topics_are_counted(http: Http, engine: Engine) -> None:
    await engine.jobs.submit([NewJob(task="mail"), NewJob(task="mail", delay=timedelta(hours=1))])
    await http.done("POST", "/v1/topics/mail/pause")

    [topic] = (await http.done("GET", "/v1/topics"))["topics"]

    assert topic == {"topic": "mail", "counts": {"PENDING": 1, "SCHEDULED": 1}, "paused": True}


async def test_connected_workers_are_listed(http: Http, engine: Engine) -> None:
    stream = WorkerStream("shop/w1", [Pool(("mail",), 10)], version="plain/1")
    await engine.workers.duty(lambda: [stream])()

    [worker] = (await http.done("GET", "/v1/workers"))["workers"]

    assert (worker["name"], worker["topics"], worker["slots"], worker["busy"]) == ("shop/w1", ["mail"], 10, 0)
    assert worker["server"] == engine.workers.server


async def test_a_server_tells_its_version_and_limits(http: Http, settings: Settings) -> None:
    info = await http.done("GET", "/v1/info")

    assert info == {
        "version": pulse.__version__,
        "server": http.server.name,
        "batch_limit": 10_000,
        "page_limit": 500,
        "body_limit": settings.message_limit,
        "lease": 30.0,
        "heartbeat": 10.0,
    }
