"""How does the page of `pulse top` look?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.cli.output import Cell, Column, Styled, escape, make_table, rough_length
from pulse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import Group, RenderableType

    from pulse.model.statistics import Overview, TopicFacts
    from pulse.model.workers import WorkerSeen

MIN_LINES = 3  # of each table, even on a very low terminal
TOPIC_COLUMNS = (
    Column("TOPIC", rank=1, min_width=12),
    Column("WAITING", is_number=True),
    Column("RUNNING", is_number=True),
    Column("SCHEDULED", rank=5, min_width=9, is_number=True),
    Column("RETRYING", rank=4, min_width=8, is_number=True),
    Column("DEAD", is_number=True),
    Column("OLDEST", is_number=True),
    Column("IN/s", rank=6, min_width=6, is_number=True),
    Column("OUT/s", is_number=True),
    Column("FAILING", is_number=True),
    Column(""),
)
WORKER_COLUMNS = (
    Column("WORKER", rank=1, min_width=16),
    Column("BUSY", is_number=True),
    Column("SLOTS", is_number=True),
    Column("TOPICS", rank=3, min_width=12),
    Column("VERSION", rank=4, min_width=8),
    Column("SEEN", is_number=True),
)


class Page(NamedTuple):
    source: str  # the address of the server or database
    overview: Overview | None = None
    problem: str = ""  # the reason why the overview is not newer


def draw_page(page: Page, width: int, height: int | None = None) -> Group:
    """Return the page, or with a height as much of it as fits."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(escape(f"pulse {__version__}  {page.source}"), style="bold")]
    if page.problem:
        parts.append(Text(escape(page.problem), style="bold red"))
    if page.overview is not None:
        parts += _body(page.overview, width, None if height is None else height - len(parts))
    return Group(*parts)


def _body(overview: Overview, width: int, height: int | None) -> list[RenderableType]:
    from rich.text import Text

    topics = sorted(overview.topics, key=_by_interest)
    concerns = [Text(escape(each.text), style="red" if each.is_urgent else "yellow") for each in overview.concerns]
    limit = None if height is None else max(MIN_LINES, (height - 6) // 3)
    parts: list[RenderableType] = [_summary(overview)]
    if concerns:
        parts += [Text(""), *_first(concerns, limit)]
    if topics:
        parts += ["", *_table(TOPIC_COLUMNS, [_topic(topic, overview.at) for topic in topics], width, limit)]
    else:
        parts += ["", Text("There are no jobs yet.", style="dim")]
    if overview.workers:
        rows = [_worker(worker, overview.at) for worker in overview.workers]
        return [*parts, "", *_table(WORKER_COLUMNS, rows, width, limit)]
    return [*parts, "", Text("No worker is connected.", style="yellow")]


def _summary(overview: Overview) -> RenderableType:
    from rich.text import Text

    slots, busy = sum(each.slots for each in overview.workers), sum(each.busy for each in overview.workers)
    figures = [
        f"{overview.at.astimezone():%H:%M:%S}",
        f"in {overview.rate_in:,.1f}/s",
        f"out {overview.rate_out:,.1f}/s",
        f"failing {_share(overview.failing)}",
        f"{busy:,} of {slots:,} slots busy",
    ]
    return Text("  ".join(figures))


def _by_interest(topic: TopicFacts) -> tuple[int, str]:
    """Sort topics with the most waiting and failed jobs first, because there may be no room for all topics."""
    from pulse.model.jobs import JobStatus

    return -topic.counts.get(JobStatus.PENDING, 0) - topic.counts.get(JobStatus.DEAD_LETTERED, 0), topic.topic


def _topic(topic: TopicFacts, now: datetime) -> list[Cell]:
    from pulse.model.jobs import JobStatus

    dead = topic.counts.get(JobStatus.DEAD_LETTERED, 0)
    waiting = (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SCHEDULED, JobStatus.RETRYING)
    return [
        topic.topic,
        *(f"{topic.counts.get(status, 0):,}" for status in waiting),
        Styled(f"{dead:,}", "red" if dead else ""),
        (rough_length(now - topic.oldest_at) or "0 s") if topic.oldest_at else "-",
        f"{topic.rate_in:,.1f}",
        f"{topic.rate_out:,.1f}",
        Styled(_share(topic.failing), "red" if (topic.failing or 0) >= 0.1 else ""),
        Styled("paused" if topic.is_paused else "", "yellow"),
    ]


def _worker(worker: WorkerSeen, now: datetime) -> list[Cell]:
    is_full = worker.busy >= worker.slots
    return [
        worker.name,
        Styled(f"{worker.busy:,}", "yellow" if is_full else ""),
        f"{worker.slots:,}",
        ", ".join(worker.topics),
        worker.version.removeprefix("pulse-python/"),
        rough_length(now - worker.seen_at) or "0 s",
    ]


def _share(failing: float | None) -> str:
    return "-" if failing is None else f"{failing:.1%}"


def _table(
    columns: Sequence[Column], rows: Sequence[list[Cell]], width: int, limit: int | None
) -> list[RenderableType]:
    shown = rows if limit is None else rows[:limit]
    return [make_table(columns, shown, width), *_more(len(rows) - len(shown))]


def _first(lines: Sequence[RenderableType], limit: int | None) -> list[RenderableType]:
    shown = lines if limit is None else lines[:limit]
    return [*shown, *_more(len(lines) - len(shown))]


def _more(count: int) -> list[RenderableType]:
    from rich.text import Text

    return [Text(f"… and {count:,} more", style="dim")] if count else []
