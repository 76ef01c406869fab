"""Servers and the ways to them break (F6, F7): do handlers go on, does anybody pay, is anything lost or done twice?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from pulse.links.opening import open_link
from pulse.sdk.task import Call
from tests.chaos import checks, notes
from tests.chaos.app import on_the_loop
from tests.chaos.asking import until
from tests.chaos.figures import scaled
from tests.chaos.pulsed import Proxy, Pulsed
from tests.chaos.stage import Stage
from tests.chaos.story import Story
from tests.chaos.test_kills import kill_workers
from tests.chaos.test_terminations import terminate_workers

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

LEASE = 6.0
LONG_LEASES = {"PULSE_LEASE": "20s", "PULSE_HEARTBEAT": "2s"}  # longer than it takes to notice silence
LEASES = {"PULSE_LEASE": f"{LEASE}s", "PULSE_HEARTBEAT": "1s"}
MOVED_WITHIN = 20.0  # seconds from the last byte of a connection to the worker's next stream
ENDED_WITHIN = 8.0  # seconds from SIGTERM to the end of a server
STREAM_LOST = "the stream of jobs has ended"


def slots(number: int) -> dict[str, str]:
    return {"PULSE_CONCURRENCY": str(number)}


class Servers:
    """Those of a run, and what leads to them."""

    def __init__(self, stage: Stage, environment: dict[str, str]) -> None:
        self._stage = stage
        self._environment = {**stage.fleet.environment, **environment}
        self.all: list[Pulsed] = []

    def add(self) -> Pulsed:
        self.all.append(Pulsed(self._stage, self._environment, len(self.all)))
        return self.all[-1]

    def lead(self, targets: Iterable[str]) -> None:
        """Workers that are started from now on know nothing of the database."""
        found = {**self._environment, "PULSE_SERVER_URL": f"grpc://{','.join(targets)}"}
        found.pop("PULSE_DATABASE_URL")
        self._stage.fleet.environment = found


@asynccontextmanager
async def servers_of(stage: Stage, environment: dict[str, str] | None = None, count: int = 2) -> AsyncIterator[Servers]:
    servers = Servers(stage, environment or {})
    try:
        for _ in range(count):
            await servers.add().start()
        servers.lead([server.target for server in servers.all])
        yield servers
    finally:
        stage.fleet.close()
        for server in servers.all:
            server.close()


# --- a server is killed


async def test_a_server_is_killed(stage: Stage) -> None:
    await kill_a_server(stage, jobs=scaled(1_000), kills=scaled(6))


@pytest.mark.parametrize(("bug", "finding"), [("no failover", "charged")])
async def test_a_killed_server_finds(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_a_server(stage, jobs=100, kills=1, away=LEASE + 3)


async def kill_a_server(stage: Stage, *, jobs: int, kills: int, away: float = 0) -> None:
    """While all of the jobs run; and then one that comes up again is killed while jobs are handed out."""
    async with servers_of(stage, LEASES | slots(250)) as servers:
        await stage.fleet.start_many(4)
        submitted: list[UUID] = []
        on_the_way: list[UUID] = []
        for number in range(kills):
            is_handing_out = number % 2 == 1
            batch = await stage.submit(on_the_loop.call([stage.random.uniform(5, 8)]) for _ in range(jobs))
            if is_handing_out:
                on_the_way += batch
                await asyncio.sleep(stage.random.uniform(0, 0.3))
            else:
                submitted += batch
                await _until_begun(stage, batch)
                await asyncio.sleep(stage.random.uniform(0, 4))
            server = servers.all[0] if away else stage.random.choice(servers.all)
            server.kill()
            await asyncio.sleep(away or stage.random.uniform(0.2, 2))
            await server.start()
            await stage.wait_until_finished(30)

        story = await stage.story()
        stage.figure("servers killed", kills)
        stage.figure("jobs that ran meanwhile", len(submitted))
        stage.figure("  of them claimed more than once", _more_than_once(story, submitted))
        stage.figure("jobs that were being handed out", len(on_the_way))
        stage.figure("  claims given back, uncharged", sum(story.jobs[job_id]["refunded"] for job_id in on_the_way))
        stage.figure("handlers that ran to their end twice", checks.twice_to_the_end(story))
        checks.hold(
            checks.always(story, dict.fromkeys([*submitted, *on_the_way], "COMPLETED")),
            _charged(story),
            checks.say("running jobs that were claimed again", _claimed_again(story, submitted)),
            _done_twice(story),
            stage.fleet.unexpected(),
        )


# --- they are restarted in turn


async def test_servers_are_restarted_in_turn(stage: Stage) -> None:
    await restart_in_turn(stage, rounds=scaled(3))


@pytest.mark.parametrize(("bug", "finding"), [("cut streams", "did not end")])
async def test_restarts_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await restart_in_turn(stage, rounds=2)


async def restart_in_turn(stage: Stage, *, rounds: int) -> None:
    problems: list[str] = []
    longest = 0.0
    async with servers_of(stage, LEASES | slots(20)) as servers, AsyncExitStack() as stack:
        await stage.fleet.start_many(3)
        sent = await stack.enter_async_context(enqueues(stage, servers))
        for server in servers.all * rounds:
            await asyncio.sleep(stage.random.uniform(0.5, 2))
            code, seconds = await server.terminate(ENDED_WITHIN)
            longest = max(longest, seconds)
            if code != 0:
                problems.append(
                    f"a server did not end within {ENDED_WITHIN:g} s" if code is None else f"a server ended with {code}"
                )
                server.close()
            await server.start()
        await asyncio.sleep(1)
        await stack.aclose()
        await stage.wait_until_finished()

        story = await stage.story()
        stage.figure("restarts", 2 * rounds)
        stage.figure("longest until a server had ended, s", longest)
        stage.figure("jobs enqueued meanwhile", len(sent.jobs))
        stage.figure("  calls that failed", len(sent.failures))
        stage.figure("  longest call, s", sent.longest)
        stage.figure("claims given back, uncharged", sum(job["refunded"] for job in story.jobs.values()))
        stage.figure("handlers that ran to their end twice", checks.twice_to_the_end(story))
        checks.hold(
            problems,
            checks.say("enqueues that failed", sent.failures),
            checks.always(story, dict.fromkeys(sent.jobs, "COMPLETED")),
            _charged(story),
            _done_twice(story),
            stage.fleet.unexpected(),
        )


# --- nobody says that a connection is gone


async def test_a_connection_is_half_open(stage: Stage) -> None:
    await freeze_a_connection(stage)


async def test_a_connection_is_half_open_and_leases_are_short(stage: Stage) -> None:
    """Shorter than it takes to notice that a stream is silent: heartbeats have to find the other server before."""
    await freeze_a_connection(stage, leases=LEASES, into_the_void=0)


@pytest.mark.parametrize(
    ("bug", "finding"),
    [("deaf stream", "no stream at the other server"), ("no resume", "jobs that vanished")],
)
async def test_half_open_connections_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await freeze_a_connection(stage)


async def freeze_a_connection(stage: Stage, *, leases: dict[str, str] = LONG_LEASES, into_the_void: int = 20) -> None:
    """The worker's way to its server swallows everything, and neither end is told."""
    async with servers_of(stage, leases | slots(100), count=1) as servers, Proxy(servers.all[0].port) as proxy:
        other = servers.add()
        servers.lead([f"127.0.0.1:{proxy.port}", other.target])
        await stage.fleet.start_many(1)  # the other one is not there yet, so everything of it goes through the proxy
        lengths = [stage.random.uniform(3, 30) for _ in range(scaled(60))]
        running = await stage.submit(on_the_loop.call([seconds]) for seconds in lengths)
        await _until_begun(stage, running)
        await asyncio.sleep(2.5)  # until its heart has beaten, too
        await other.start()
        proxy.freeze()
        frozen_at = time.time()
        vanished = await stage.submit(on_the_loop.call([0.01]) for _ in range(into_the_void))
        await _until_moved(stage, other.target)
        moved = time.time() - frozen_at
        await stage.wait_until_finished(60)

        story = await stage.story()
        starts = {note.job_id: note.at - frozen_at for note in story.starts}
        latest = max((starts.get(job_id, 999.0) for job_id in vanished), default=0.0)
        swallowed = sum(story.jobs[job_id]["refunded"] for job_id in vanished)
        stage.figure("seconds until the worker was on another stream", moved)
        stage.figure("  the limit", MOVED_WITHIN)
        stage.figure("jobs sent into the void", swallowed)
        stage.figure("  seconds until the last of them ran", latest)
        stage.figure("handlers that ran on", len(running))
        stage.figure("  claimed more than once", _more_than_once(story, running))
        checks.hold(
            [f"{len(vanished)} jobs that vanished, the last of which ran after {latest:.1f} s"]
            if latest > MOVED_WITHIN
            else [],
            ["no job was sent into the void"] if into_the_void and not swallowed else [],
            checks.always(story, dict.fromkeys([*running, *vanished], "COMPLETED")),
            _charged(story),
            checks.say("running jobs that were claimed again", _claimed_again(story, running)),
            _done_twice(story),
        )


