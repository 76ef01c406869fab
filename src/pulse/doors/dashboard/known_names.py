"""Which tasks and topics can a form suggest? Those that jobs, workers and schedules have, as far as one look tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.model.list_filters import ScheduleSearch
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.dashboard.pages import PageRequest

MOST = 200  # topics and schedules that are looked at


class KnownNames(NamedTuple):
    tasks: list[tuple[str, str]]  # and the topic of each
    topics: list[str]


async def known_names(look: PageRequest) -> KnownNames:
    """Only what the visitor may submit to, and none for those who may not look at lists."""
    if not look.may(Right.VIEW):
        return KnownNames([], [])
    engine = look.served.engine
    queued = [count.topic for count in await engine.jobs.counts()]
    served = {topic for worker in await look.served.workers() for topic in worker.topics}
    made = (await engine.schedules.search(ScheduleSearch(), limit=MOST)).schedules
    planned = {(each.job.routed_topic, each.job.task) for each in made}
    topics = sorted({*queued[:MOST], *served, *(topic for topic, _ in planned)})
    allowed = [topic for topic in topics if look.may(Right.SUBMIT, topic)][:MOST]
    pairs = planned | set(await engine.statistics.recent_tasks(allowed))
    return KnownNames(sorted((task, topic) for topic, task in pairs if look.may(Right.SUBMIT, topic)), allowed)
