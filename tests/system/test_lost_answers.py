"""A claim whose answer is lost costs no attempt: there is no dead letter that never ran, direct or through a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.links.opening import open_link
from pulse.model.jobs import JobFilter, JobStatus, NewJob
from pulse.sdk.worker.worker import Worker
from pulse.server import open_server
from pulse.settings import Settings
from tests.cutting_proxy import CuttingProxy, open_cutting_proxy

MARKER = b"this answer is lost"
PAYLOAD = f'{{"text": "{MARKER.decode()}"}}'
JOBS = 12


class Ran:
    """What the handlers of one app have done, and how often."""

    def __init__(self, settings: Settings) -> None:
        self.app = Pulse(settings=settings)
        self.starts = 0

        @self.app.task(name="mail")
        async def mail(text: str) -> None:
            self.starts += 1
            await asyncio.sleep(0.01)


@pytest.fixture
def patient(settings: Settings) -> Settings:
    """Leases of an hour: whoever waits for the end of one waits for ever."""
    hour = timedelta(hours=1)
    return replace(settings, lease=hour, heartbeat=timedelta(seconds=10), tick=timedelta(milliseconds=100))


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[Ran]:
    ran = Ran(settings)
    worker = Worker(ran.app, settings=settings)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(20):
            while not worker.is_ready:
                await asyncio.sleep(0.01)
        yield ran
    finally:
        worker.stop()
        await running


@asynccontextmanager
async def a_fleet(settings: Settings, kind: str, proxied: Settings) -> AsyncIterator[tuple[Ran, Settings]]:
    """A worker whose claims go through the proxy, straight or by its server; and how others reach the same."""
    async with AsyncExitStack() as stack:
        if kind == "direct":
            yield await stack.enter_async_context(working(proxied)), settings
            return
        server = await stack.enter_async_context(open_server(replace(proxied, listen="127.0.0.1:0", http_listen="")))
        through = replace(settings, server_url=f"grpc://{server.address}")
        yield await stack.enter_async_context(working(through)), through


async def check(engine: Engine, proxy: CuttingProxy, ran: Ran, jobs: int) -> None:
    """All ran, once, on the attempt that they had."""

    async def are_over() -> bool:
        [counts] = [each.counts for each in await engine.jobs.counts() if each.topic == "mail"]
        return sum(counts.get(status, 0) for status in (JobStatus.COMPLETED, JobStatus.DEAD_LETTERED)) == jobs

    async with asyncio.timeout(30):
        while not await are_over():
            await asyncio.sleep(0.02)
    found = (await engine.jobs.list_page(JobFilter(), limit=500)).jobs
    assert [job.status for job in found] == [JobStatus.COMPLETED] * jobs
    assert ran.starts == jobs
    assert {job.attempt - job.refunded for job in found} == {1}
    assert proxy.cuts > 0
    assert proxy.cuts_left == 0


@pytest.mark.parametrize("kind", ["direct", "server"])
async def test_a_claim(patient: Settings, engine: Engine, kind: str) -> None:
    async with (
        open_cutting_proxy(patient, MARKER) as (proxy, proxied),
        a_fleet(patient, kind, proxied) as (ran, _),
    ):
        proxy.cuts_left = 3

        await engine.jobs.submit([NewJob(task="mail", payload=PAYLOAD, max_attempts=1) for _ in range(JOBS)])

        await check(engine, proxy, ran, JOBS)


async def test_a_submit_that_claims(patient: Settings, engine: Engine) -> None:
    """The call is repeated, finds its own row, and hands it out."""
    async with (
        open_cutting_proxy(patient, MARKER) as (proxy, proxied),
        a_fleet(patient, "server", proxied) as (ran, through),
    ):
        async with open_link(through) as link:
            for _ in range(4):
                proxy.cuts_left = 1
                [submitted] = await link.submit([NewJob(task="mail", payload=PAYLOAD, max_attempts=1)])
                assert (await link.wait(submitted.id, seconds=20)).status is JobStatus.COMPLETED

        await check(engine, proxy, ran, 4)
        jobs = (await engine.jobs.list_page()).jobs
        assert any(job.claimed_at == job.submitted_at and not job.refunded for job in jobs), "as it was submitted"
