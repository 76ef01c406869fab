"""Is all well? This is the first page, on which topics can be paused and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.pages import Action, PageRequest, Toast, View
from pulse.doors.dashboard.workers import MAX_TOPICS as MAX_TOPICS_EACH
from pulse.doors.dashboard.workers import lines
from pulse.model.errors import InvalidOption
from pulse.model.jobs import JobStatus
from pulse.model.statistics import Concern, ConcernKind, Point, Range
from pulse.model.tokens import Right

MAX_WORKERS = 10  # the page of workers shows all
MAX_TOPICS = 100  # on this page; the topics with the most waiting jobs come first, then the busiest
HALF, NEARLY_ALL = "half within", "95 % within"  # the legend shows a length beside it


async def overview(request: PageRequest) -> dict[str, Any]:
    shown = read_range(request.param("range"))
    statistics = request.services.engine.statistics
    facts = await statistics.overview()
    points = await statistics.points(shown)
    topics = sorted(
        facts.topics, key=lambda topic: (-topic.counts.get(JobStatus.PENDING, 0), -topic.rate_out, topic.topic)
    )
    return {
        "title": "Overview",
        "facts": facts,
        "concerns": [(concern, link_of(concern)) for concern in facts.concerns],
        "topics": topics[:MAX_TOPICS],
        "more_topics": max(0, len(topics) - MAX_TOPICS),
        "charts": charts(points),
        "range": shown,
        "ranges": list(Range),
        "states": [(status, facts.count(status)) for status in JobStatus],
        "workers": lines(facts.workers)[:MAX_WORKERS],
        "most_topics": MAX_TOPICS_EACH,
        "slots": sum(worker.slots for worker in facts.workers),
        "busy": sum(worker.busy for worker in facts.workers),
    }


def read_range(given: str | None) -> Range:
    try:
        return Range(given or "hour")
    except ValueError:
        raise InvalidOption("range", given, f"be one of {', '.join(Range)}") from None


def charts(points: list[Point]) -> list[dict[str, Any]]:
    """Return the charts that the script draws: times, and a line for each name. A summary says the same in words."""
    times = [int(point.at.timestamp()) for point in points]
    lines: list[tuple[str, str, str, dict[str, list[Any]]]] = [
        (
            "throughput",
            "Jobs",
            "jobs",
            {"submitted": [p.submitted for p in points], "completed": [p.completed for p in points]},
        ),
        ("failures", "Failed attempts", "jobs", {"failed": [p.failed for p in points]}),
        ("wait", "Waiting", "seconds", {HALF: [p.wait_p50 for p in points], NEARLY_ALL: [p.wait_p95 for p in points]}),
        ("run", "Running", "seconds", {HALF: [p.run_p50 for p in points], NEARLY_ALL: [p.run_p95 for p in points]}),
    ]
    return [
        {
            "name": name,
            "title": title,
            "unit": unit,
            "summary": _summary(unit, series),
            "data": msgspec.json.encode({"times": times, "unit": unit, "series": series}).decode(),
        }
        for name, title, unit, series in lines
    ]


def _summary(unit: str, series: Mapping[str, list[Any]]) -> str:
    parts = []
    for name, values in series.items():
        known = [value for value in values if value is not None]
        if unit == "jobs":
            parts.append(f"{name} {sum(known):,}")
        elif known:
            parts.append(f"{name} {known[-1]:.3g} s at the end")
    return ", ".join(parts) or "nothing was measured"


def link_of(concern: Concern) -> str:
    """Return the address of the page that shows more of it."""
    match concern.kind:
        case ConcernKind.DEAD_LETTERS:
            return url("/jobs", topic=concern.topic, status="dead_lettered")
        case ConcernKind.WAITING | ConcernKind.NO_WORKERS | ConcernKind.PAUSED:
            return url("/jobs", topic=concern.topic, status="pending")
        case ConcernKind.BROKEN_SCHEDULES:
            return url("/schedules", status="broken")
        case ConcernKind.LATE_SCHEDULES:
            return url("/schedules")
        case ConcernKind.FAILED_ALARMS:
            return url("/alarms", status="failed")
        case ConcernKind.FAILING_ALARMS:
            return url("/alarms", status="failing")
        case ConcernKind.LATE_ALARMS:
            return url("/alarms")
    return url("/")


async def pause_topic(request: PageRequest, form: Mapping[str, str]) -> Toast:
    topic = request.path["topic"]
    request.caller.check(Right.OPERATE, topic)
    await request.services.engine.jobs.pause(topic, reason=form.get("reason", ""))
    return Toast(f"{topic} is paused: running jobs go on, and no more jobs are claimed")


async def resume_topic(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    topic = request.path["topic"]
    request.caller.check(Right.OPERATE, topic)
    was_paused = await request.services.engine.jobs.resume(topic)
    return Toast(f"{topic} is resumed" if was_paused else f"{topic} was not paused")


VIEWS = (View("/", "overview.html", overview, Right.VIEW, every=1.0),)
ACTIONS = (
    Action("/topics/{topic}/pause", pause_topic, Right.OPERATE),
    Action("/topics/{topic}/resume", resume_topic, Right.OPERATE),
)
