"""Which tasks and topics does a form suggest? Those of recent jobs, of connected workers and of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.model.list_filters import ScheduleSearch
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.dashboard.pages import PageRequest

MAX_NAMES = 200  # topics and schedules that are read


class KnownNames(NamedTuple):
    tasks: list[tuple[str, str]]  # each with its topic
    topics: list[str]


async def known_names(request: PageRequest) -> KnownNames:
    """Return the tasks and topics that the visitor may submit to, or none if the visitor may not see lists."""
    if not request.may(Right.VIEW):
        return KnownNames([], [])
    engine = request.services.engine
    of_jobs = [count.topic for count in await engine.jobs.counts()]
    of_workers = {topic for worker in await request.services.workers() for topic in worker.topics}
    schedules = (await engine.schedules.search(ScheduleSearch(), limit=MAX_NAMES)).schedules
    of_schedules = {(each.job.routed_topic, each.job.task) for each in schedules}
    topics = sorted({*of_jobs[:MAX_NAMES], *of_workers, *(topic for topic, _ in of_schedules)})
    allowed = [topic for topic in topics if request.may(Right.SUBMIT, topic)][:MAX_NAMES]
    pairs = of_schedules | set(await engine.statistics.recent_tasks(allowed))
    return KnownNames(sorted((task, topic) for topic, task in pairs if request.may(Right.SUBMIT, topic)), allowed)
