"""How does an operator find, read, cancel, replay and hasten jobs?"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from pulse.cli.exit_codes import exit_code_of
from pulse.cli.jobs.views import as_json, show_job, show_list
from pulse.cli.options import Group, JobId, complete_status, read_moment, read_status
from pulse.cli.output import plural, say, say_each
from pulse.cli.progress import progress
from pulse.cli.session import Session, describe, use

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from pulse.engine.engine import Engine
    from pulse.engine.jobs.use_cases import Outcomes
    from pulse.model.jobs import Attempt, Job, JobFilter, JobStatus, Page

BATCH = 500  # jobs between two moves of a bar
REPLAY_LIMIT = 10_000  # jobs that one command replays, unless it is told otherwise
SEARCH_TIME = 3.0  # seconds to look for rare matches before saying where to go on


@click.group(cls=Group)
def jobs() -> None:
    """Find, read, cancel and replay jobs.

    \b
    Examples:
      pulse jobs list --status dead_lettered --error timeout --since 2h
      pulse jobs show 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000
      pulse jobs cancel ID ID --reason 'sent by hand'
      pulse jobs replay --topic mail
    """


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--topic", help="Of this topic."),
        click.option("--task", help="Of this task."),
        click.option("--tag", help="With this tag."),
        click.option("--error", metavar="TEXT", help="Whose last error contains this, in any case."),
        click.option("--since", metavar="WHEN", callback=read_moment, help="Submitted since: a time, or an age (2h)."),
        click.option("--until", metavar="WHEN", callback=read_moment, help="Submitted before: a time, or an age."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def make_filter(given: dict[str, Any], status: JobStatus | None = None, schedule_id: UUID | None = None) -> JobFilter:
    from pulse.model.jobs import JobFilter

    return JobFilter(
        topic=given["topic"],
        task=given["task"],
        tag=given["tag"],
        error=given["error"],
        submitted_after=given["since"],
        submitted_before=given["until"],
        status=status,
        schedule_id=schedule_id,
    )


@jobs.command("list")
@filter_options
@click.option(
    "--status",
    metavar="STATE",
    callback=read_status,
    shell_complete=complete_status,
    help="In this state, for example dead_lettered.",
)
@click.option("--schedule", metavar="NAME", help="Made by this schedule: its name, or its id, also if it is deleted.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="NEXT", help="Go on after an earlier page: the `next` it ended with.")
@click.pass_obj
def list_jobs(
    session: Session,
    /,
    status: JobStatus | None,
    schedule: str | None,
    limit: int,
    after: str | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """List jobs; everything given must hold.

    Waiting jobs come as they will be claimed, finished ones most recent first, and all together newest first.

    \b
    Examples:
      pulse jobs list --topic mail --status pending
      pulse jobs list --status dead_lettered --error timeout --since 2h
      pulse jobs list --schedule nightly-report
      pulse jobs list --since 2026-07-31T09:00 --until 2026-07-31T10:00 --json
    """

    async def read(engine: Engine) -> Page:
        schedule_id = None if schedule is None else await _schedule_id(engine, schedule)
        return await search(engine, make_filter(given, status, schedule_id), after, limit)

    page = session.use(read)
    document = {"jobs": [as_json(job) for job in page.jobs], "next": page.next}
    session.answer(document, lambda: show_list(page, has_one_status=status is not None))


async def _schedule_id(engine: Engine, name: str) -> UUID:
    """An id is taken as it is: its schedule may be gone, and its jobs not."""
    try:
        return UUID(name)
    except ValueError:
        return (await engine.schedules.get(name)).id


async def search(engine: Engine, wanted: JobFilter, after: str | None, limit: int) -> Page:
    """A full page where there is one: the engine looks at a bounded number of rows at a time, so go on for a while."""
    from pulse.engine.jobs import bulk as sweeps
    from pulse.model.jobs import Page

    return Page(*await sweeps.search(engine.jobs.list_page, wanted, after=after, limit=limit, patience=SEARCH_TIME))


@jobs.command(short_help="Show all there is to know of one job.")
@click.argument("job_id", metavar="ID", type=JobId())
@click.pass_obj
def show(session: Session, job_id: UUID) -> None:
    """Show all there is to know of one job, its failed attempts included."""

    async def read(engine: Engine) -> tuple[Job, list[Attempt]]:
        return await engine.jobs.get(job_id), await engine.jobs.attempts(job_id)

    job, attempts = session.use(read)
    session.answer(as_json(job) | {"attempts": attempts}, lambda: show_job(job, attempts))


@jobs.command()
@click.argument("job_ids", metavar="ID...", type=JobId(), nargs=-1, required=True)
@click.option("--reason", default="", help="Kept on the job as its last error.")
@click.pass_obj
def cancel(session: Session, job_ids: tuple[UUID, ...], reason: str) -> None:
    """Cancel jobs, waiting or running.

    A running handler learns of it at its next heartbeat. Each ID is done or refused on its own; if any is refused,
    the exit code says so.
    """
    with progress(session, "cancelling", len(job_ids)) as advance:
        outcomes = session.use(
            lambda engine: _in_batches(job_ids, partial(engine.jobs.cancel_many, reason=reason), advance)
        )
    _show_outcomes(session, outcomes, "cancelled")


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", type=JobId(), nargs=-1)
@filter_options
@click.option("--all", is_flag=True, help="Every dead letter, up to --limit.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=REPLAY_LIMIT, show_default=True, help="Replay at most this many."
)
@click.option("--after", metavar="NEXT", help="Go on after an earlier replay: the `next` it ended with.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def replay(
    session: Session,
    /,
    job_ids: tuple[UUID, ...],
    all: bool,
    limit: int,
    after: str | None,
    yes: bool,
    **given: Any,  # noqa: ANN401
) -> None:
    """Send dead letters back to work, with a fresh budget of attempts.

    Name them by ID, or by what they have in common; then you are asked first, and where there is no terminal to ask
    on, --yes is needed. One command replays as many as --limit allows, most recent first, and says how to go on.

    \b
    Examples:
      pulse jobs replay 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000
      pulse jobs replay --topic mail --error timeout --since 1d
      pulse jobs replay --all --limit 100 --yes
    """
    if job_ids and after is not None:
        raise click.UsageError("--after goes on with a filter or with --all, not with IDs.")
    is_filtered = any(value is not None for value in given.values())
    if [bool(job_ids), is_filtered, all].count(True) != 1:
        raise click.UsageError("give either IDs, or a filter such as --topic, or --all.")
    if job_ids:
        with progress(session, "replaying", len(job_ids)) as advance:
            outcomes = session.use(lambda engine: _in_batches(job_ids, engine.jobs.replay_many, advance))
        _show_outcomes(session, outcomes, "replayed")
    elif yes or sys.stdin.isatty():
        _replay_matching(session, make_filter(given), limit, after, ask=not yes)
    else:
        raise click.UsageError("without a terminal to ask on, this needs --yes.")


@jobs.command("run-now")
@click.argument("job_id", metavar="ID", type=JobId())
@click.pass_obj
def run_now(session: Session, job_id: UUID) -> None:
    """Run a job before its time.

    One that is scheduled, or waits for its next attempt, becomes pending at once.
    """
    job = session.use(lambda engine: engine.jobs.run_now(job_id))
    session.answer(as_json(job), lambda: say(f"{job.id} {job.status}"))


def _replay_matching(session: Session, wanted: JobFilter, limit: int, after: str | None, *, ask: bool) -> None:
    with session.reach() as settings:
        newest = use(settings, lambda engine: _find_newest(engine, wanted))
        total = use(settings, lambda engine: _count_dead(engine, wanted, after))
        # Asked outside the loop, which would keep the first Ctrl-C to itself.
        if ask and (question := use(settings, lambda engine: _question(engine, wanted, after, limit, total))):
            click.confirm(question, abort=True, err=True)
        with progress(session, "replaying", None if total is None else min(total, limit)) as advance:
            done = use(settings, lambda engine: _replay_in_batches(engine, wanted, after, limit, newest, advance))
        left = use(settings, lambda engine: _count_left(engine, wanted, done, total))
        lines = [f"{plural(done.number, 'job')} replayed." if done.number else "No dead letter was replayed."]
        if left.number:
            lines.append(f"Left by --limit {limit}: {left}. To go on: repeat with --after {done.next}")
        following = done.next if left.number else None
        session.answer({"replayed": done.number, "left": left.number, "next": following}, lambda: say_each(lines))


async def _in_batches(
    job_ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Awaitable[Outcomes]], advance: Callable[[int], None]
) -> Outcomes:
    outcomes: Outcomes = {}
    for start in range(0, len(job_ids), BATCH):
        batch = job_ids[start : start + BATCH]
        outcomes |= await act(batch)
        advance(len(batch))
    return outcomes


class Replayed(NamedTuple):
    """How many jobs were replayed, and where to go on: after those, in the list of dead letters."""

    number: int
    next: str | None


async def _replay_in_batches(
    engine: Engine,
    wanted: JobFilter,
    after: str | None,
    limit: int,
    newest: datetime | None,
    advance: Callable[[int], None],
) -> Replayed:
    """Replay what had died by `newest`, batch by batch.

    Each batch goes on where the one before it ended: a job that is replayed and dies again is not met again.
    """
    replayed = 0
    while replayed < limit:
        batch = min(BATCH, limit - replayed)
        swept = await engine.jobs.replay_matching(wanted, after=after, limit=batch, before=newest)
        replayed, after = replayed + swept.done, swept.next
        advance(swept.done)
        if after is None:
            break
    return Replayed(replayed, after)


async def _find_newest(engine: Engine, wanted: JobFilter) -> datetime | None:
    """Return when the newest match died: what dies later, while the question stands, was not asked about."""
    page = await search(engine, _dead(wanted), None, 1)
    return page.jobs[0].finished_at if page.jobs else None


async def _count_dead(engine: Engine, wanted: JobFilter, after: str | None) -> int | None:
    """Return how many dead letters there are of a topic or of all. By anything else they are not counted: None."""
    from pulse.model.jobs import JobFilter, JobStatus

    if after is not None or wanted != JobFilter(topic=wanted.topic):
        return None
    counts = [each for each in await engine.jobs.counts() if wanted.topic in (None, each.topic)]
    return sum(each.counts.get(JobStatus.DEAD_LETTERED, 0) for each in counts)


async def _question(engine: Engine, wanted: JobFilter, after: str | None, limit: int, total: int | None) -> str | None:
    """None if nothing matches: then there is nothing to ask."""
    if total is not None:
        some = f"{limit:,} of " if limit < total else ""
        return f"Replay {some}{plural(total, 'dead letter')}?" if total else None
    found = await _count_some(engine, wanted, after, limit)
    if not found.is_all and found.number < limit:
        return f"Replay {found}, at most {limit:,}?"
    return f"Replay {plural(found.number, 'dead letter')}?" if found.number else None


async def _count_left(engine: Engine, wanted: JobFilter, done: Replayed, total: int | None) -> Counted:
    """Return how many of `total` were not replayed, or how many match after those, as far as one page finds them."""
    from pulse.model.jobs import PAGE_LIMIT

    if done.next is None:
        return Counted(0)
    if total is not None:
        return Counted(max(0, total - done.number))
    return await _count_some(engine, wanted, done.next, PAGE_LIMIT)


async def _count_some(engine: Engine, wanted: JobFilter, after: str | None, limit: int) -> Counted:
    from pulse.model.jobs import PAGE_LIMIT

    page = await search(engine, _dead(wanted), after, min(limit, PAGE_LIMIT))
    return Counted(len(page.jobs), is_all=page.next is None)


def _dead(wanted: JobFilter) -> JobFilter:
    import msgspec

    from pulse.model.jobs import JobStatus

    return msgspec.structs.replace(wanted, status=JobStatus.DEAD_LETTERED)


class Counted(NamedTuple):
    """How many dead letters were counted, and whether those are all."""

    number: int
    is_all: bool = True

    def __str__(self) -> str:
        return f"{'' if self.is_all else 'at least '}{plural(self.number, 'dead letter')}"


def _show_outcomes(session: Session, outcomes: Outcomes, done: str) -> None:
    """Each on its own; the exit code is that of the worst."""
    moved = [job_id for job_id, problem in outcomes.items() if problem is None]
    problems = [problem for problem in outcomes.values() if problem]
    listed = [{"id": job_id, "error": problem and describe(problem)} for job_id, problem in outcomes.items()]
    session.answer({done: len(moved), "outcomes": listed}, lambda: say_each(f"{job_id} {done}" for job_id in moved))
    for problem in problems:
        say(f"Error: {problem}", to_stderr=True)
    if problems:
        click.get_current_context().exit(max(map(exit_code_of, problems)))
