"""How does an operator see, pause and resume topics?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Group
from pulse.cli.output import Cell, Column, Styled, local_time, say, say_each, show_table, when

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.jobs import Pause, TopicCount

ALL = "*"


@click.group(cls=Group)
def topics() -> None:
    """See, pause and resume topics.

    \b
    Examples:
      pulse topics list
      pulse topics pause mail --reason 'provider is down'
      pulse topics resume mail
    """


@topics.command("list", short_help="Show every topic: its jobs by state, and whether it is paused.")
@click.pass_obj
def list_topics(session: Session) -> None:
    """Show every topic: how many jobs in which state, and whether it is paused."""

    async def read(engine: Engine) -> tuple[list[TopicCount], list[Pause]]:
        return await engine.jobs.counts(), await engine.jobs.pauses()

    counts, pauses = session.use(read)
    document = {"topics": [_as_json(count) for count in counts], "pauses": pauses}
    session.answer(document, lambda: _show(counts, pauses))


def _show(counts: list[TopicCount], pauses: list[Pause]) -> None:
    if counts:
        _show_counts(counts)
    else:
        say("There are no jobs yet.")
    for pause in pauses:
        what = "All topics are" if pause.topic == ALL else f"{pause.topic} is"
        say(f"{what} paused since {when(pause.paused_at)}{': ' + pause.reason if pause.reason else ''}")


def _show_counts(counts: list[TopicCount]) -> None:
    from pulse.model.jobs import JobStatus

    # States that no job is in are left out: seven wide columns do not fit on eighty.
    statuses = [status for status in JobStatus if any(count.counts.get(status) for count in counts)]
    columns = [Column("TOPIC", rank=1, least=12), *(Column(status, is_number=True) for status in statuses)]
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
@click.option("--all", is_flag=True, help="All topics, also those yet to come.")
@click.option("--reason", default="", help="Shown wherever the pause is.")
@click.pass_obj
def pause(session: Session, topic: str | None, all: bool, reason: str) -> None:
    """Let no worker start a job of TOPIC until it is resumed.

    Running jobs run on, and jobs can still be submitted. A topic may be paused before its first job; that it has
    none is said, in case its name is mistyped.
    """
    name = _choose(topic, is_all=all)

    async def work(engine: Engine) -> tuple[Pause, list[str]]:
        counts = await engine.jobs.counts()  # which list what is paused as well
        return await engine.jobs.pause(name, reason=reason), [
            each.topic for each in counts if any(each.counts.values())
        ]

    paused, used = session.use(work)
    what = "All topics are" if name == ALL else f"{name} is"
    session.answer(paused, lambda: say(f"{what} paused since {local_time(paused.paused_at)}."))
    if name not in (ALL, *used):
        say(f"Note: there are no jobs of topic {name!r}{_suggest(name, used)}", to_stderr=True)


def _suggest(name: str, used: list[str]) -> str:
    """Return the end of a sentence about a topic without jobs: which one may have been meant, if one is near."""
    import difflib

    near = difflib.get_close_matches(name, used, n=1)
    return f"; did you mean {near[0]!r}?" if near else "."


@topics.command()
@click.argument("topic", required=False)
@click.option("--all", is_flag=True, help="End the pause of all; topics paused one by one stay so.")
@click.pass_obj
def resume(session: Session, topic: str | None, all: bool) -> None:
    """Let workers start jobs of TOPIC again."""
    name = _choose(topic, is_all=all)

    async def work(engine: Engine) -> tuple[bool, list[Pause]]:
        return await engine.jobs.resume(name), await engine.jobs.pauses()

    was_paused, left = session.use(work)
    subject = "All topics" if name == ALL else name
    lines = [f"{subject} resumed." if was_paused else f"{subject}: not paused, so nothing was changed."]
    lines += _what_still_pauses(name, {pause.topic for pause in left})
    session.answer({"topic": name, "was_paused": was_paused, "pauses": left}, lambda: say_each(lines))


def _what_still_pauses(resumed: str, paused: set[str]) -> list[str]:
    """A topic stands still while either its own pause or the one of all topics is there."""
    if resumed == ALL and paused:
        return [f"Still paused on their own: {', '.join(sorted(paused))}."]
    if ALL in paused:
        return ["All topics are still paused; end that with `pulse topics resume --all`."]
    return []


def _choose(topic: str | None, *, is_all: bool) -> str:
    if is_all == (topic is not None):
        raise click.UsageError("give either a TOPIC or --all.")
    return ALL if topic is None else topic
