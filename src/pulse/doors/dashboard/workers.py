"""Who is connected, and how busy are they?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulse import __version__
from pulse.doors.dashboard.pages import PageRequest, View
from pulse.model.tokens import Right
from pulse.model.workers import WorkerSeen

VIEWING = Right.VIEW
MAX_TOPICS = 8  # of one worker, on the page


async def all_workers(request: PageRequest) -> dict[str, Any]:
    request.caller.check(VIEWING, "*")
    workers = list(await request.services.workers())
    return {
        "title": "Workers",
        "workers": lines(workers),
        "slots": sum(worker.slots for worker in workers),
        "busy": sum(worker.busy for worker in workers),
        "servers": {worker.server for worker in workers} - {""},
        "others": sum(has_other_version(worker) for worker in workers),
        "version": __version__,
        "most_topics": MAX_TOPICS,
    }


def lines(workers: Iterable[WorkerSeen]) -> list[tuple[WorkerSeen, bool]]:
    """Return the workers by name, each with whether it is of another release than this server."""
    found = sorted(workers, key=lambda worker: (worker.name, worker.server))
    return [(worker, has_other_version(worker)) for worker in found]


def has_other_version(worker: WorkerSeen) -> bool:
    """Tell whether this is a Python worker of another release. Versions of other clients cannot be compared to ours."""
    name, _, version = worker.version.rpartition("/")
    return name in ("", "pulse-python") and bool(version) and version != __version__


VIEWS = (View("/workers", "workers.html", all_workers, VIEWING),)