# --- the database, and all of the servers


async def test_the_database_is_killed_under_servers(stage: Stage) -> None:
    await kill_the_database_under_servers(stage, outages=scaled(4))


@pytest.mark.parametrize(("bug", "finding"), [("asynchronous commit", "results that were taken")])
async def test_outages_under_servers_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_the_database_under_servers(stage, outages=3)


async def kill_the_database_under_servers(stage: Stage, *, outages: int) -> None:
    async with servers_of(stage, LEASES | slots(20)) as servers, AsyncExitStack() as stack:
        await stage.fleet.start_many(2)
        sent = await stack.enter_async_context(enqueues(stage, servers))
        for _ in range(outages):
            await asyncio.sleep(stage.random.uniform(1, 3))
            await asyncio.to_thread(stage.server.kill)
            await asyncio.sleep(stage.random.uniform(0, 3))
            await asyncio.to_thread(stage.server.revive)
        await asyncio.sleep(3)
        await stack.aclose()
        await stage.reconnect()
        await stage.wait_until_finished()

        story = await stage.story()
        ended = [server.target for server in servers.all if server.process and server.process.poll() is not None]
        stage.figure("times the database was killed", outages)
        stage.figure("jobs acknowledged", len(sent.jobs))
        stage.figure("  calls that failed and said so", len(sent.failures))
        stage.figure("streams that ended", _said(stage, STREAM_LOST))
        stage.figure("leases that ended", sum(failure.error == checks.EXPIRED for failure in story.failures))
        checks.hold(
            checks.always(story, dict.fromkeys(sent.jobs, "COMPLETED")),
            [f"{_said(stage, STREAM_LOST)} streams ended"] if _said(stage, STREAM_LOST) else [],
            [f"servers ended: {ended}"] if ended else [],
            [f"workers ended\n{stage.fleet.last_words()}"] if len(stage.fleet.alive) < 2 else [],
        )


