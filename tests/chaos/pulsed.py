"""Who stands between the workers of a run and its database? Real servers, on ports that stay theirs.

`python -m tests.chaos.pulsed` is `pulsed`, with a bug planted in it if the run asks for one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.asking import until

if TYPE_CHECKING:
    from typing import Self

    from tests.chaos.stage import Stage

ROOT = Path(__file__).parents[2]
START_PATIENCE = 60.0


class Pulsed:
    """One server. Killed or told to stop, it can be started again where it was."""

    def __init__(self, stage: Stage, environment: dict[str, str], number: int) -> None:
        self._log = stage.folder / f"server-{number}.log"
        self._environment = environment
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Return when it listens."""
        command = (sys.executable, "-m", "tests.chaos.pulsed", "--listen", self.target, "--http-listen", "")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220  it outlives this loop, should that be blocked
                command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        await until(self._listens, START_PATIENCE, lambda: f"no server\n{self._log.read_text()[-2_000:]}")

    async def _listens(self) -> bool:
        assert self.process
        assert self.process.poll() is None, f"the server ended\n{self._log.read_text()[-2_000:]}"
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        return False

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    async def terminate(self, patience: float) -> tuple[int | None, float]:
        """SIGTERM; answers with its exit code, none if it did not end, and how long that took."""
        assert self.process
        asked_at = time.monotonic()
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, patience)
        return self.process.returncode, time.monotonic() - asked_at

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Proxy:
    """Bytes in both directions, until it is frozen: then none, and both ends believe that nothing has happened."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def freeze(self) -> None:
        """From now on nothing arrives, neither bytes nor the news that a connection is closed."""
        self._is_open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await self._is_open.wait()
        there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers.append(back)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                await self._is_open.wait()
                sink.write(data)
                await sink.drain()
        await self._is_open.wait()
        sink.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


def sign_connections() -> None:
    """The database sees which process it speaks to, so that a trigger can write it down."""
    from pulse.store.connections import pool

    options = pool.connect_options

    def signed(settings: Any) -> dict[str, Any]:
        found = options(settings)
        found["server_settings"] |= {"application_name": f"pulse {os.getpid()}"}
        return found

    pool.connect_options = signed


if __name__ == "__main__":
    from pulse.cli.server.command import main
    from tests.chaos import bugs

    bugs.plant_from_environment()
    sign_connections()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with whoever started us, should that be killed
    os.environ.pop("PULSE_SERVER_URL", None)
    main()
