"""What does a server cost whose workers have nothing to do, however many there are?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.grpc_client import Client
from tests.doors.grpc_client import connected as channel_to
from tests.doors.worker_processes import started
from tests.system.test_idle_worker import calm_url, commits_a_second, resident_megabytes
from tests.waiting import connected

__all__ = ["calm_url"]  # a fixture

SIGN_OF_LIFE = 4.0  # seconds, as our own workers have it
TOPICS = [f"topic{number}" for number in range(50)]


class Idle:
    """A connected worker that does what every worker must, and nothing else."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._name = f"idle{number}"
        self.jobs: list[str] = []

    async def live(self, ready: asyncio.Event) -> None:
        pools = [pb.Pool(topics=TOPICS, slots=10)]
        call = self._client.work.StreamJobs(pb.StreamJobsRequest(worker=self._name, pools=pools))
        hello = await call.read()
        ready.set()
        signs = asyncio.create_task(self._give_signs(hello.hello.stream))
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self.jobs += [job.job_id for job in message.assignments.jobs]
        finally:
            signs.cancel()
            call.cancel()

    async def _give_signs(self, stream: str) -> None:
        while True:
            await asyncio.sleep(SIGN_OF_LIFE)
            request = pb.UpdateCreditRequest(credit=pb.Credit(stream=stream, free=[10]))
            await self._client.work.UpdateCredit(request, timeout=SIGN_OF_LIFE)


@asynccontextmanager
async def idle_workers(client: Client, count: int) -> AsyncIterator[list[Idle]]:
    workers = [Idle(client, number) for number in range(count)]
    ready = [asyncio.Event() for _ in workers]
    lives = [asyncio.create_task(worker.live(event)) for worker, event in zip(workers, ready, strict=True)]
    try:
        async with asyncio.timeout(60):
            for event in ready:
                await event.wait()
        yield workers
        assert not any(life.done() for life in lives), "a stream has ended"
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.long
async def test_idle_workers_cost_a_server_the_same_however_many_they_are(calm_url: str, tmp_path: Path) -> None:
    """Two hundred with fifty topics each: four transactions a second and two hundred megabytes at most."""
    await migrate(Settings(database_url=calm_url))
    with started(tmp_path, "server", "--listen", "127.0.0.1:0", PULSE_DATABASE_URL=calm_url) as server:
        address = server.expect(r"address +grpc://(\S+)").group(1)
        async with channel_to(address) as client, connected(calm_url) as conn:
            few = await rate_with(client, conn, 10)
            async with idle_workers(client, 200) as workers:
                await asyncio.sleep(3)  # until it has settled; there is no event for nothing happening
                many = await commits_a_second(conn)
                memory = resident_megabytes(server.process.pid)
                submitted = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task=TOPICS[7])]))
                await asyncio.sleep(1)  # long enough for a second one to get it, too
                receivers = [worker.jobs for worker in workers if worker.jobs]

    found = f"{few:.2f} transactions/s with 10 workers, {many:.2f} with 200, {memory:.0f} MB"
    print(found)  # noqa: T201
    assert receivers == [[submitted.jobs[0].id]]
    assert (many <= 4, many <= few + 0.5, memory <= 200) == (True, True, True), found


async def rate_with(client: Client, conn: Any, count: int) -> float:
    async with idle_workers(client, count):
        await asyncio.sleep(3)
        return await commits_a_second(conn)
