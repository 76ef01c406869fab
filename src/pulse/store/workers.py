"""Which statements note which workers are connected, and list them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulse.model.text import clean_error
from pulse.model.workers import Presence, WorkerSeen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pulse.store.connections.pool import Connection


async def note_workers(conn: Connection, *, server: str, workers: Sequence[Presence]) -> None:
    """Note all workers of a server in one statement.

    Texts are cleaned first: a text that cannot be stored would make the statement fail, and all workers vanish.
    """
    await conn.rows(
        "note_workers",
        server=server,
        names=[clean_error(worker.name) for worker in workers],
        versions=[clean_error(worker.version) for worker in workers],
        topics=[msgspec.json.encode(list(map(clean_error, worker.topics))).decode() for worker in workers],
        slots=[worker.slots for worker in workers],
        busy=[worker.busy for worker in workers],
        ages=[worker.age for worker in workers],
    )


async def move_worker(conn: Connection, *, server: str, worker: Presence) -> None:
    await conn.rows(
        "move_worker",
        name=worker.name,
        server=server,
        version=worker.version,
        topics=worker.topics,
        slots=worker.slots,
        age=worker.age,
    )


async def moved_workers(conn: Connection, *, server: str, names: Sequence[str], ages: Sequence[timedelta]) -> list[str]:
    return [row["name"] for row in await conn.rows("moved_workers", server=server, names=names, ages=ages)]


async def list_workers(conn: Connection) -> list[WorkerSeen]:
    return [WorkerSeen(*row) for row in await conn.rows("list_workers")]
