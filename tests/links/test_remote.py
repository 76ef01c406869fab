"""Does a client find a server that answers, show who it is, and raise what the engine would have raised?"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.links.opening import open_link
from pulse.links.remote_errors import KINDS, make_error
from pulse.model import errors
from pulse.model.errors import (
    Forbidden,
    InvalidOption,
    JobNotFound,
    PulseError,
    ServerUnreachable,
    Unauthenticated,
)
from pulse.model.jobs import JobStatus, NewJob
from pulse.settings import Settings
from tests.served import Served

UNKNOWN = UUID("01998e5c-7a40-7bd2-a3ea-0f2ce83f7000")


@pytest.fixture
def served(settings: Settings) -> Iterator[Served]:
    found = Served(settings)
    yield found
    found.stop()


@pytest.fixture
def through(served: Served) -> Settings:
    return served.start()


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_what_is_submitted_is_there(through: Settings, engine: Engine) -> None:
    jobs = [
        NewJob(
            task="mail",
            payload='{"to": "ada"}',
            priority=7,
            delay=timedelta(minutes=5),
            timeout=timedelta(seconds=1.5),
            tags=("a", "b"),
            unique_key="k",
            unique_window=timedelta(hours=1),
            trace={"traceparent": "x"},
        )
    ]
    async with open_link(through) as link:
        [first] = await link.submit(jobs)
        [second] = await link.submit(jobs)
        seen = await link.get(first.id)

    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert seen == await engine.jobs.get(first.id)
    assert (seen.status, seen.priority, seen.timeout) == (JobStatus.SCHEDULED, 7, timedelta(seconds=1.5))


async def test_a_server_that_does_not_answer_is_passed_over(through: Settings) -> None:
    url = f"grpc://{nobody()},{str(through.server_url).replace('grpc://', '')}"
    for _ in range(4):  # whichever comes first
        async with open_link(replace(through, server_url=url)) as link:
            [job] = await link.submit([NewJob(task="mail")])
            assert (await link.get(job.id)).status is JobStatus.PENDING


async def test_it_goes_on_when_the_server_in_use_goes(served: Served, settings: Settings) -> None:
    async with open_link(served.start()) as link:
        for _ in range(3):
            [job] = await link.submit([NewJob(task="mail")])
            await asyncio.to_thread(served.restart)
            assert (await link.get(job.id)).id == job.id


async def test_where_nobody_answers_it_says_so_when_patience_has_run_out(settings: Settings) -> None:
    nowhere = replace(settings, server_url=f"grpc://{nobody()}", patience=timedelta(seconds=0.5))
    started = time.monotonic()

    with pytest.raises(ServerUnreachable, match=r"no answer from pulsed at 127\.0\.0\.1:\d+"):
        async with open_link(nowhere):
            pass

    assert time.monotonic() - started < 5


async def test_errors_are_those_of_the_engine(through: Settings) -> None:
    async with open_link(through) as link:
        with pytest.raises(JobNotFound, match="retention has removed it"):
            await link.get(UNKNOWN)
        with pytest.raises(InvalidOption, match="U\\+0000"):
            await link.cancel(UNKNOWN, reason="\x00")


@pytest.mark.parametrize("kind", list(KINDS.values()), ids=list(KINDS))
def test_every_error_can_come_back(kind: type[PulseError]) -> None:
    made = make_error(kind, "as the server said it")

    assert type(made) is kind
    assert str(made) == "as the server said it"


def test_every_code_means_one_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PulseError)]

    assert set(KINDS.values()) == set(kinds)


# --- who it is


@asynccontextmanager
async def token(engine: Engine, *scopes: str) -> AsyncIterator[str]:
    _, secret = await engine.tokens.create("shop", list(scopes))
    yield secret


async def test_it_shows_its_token(served: Served, engine: Engine) -> None:
    async with token(engine, "submit:mail") as secret:
        through = replace(served.start(), patience=timedelta(seconds=1))
        async with open_link(replace(through, token=secret)) as link:
            [job] = await link.submit([NewJob(task="mail")])
            with pytest.raises(Forbidden, match="may not submit to topic 'billing': it has submit:mail"):
                await link.submit([NewJob(task="billing")])
        for wrong, said in [(None, "no token"), ("pulse_" + "x" * 43, "not known here")]:
            async with open_link(replace(through, token=wrong)) as link:
                with pytest.raises(Unauthenticated, match=said):
                    await link.get(job.id)

    assert [count.topic for count in await engine.jobs.counts()] == ["mail"]


async def test_a_token_names_its_workers(served: Served, engine: Engine) -> None:
    from tests.sdk.apps_here import working

    async with token(engine, "admin") as secret:
        app = Pulse(settings=replace(served.start(), token=secret))

        @app.task(name="mail")
        async def mail() -> None: ...

        async with working(app) as worker:
            handle = await mail.aenqueue()
            await handle.aresult(10)
            assert (await handle.ajob()).locked_by == f"shop/{worker.name}"
