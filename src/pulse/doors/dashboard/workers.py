"""Who is connected, and how busy are they?"""

from __future__ import annotations

from typing import Any

from pulse import __version__
from pulse.doors.dashboard.views import Look, View
from pulse.model.tokens import Right
from pulse.model.workers import WorkerSeen

LOOKING = Right.SEE
MOST_TOPICS = 8  # of one worker, on the page


async def all_workers(look: Look) -> dict[str, Any]:
    look.caller.check(LOOKING, "*")
    workers = sorted(await look.served.workers(), key=lambda worker: (worker.name, worker.server))
    return {
        "title": "Workers",
        "workers": [(worker, has_other_version(worker)) for worker in workers],
        "slots": sum(worker.slots for worker in workers),
        "busy": sum(worker.busy for worker in workers),
        "servers": len({worker.server for worker in workers}),
        "others": sum(has_other_version(worker) for worker in workers),
        "version": __version__,
        "most_topics": MOST_TOPICS,
    }


def has_other_version(worker: WorkerSeen) -> bool:
    """Of ours: what other languages call themselves says nothing about this release."""
    name, _, version = worker.version.rpartition("/")
    return name in ("", "pulse-python") and bool(version) and version != __version__


VIEWS = (View("/workers", "workers.html", all_workers, LOOKING),)