async def test_all_servers_are_away_for_a_while(stage: Stage) -> None:
    await take_all_servers_away(stage, away=8.0)


async def take_all_servers_away(stage: Stage, *, away: float) -> None:
    """For less than a lease. Some handlers end meanwhile, and some later."""
    async with servers_of(stage, LONG_LEASES | slots(100)) as servers:
        await stage.fleet.start_many(2)
        jobs = scaled(100)
        submitted = await stage.submit(on_the_loop.call([stage.random.uniform(1, 2 * away)]) for _ in range(jobs))
        await _until_begun(stage, submitted)
        for server in servers.all:
            server.kill()
        await asyncio.sleep(away)
        ended = sum(note.kind == "end" for note in notes.read(stage.folder))
        for server in servers.all:
            await server.start()
        back_at = time.monotonic()
        late = await stage.submit(on_the_loop.call([0.01]) for _ in range(20))
        await stage.wait_until_finished(40)

        story = await stage.story()
        first = min((note.at for note in story.starts if note.job_id in late), default=0.0)
        stage.figure("seconds without any server", away)
        stage.figure("handlers that ended meanwhile", ended)
        stage.figure("seconds from their return to the next job", first - (time.time() - (time.monotonic() - back_at)))
        stage.figure("jobs claimed more than once", _more_than_once(story, submitted))
        checks.hold(
            ["no handler ended while the servers were away"] if not ended else [],
            checks.always(story, dict.fromkeys([*submitted, *late], "COMPLETED")),
            checks.say("running jobs that were claimed again", _claimed_again(story, submitted)),
            _charged(story),
            _done_twice(story),
            stage.fleet.unexpected(),
        )


