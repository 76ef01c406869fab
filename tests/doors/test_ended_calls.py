"""What does a call, or a request, leave behind when it is over?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.requests import Request

from pulse.server import open_server
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.grpc_client import Client, connected, refused
from tests.doors.http_client import served_http

PATIENCE = 10.0  # seconds
CALLS = 20


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    listening = replace(settings, listen="127.0.0.1:0")
    async with open_server(listening) as server, connected(str(server.address)) as client:
        yield client


class Leftovers:
    """What the server holds of calls and requests, but for what tests before this one have left."""

    def __init__(self) -> None:
        self._before = self._find()  # referred to, so that none of them goes meanwhile

    def _find(self) -> list[object]:
        """gRPC's contexts cannot be referred to weakly; each holds its call's native memory."""
        return [
            thing
            for thing in gc.get_objects()
            if type(thing).__name__ == "_ServicerContext" or isinstance(thing, Request)
        ]

    def count(self) -> int:
        return len(self._find()) - len(self._before)

    async def until_none_are_there(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.count():
                await asyncio.sleep(0.05)


@pytest.fixture
def leftovers() -> Iterator[Leftovers]:
    """With the collector off, so that only what nothing refers to is freed, as between two of its rounds."""
    gc.collect()
    gc.disable()
    yield Leftovers()
    gc.enable()


def _stream_of_jobs(client: Client, number: int) -> Any:
    pools = [pb.Pool(topics=["mail"], slots=1)]
    return client.work.StreamJobs(pb.StreamJobsRequest(worker=f"worker{number}", pools=pools))


def _watch_of_health(client: Client, number: int) -> Any:
    health: Any = health_pb2_grpc.HealthStub(client.channel)
    return health.Watch(health_pb2.HealthCheckRequest())


@pytest.mark.parametrize("open_stream", [_stream_of_jobs, _watch_of_health])
async def test_the_memory_of_a_stream_is_freed_when_it_ends(
    client: Client, leftovers: Leftovers, open_stream: Any
) -> None:
    streams = [open_stream(client, number) for number in range(CALLS)]
    for stream in streams:
        await stream.read()
    assert leftovers.count() == CALLS

    for stream in streams:
        stream.cancel()

    await leftovers.until_none_are_there()


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client: client.jobs.GetJob(pb.GetJobRequest(id="nonsense")), id="an id that is none"),
        pytest.param(
            lambda client: client.jobs.GetJob(pb.GetJobRequest(id=str(uuid4()))), id="a job that is not there"
        ),
        pytest.param(lambda client: client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob()])), id="a wrong job"),
        pytest.param(lambda client: client.work.StreamJobs(pb.StreamJobsRequest()).read(), id="a wrong stream"),
    ],
)
async def test_the_memory_of_a_refused_call_is_freed_when_it_ends(
    client: Client, leftovers: Leftovers, ask: Any
) -> None:
    """With its request, which may be of 16 MiB: a token that may only submit could fill a server's memory."""
    answers = [await refused(ask(client)) for _ in range(CALLS)]

    await leftovers.until_none_are_there()
    assert len({answer.code for answer in answers}) == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        pytest.param("/v1/jobs", {"task": "a"}, 201, id="nothing wrong"),
        pytest.param("/v1/jobs", {"task": "a", "priority": 5_000}, 400, id="a wrong field"),
        pytest.param("/v1/jobs", {"task": "a", "tags": [1]}, 400, id="a field of another type"),
        pytest.param("/v1/jobs", {"task": "a", "nosuch": 1}, 400, id="an unknown field"),
        pytest.param("/v1/jobs/batch", {"jobs": []}, 400, id="an empty batch"),
        pytest.param("/v1/alarms", {"url": "https://a.example/", "cron": "x"}, 400, id="a wrong alarm"),
        pytest.param("/v1/schedules", {"name": "a", "cron": "x", "job": {"task": "a"}}, 400, id="a wrong schedule"),
        pytest.param("/v1/nosuch", {}, 404, id="an unknown path"),
    ],
)
async def test_a_request_is_freed_when_it_is_answered(
    settings: Settings, leftovers: Leftovers, path: str, body: dict[str, Any], status: int
) -> None:
    """With its body, which may be of 16 MiB."""
    async with served_http(settings) as http:
        answers = [await http.ask("POST", path, body | {"payload": "x"} if "task" in body else body) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {status}

        await leftovers.until_none_are_there()
