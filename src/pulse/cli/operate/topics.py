"""How does an operator list, pause and resume topics?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Group
from pulse.cli.output import Cell, Column, Styled, local_time, print_lines, print_text, show_table, time_and_age

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.jobs import Pause, TopicCount

ALL = "*"


@click.group(cls=Group)
def topics() -> None:
    """List, pause and resume topics.

    \b
    Examples:
      pulse topics list
      pulse topics pause mail --reason 'provider is down'
      pulse topics resume mail
    """


@topics.command("list", short_help="List topics, with their jobs by state and their pauses.")
@click.pass_obj
def list_topics(session: Session) -> None:
    """List topics with the number of their jobs in each state, and whether they are paused."""

    async def read(engine: Engine) -> tuple[list[TopicCount], list[Pause]]:
        return await engine.jobs.counts(), await engine.jobs.pauses()

    counts, pauses = session.run_with_engine(read)
    document = {"topics": [_as_json(count) for count in counts], "pauses": pauses}
    session.answer(document, lambda: _show(counts, pauses))


def _show(counts: list[TopicCount], pauses: list[Pause]) -> None:
    if counts:
        _show_counts(counts)
    else:
        print_text("There are no jobs yet.")
    for pause in pauses:
        what = "All topics are" if pause.topic == ALL else f"{pause.topic} is"
        print_text(f"{what} paused since {time_and_age(pause.paused_at)}{': ' + pause.reason if pause.reason else ''}")


def _show_counts(counts: list[TopicCount]) -> None:
    from pulse.model.jobs import JobStatus

    # States without jobs are left out: seven columns do not fit into eighty characters.
    statuses = [status for status in JobStatus if any(count.counts.get(status) for count in counts)]
    columns = [Column("TOPIC", rank=1, min_width=12), *(Column(status, is_number=True) for status in statuses)]
    rows: list[list[Cell]] = [
        [count.topic, *(f"{count.counts.get(status, 0):,}" for status in statuses)] for count in counts
    ]
    if any(count.paused for count in counts):
        columns.insert(1, Column("PAUSED"))
        for row, count in zip(rows, counts, strict=True):
            row.insert(1, Styled("paused" if count.paused else "", "yellow"))
    show_table(columns, rows)


def _as_json(count: TopicCount) -> dict[str, object]:
    from pulse.model.jobs import JobStatus

    numbers = {status.value: count.counts.get(status, 0) for status in JobStatus}
    return {"topic": count.topic, "counts": numbers, "paused": count.paused}


@topics.command()
@click.argument("topic", required=False)
@click.option("--all", is_flag=True, help="Pause all topics, also future ones.")
@click.option("--reason", default="", help="Show this with the pause.")
@click.pass_obj
def pause(session: Session, topic: str | None, all: bool, reason: str) -> None:
    """Pause TOPIC: no worker starts a job of it until it is resumed.

    Running jobs continue, and jobs can still be submitted. A topic can be paused before its first job; a note then
    says that it has none, in case its name is mistyped.
    """
    name = _choose(topic, is_all=all)

    async def work(engine: Engine) -> tuple[Pause, list[str]]:
        counts = await engine.jobs.counts()  # includes paused topics without jobs
        return await engine.jobs.pause(name, reason=reason), [
            each.topic for each in counts if any(each.counts.values())
        ]

    paused, used = session.run_with_engine(work)
    what = "All topics are" if name == ALL else f"{name} is"
    session.answer(paused, lambda: print_text(f"{what} paused since {local_time(paused.paused_at)}."))
    if name not in (ALL, *used):
        print_text(f"Note: topic {name!r} has no jobs{_suggest(name, used)}", to_stderr=True)


def _suggest(name: str, used: list[str]) -> str:
    """Return the end of the note about a topic without jobs: a topic with a similar name, if there is one."""
    import difflib

    near = difflib.get_close_matches(name, used, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


@topics.command()
@click.argument("topic", required=False)
@click.option("--all", is_flag=True, help="End the pause of all topics; topics paused one by one stay paused.")
@click.pass_obj
def resume(session: Session, topic: str | None, all: bool) -> None:
    """Resume TOPIC: workers start its jobs again."""
    name = _choose(topic, is_all=all)

    async def work(engine: Engine) -> tuple[bool, list[Pause]]:
        return await engine.jobs.resume(name), await engine.jobs.pauses()

    was_paused, left = session.run_with_engine(work)
    subject = "All topics" if name == ALL else name
    lines = [f"{subject} resumed." if was_paused else f"{subject}: not paused, so nothing was changed."]
    lines += _describe_remaining(name, {pause.topic for pause in left})
    session.answer({"topic": name, "was_paused": was_paused, "pauses": left}, lambda: print_lines(lines))


def _describe_remaining(resumed: str, paused: set[str]) -> list[str]:
    """Describe pauses that remain: a topic is paused by its own pause or by that of all topics."""
    if resumed == ALL and paused:
        return [f"Still paused one by one: {', '.join(sorted(paused))}."]
    if ALL in paused:
        return ["All topics are still paused; end that with `pulse topics resume --all`."]
    return []


def _choose(topic: str | None, *, is_all: bool) -> str:
    if is_all == (topic is not None):
        raise click.UsageError("give either a TOPIC or --all.")
    return ALL if topic is None else topic
