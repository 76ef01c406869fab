"""How is one topic doing?"""

from __future__ import annotations

from typing import Any

from pulse.doors.dashboard.jobs.list import lines
from pulse.doors.dashboard.overview import charts, read_range
from pulse.doors.dashboard.pages import PageRequest, View
from pulse.model.jobs import JobFilter, JobStatus
from pulse.model.statistics import ALL_TOPICS, Range, TopicFacts
from pulse.model.text import check_topic
from pulse.model.tokens import Right

VIEWING = Right.VIEW
ACTING = Right.OPERATE
FAILURES = 10


async def one_topic(request: PageRequest) -> dict[str, Any]:
    name = check_topic(request.path["topic"])
    request.caller.check(VIEWING, name)
    shown = read_range(request.param("range"))
    engine = request.services.engine
    overview = await engine.statistics.overview()
    empty = TopicFacts(name, {}, False, None, 0.0, 0.0, None)
    facts = next((topic for topic in overview.topics if topic.topic == name), empty)
    dead = await engine.jobs.list_heads(JobFilter(topic=name, status=JobStatus.DEAD_LETTERED), limit=FAILURES)
    pauses = {pause.topic: pause for pause in await engine.jobs.pauses()}
    return {
        "title": name,
        "facts": facts,
        "states": [(status, facts.counts.get(status, 0)) for status in JobStatus],
        "concerns": [concern for concern in overview.concerns if concern.topic == name],
        "workers": [worker for worker in overview.workers if name in worker.topics],
        "pause": pauses.get(name),
        "pause_of_all": pauses.get(ALL_TOPICS),
        "charts": charts(await engine.statistics.points(shown, name)),
        "range": shown,
        "ranges": list(Range),
        "failures": lines(dead.jobs, "finished_at"),
        "may_act": request.may(ACTING, name),
    }


VIEWS = (View("/topics/{topic}", "topic.html", one_topic, VIEWING),)
