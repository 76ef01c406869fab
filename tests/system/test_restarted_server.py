"""Does the work of a dead worker go on while whoever watches is started again and again?

python -m pytest -m long tests/system/test_restarted_server.py -s
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.chaos.pulsed import free_port
from tests.conftest import recreate_database
from tests.doors.worker_processes import Started, started
from tests.waiting import connected

LIFE = 20.0  # seconds from one start of the server to its end
ROUNDS = 5
PROMISE = 45.0  # seconds, with the default lease, heartbeat and watchdog
APP = """
import asyncio
from pulse import Pulse

app = Pulse()

for number in range(5):
    @app.task(name=f"alone{number}")
    async def wait() -> None:
        await asyncio.sleep(600)
"""


class Restarted:
    """The only server, killed and started again at one address."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        self.address = f"127.0.0.1:{free_port()}"

    async def run(self, is_up: asyncio.Event, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with started(self._folder, "server", "--listen", self.address, PULSE_DATABASE_URL=self._url) as server:
                await asyncio.to_thread(server.expect, "address")
                is_up.set()
                try:
                    async with asyncio.timeout(LIFE):
                        await stop.wait()
                except TimeoutError:
                    continue  # which kills it


@pytest.mark.slow
@pytest.mark.long
async def test_a_dead_worker_is_replaced_in_time_while_the_only_server_is_restarted(
    tmp_path: Path, worker_id: str
) -> None:
    """Five workers, each alone with its topic, are killed at five moments of the server's life."""
    settings = Settings(database_url=await recreate_database(f"restarted_{worker_id}"))
    await migrate(settings)
    (tmp_path / "app.py").write_text(APP)
    server = Restarted(tmp_path, str(settings.database_url))
    is_up, stop = asyncio.Event(), asyncio.Event()
    restarting = asyncio.create_task(server.run(is_up, stop))

    def a_worker(topic: str) -> Any:
        url = f"grpc://{server.address}"
        return started(tmp_path, "worker", "app:app", "--topics", topic, PULSE_SERVER_URL=url)

    async def lose(number: int) -> float:
        """How long until a job whose worker was killed is another's."""
        topic = f"alone{number}"
        await asyncio.sleep(number * LIFE / ROUNDS)
        with ExitStack() as open_workers:
            first: Started = open_workers.enter_context(a_worker(topic))
            async with connected(settings.database_url) as conn:
                await conn.execute("select pulse.enqueue($1)", topic)
                await until_attempt(conn, topic, 1)
                await asyncio.sleep(15)  # in the middle of its work, with leases renewed
                first.process.kill()
                killed_at = time.monotonic()
                open_workers.enter_context(a_worker(topic))
                await until_attempt(conn, topic, 2)
                return time.monotonic() - killed_at

    await is_up.wait()
    try:
        waits = await asyncio.gather(*[lose(number) for number in range(ROUNDS)])
    finally:
        stop.set()
        await restarting

    print("ran again after", *(f"{wait:.1f} s" for wait in waits))  # noqa: T201
    assert max(waits) <= PROMISE, waits


async def until_attempt(conn: Any, topic: str, attempt: int) -> None:
    async with asyncio.timeout(3 * PROMISE):
        while await conn.fetchval("select attempt from pulse.jobs where topic = $1", topic) != attempt:
            await asyncio.sleep(0.1)
