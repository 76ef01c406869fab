"""How does a process fire schedules and die in the middle? `python -m tests.system.fire_and_die`.

It reads lines from its input, `url when what how`, and for each begins a process that fires what is due: `before`,
`during` or `after` the statement `what`, it is killed, or loses its connection. What became of that process is written
as one line. Nothing of the source is touched: what is wrapped is the driver.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import psycopg

from pulse.engine.engine import Engine
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.store.statements import load_statements

NAMES = {statement.sql: name for name, statement in load_statements("pulse").items()}
ANSWERED = 0.3  # seconds, after which the answer to a statement is there, and has not been read


def plant(when: str, what: str, how: str) -> None:
    """Once, the first time that the statement is run."""
    places = iter([when])

    def wrap(method: str) -> None:
        run = getattr(asyncpg.Connection, method)

        async def wrapped(self: Any, sql: str, *args: Any, **given: Any) -> Any:
            if _name(sql) != what:
                return await run(self, sql, *args, **given)
            place = next(places, "nowhere")
            if place == "before":
                _end(self, how)
            if place in ("sent", "answered"):
                if args:  # prepared beforehand, so that what is sent is the statement itself
                    await self._get_statement(sql, None)
                asyncio.ensure_future(run(self, sql, *args, **given))  # noqa: RUF006  nobody will wait for it
                await asyncio.sleep(0)
                time.sleep(ANSWERED if place == "answered" else 0)  # noqa: ASYNC251  nothing here may read the answer
                _end(self, how)
                raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
            answer = await run(self, sql, *args, **given)
            if place == "after":
                _end(self, how)
            return answer

        setattr(asyncpg.Connection, method, wrapped)

    wrap("execute")
    wrap("fetch")


def _name(sql: str) -> str:
    return NAMES.get(sql) or sql.split(" ")[0].rstrip(";").lower()


def _end(raw: Any, how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raw.terminate()


async def fire(url: str) -> None:
    settings = Settings(database_url=url)
    async with await Database.connect(settings) as database:
        await Engine(database, buckets=int(os.environ.get("PULSE_BUCKETS", "1"))).duties.fires.fire_due()


def sessions(url: str) -> set[int]:
    """Return the backends of everybody who is connected to this database now, but for whoever asks."""
    with psycopg.connect(url, autocommit=True) as conn:
        asked = (
            "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
        )
        return {pid for (pid,) in conn.execute(f"{asked} and pid <> pg_backend_pid()")}


def serve(work: Callable[[str], Coroutine[Any, Any, None]], plant: Callable[[str, str, str], None] = plant) -> None:
    """A process for each line, which does the work and ends as the line says.

    It has ended when its sessions have: what it sent just before is still carried out, however late on a busy machine.
    """
    for line in sys.stdin:
        url, when, what, how = line.split()
        others = sessions(url)
        if (pid := os.fork()) == 0:
            try:
                plant(when, what, how)
                asyncio.run(work(url))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        while sessions(url) - others:
            time.sleep(0.005)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(fire)