# --- workers of servers


async def test_workers_of_servers_are_told_to_stop(stage: Stage) -> None:
    async with servers_of(stage):
        await terminate_workers(stage, once=scaled(15), twice=scaled(3))


async def test_workers_of_servers_are_killed(stage: Stage) -> None:
    async with servers_of(stage):
        await kill_workers(stage, jobs=scaled(800), kills=scaled(20))


@pytest.mark.parametrize(
    ("bug", "finding"), [("charged release", "PENDING jobs that were charged"), ("no drain", "left RUNNING")]
)
async def test_terminations_through_servers_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        async with servers_of(stage):
            await terminate_workers(stage, once=3, twice=3)


# --- what goes in, and what is looked at


class Sent:
    def __init__(self) -> None:
        self.jobs: list[UUID] = []
        self.failures: list[str] = []
        self.longest = 0.0


@asynccontextmanager
async def enqueues(stage: Stage, servers: Servers) -> AsyncIterator[Sent]:
    """Through the servers as a program does it, without a pause that matters."""
    sent = Sent()
    url = f"grpc://{','.join(server.target for server in servers.all)}"

    async def send() -> None:
        async with open_link(replace(stage.settings, database_url=None, server_url=url)) as link:
            while True:
                began_at = time.monotonic()
                try:
                    sent.jobs += [answer.id for answer in await link.submit([call.job for call in _some_work(stage)])]
                except Exception as error:
                    sent.failures.append(repr(error))
                sent.longest = max(sent.longest, time.monotonic() - began_at)
                await asyncio.sleep(0.1)

    sending = asyncio.create_task(send())
    try:
        yield sent
        assert not sending.done(), f"nothing could be enqueued: {sending.exception()}"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _some_work(stage: Stage) -> list[Call[Any]]:
    return [on_the_loop.call([stage.random.choice((0.01, 0.05, 0.5, 2.0))]) for _ in range(5)]


async def _until_begun(stage: Stage, jobs: Sequence[UUID]) -> None:
    wanted = set(jobs)

    async def have_begun() -> bool:
        return wanted <= {note.job_id for note in notes.read(stage.folder) if note.kind == "start"}

    await until(have_begun, 30, lambda: f"not all jobs began\n{stage.fleet.last_words()}")


async def _until_moved(stage: Stage, target: str) -> None:
    async def has_moved() -> bool:
        return bool(_said(stage, f"jobs come from {target}"))

    await until(has_moved, MOVED_WITHIN, lambda: f"no stream at the other server\n{stage.fleet.last_words()}")


def _said(stage: Stage, words: str) -> int:
    return sum(path.read_text(errors="replace").count(words) for path in stage.folder.glob("worker-*.log"))


def _charged(story: Story) -> list[str]:
    wrong = [
        f"{job_id}: {job['attempt']} - {job['refunded']}, {job['last_error']}"
        for job_id, job in story.jobs.items()
        if job["attempt"] - job["refunded"] != 1
    ]
    return checks.say("jobs that were charged for it", wrong)


def _claimed_again(story: Story, jobs: Sequence[UUID]) -> list[str]:
    return [f"{job_id}: {story.jobs[job_id]['attempt']} times" for job_id in jobs if story.jobs[job_id]["attempt"] > 1]


def _more_than_once(story: Story, jobs: Sequence[UUID]) -> int:
    return len(_claimed_again(story, jobs))


def _done_twice(story: Story) -> list[str]:
    number = checks.twice_to_the_end(story)
    return [f"{number} handlers ran to their end twice"] if number else []
