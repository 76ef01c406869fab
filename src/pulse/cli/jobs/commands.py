"""How does an operator find, read, cancel and replay jobs, or run one now?"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import click

from pulse.cli.exit_codes import exit_code_of
from pulse.cli.jobs.views import as_json, show_job, show_list
from pulse.cli.options import Group, JobId, complete_status, read_moment, read_status
from pulse.cli.output import plural, print_lines, print_text
from pulse.cli.progress import progress
from pulse.cli.session import Session, describe, run_with_engine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from pulse.engine.engine import Engine
    from pulse.engine.jobs.use_cases import Outcomes
    from pulse.model.jobs import Attempt, Job, JobFilter, JobStatus, Page

BATCH = 500  # jobs between two updates of the progress bar
REPLAY_LIMIT = 10_000  # jobs that one command replays by default
SEARCH_TIME = 3.0  # seconds to look for rare matches before a page ends with fewer


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
        click.option("--topic", help="Only jobs of this topic."),
        click.option("--task", help="Only jobs of this task."),
        click.option("--tag", help="Only jobs with this tag."),
        click.option("--error", metavar="TEXT", help="Only jobs whose last error contains this, ignoring case."),
        click.option("--since", metavar="WHEN", callback=read_moment, help="Submitted since a time or an age (2h)."),
        click.option("--until", metavar="WHEN", callback=read_moment, help="Submitted before a time or an age."),
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
    help="Only jobs in this state, for example dead_lettered.",
)
@click.option("--schedule", metavar="NAME", help="Only jobs of this schedule: its name, or its id if it is deleted.")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="List at most this many.")
@click.option("--after", metavar="NEXT", help="Continue after an earlier page, with the `next` that it printed.")
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
    """List jobs that match all given filters.

    Waiting jobs are listed in the order in which they will be claimed, finished ones the most recent first, and jobs
    of all states the newest first.

    \b
    Examples:
      pulse jobs list --topic mail --status pending
      pulse jobs list --status dead_lettered --error timeout --since 2h
      pulse jobs list --schedule nightly-report
      pulse jobs list --since 2026-07-31T09:00 --until 2026-07-31T10:00 --json
    """

    async def read(engine: Engine) -> Page:
        schedule_id = None if schedule is None else await _find_schedule_id(engine, schedule)
        return await search(engine, make_filter(given, status, schedule_id), after, limit)

    page = session.run_with_engine(read)
    document = {"jobs": [as_json(job) for job in page.jobs], "next": page.next}
    session.answer(document, lambda: show_list(page, has_one_status=status is not None))


async def _find_schedule_id(engine: Engine, name: str) -> UUID:
    """Return the id of a schedule. An id is not looked up: the schedule may be deleted while its jobs are not."""
    try:
        return UUID(name)
    except ValueError:
        return (await engine.schedules.get(name)).id


async def search(engine: Engine, wanted: JobFilter, after: str | None, limit: int) -> Page:
    """Read a full page if there is one: the engine reads a bounded number of rows at a time, so it is called again for
    a while."""
    from pulse.engine.jobs import bulk as sweeps
    from pulse.model.jobs import Page

    return Page(*await sweeps.search(engine.jobs.list_page, wanted, after=after, limit=limit, patience=SEARCH_TIME))


@jobs.command(short_help="Show everything about one job.")
@click.argument("job_id", metavar="ID", type=JobId())
@click.pass_obj
def show(session: Session, job_id: UUID) -> None:
    """Show everything about one job, with its failed attempts."""

    async def read(engine: Engine) -> tuple[Job, list[Attempt]]:
        return await engine.jobs.get(job_id), await engine.jobs.attempts(job_id)

    job, attempts = session.run_with_engine(read)
    session.answer(as_json(job) | {"attempts": attempts}, lambda: show_job(job, attempts))


@jobs.command()
@click.argument("job_ids", metavar="ID...", type=JobId(), nargs=-1, required=True)
@click.option("--reason", default="", help="Store this as the last error of the job.")
@click.pass_obj
def cancel(session: Session, job_ids: tuple[UUID, ...], reason: str) -> None:
    """Cancel jobs, waiting or running.

    A running handler is stopped at its next heartbeat. Each ID is cancelled or refused on its own; if any is refused,
    the exit code is not 0.
    """
    with progress(session, "cancelling", len(job_ids)) as advance:
        outcomes = session.run_with_engine(
            lambda engine: _in_batches(job_ids, partial(engine.jobs.cancel_many, reason=reason), advance)
        )
    _show_outcomes(session, outcomes, "cancelled")


@jobs.command()
@click.argument("job_ids", metavar="[ID]...", type=JobId(), nargs=-1)
@filter_options
@click.option("--all", is_flag=True, help="Replay every dead letter, up to --limit.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=REPLAY_LIMIT, show_default=True, help="Replay at most this many."
)
@click.option("--after", metavar="NEXT", help="Continue after an earlier replay, with the `next` that it printed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Run dead letters again, with all of their attempts.

    Name them by ID or by filters. With filters you are asked for confirmation first; without a terminal to ask on,
    --yes is needed. One command replays up to --limit jobs, the most recent first, and prints how to continue.

    \b
    Examples:
      pulse jobs replay 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000
      pulse jobs replay --topic mail --error timeout --since 1d
      pulse jobs replay --all --limit 100 --yes
    """
    if job_ids and after is not None:
        raise click.UsageError("--after can be used with a filter or with --all, not with IDs.")
    is_filtered = any(value is not None for value in given.values())
    if [bool(job_ids), is_filtered, all].count(True) != 1:
        raise click.UsageError("give either IDs, or a filter such as --topic, or --all.")
    if job_ids:
        with progress(session, "replaying", len(job_ids)) as advance:
            outcomes = session.run_with_engine(lambda engine: _in_batches(job_ids, engine.jobs.replay_many, advance))
        _show_outcomes(session, outcomes, "replayed")
    elif yes or sys.stdin.isatty():
        _replay_matching(session, make_filter(given), limit, after, ask=not yes)
    else:
        raise click.UsageError("without a terminal to ask on, this needs --yes.")


@jobs.command("run-now")
@click.argument("job_id", metavar="ID", type=JobId())
@click.pass_obj
def run_now(session: Session, job_id: UUID) -> None:
    """Run a job now, before its time.

    A job that is scheduled, or waits for its next attempt, becomes pending at once.
    """
    job = session.run_with_engine(lambda engine: engine.jobs.run_now(job_id))
    session.answer(as_json(job), lambda: print_text(f"{job.id} {job.status}"))


def _replay_matching(session: Session, wanted: JobFilter, limit: int, after: str | None, *, ask: bool) -> None:
    with session.reachable_settings() as settings:
        newest = run_with_engine(settings, lambda engine: _find_newest(engine, wanted))
        total = run_with_engine(settings, lambda engine: _count_dead(engine, wanted, after))
        # The question is asked outside the event loop, which would swallow the first Ctrl-C.
        if ask and (
            question := run_with_engine(settings, lambda engine: _question(engine, wanted, after, limit, total))
        ):
            click.confirm(question, abort=True, err=True)
        with progress(session, "replaying", None if total is None else min(total, limit)) as advance:
            done = run_with_engine(
                settings, lambda engine: _replay_in_batches(engine, wanted, after, limit, newest, advance)
            )
        left = run_with_engine(settings, lambda engine: _count_left(engine, wanted, done, total))
        lines = [f"{plural(done.number, 'job')} replayed." if done.number else "No dead letter was replayed."]
        if left.number:
            lines.append(f"Not replayed because of --limit {limit}: {left}. Continue with --after {done.next}")
        following = done.next if left.number else None
        session.answer({"replayed": done.number, "left": left.number, "next": following}, lambda: print_lines(lines))


async def _in_batches(
    job_ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Awaitable[Outcomes]], advance: Callable[[int], None]
) -> Outcomes:
    outcomes: Outcomes = {}
    for start in range(0, len(job_ids), BATCH):
        batch = job_ids[start : start + BATCH]
        outcomes |= await act(batch)
        advance(len(batch))
    return outcomes


class ReplayResult(NamedTuple):
    """How many jobs were replayed, and the cursor after them in the list of dead letters."""

    number: int
    next: str | None


async def _replay_in_batches(
    engine: Engine,
    wanted: JobFilter,
    after: str | None,
    limit: int,
    newest: datetime | None,
    advance: Callable[[int], None],
) -> ReplayResult:
    """Replay, batch by batch, jobs that had become dead letters by `newest`.

    Each batch continues where the one before it ended, so a job that fails for good again is not replayed again.
    """
    replayed = 0
    while replayed < limit:
        batch = min(BATCH, limit - replayed)
        swept = await engine.jobs.replay_matching(wanted, after=after, limit=batch, before=newest)
        replayed, after = replayed + swept.done, swept.next
        advance(swept.done)
        if after is None:
            break
    return ReplayResult(replayed, after)


async def _find_newest(engine: Engine, wanted: JobFilter) -> datetime | None:
    """Return when the newest match became a dead letter. Later ones were not part of the question."""
    page = await search(engine, _dead(wanted), None, 1)
    return page.jobs[0].finished_at if page.jobs else None


async def _count_dead(engine: Engine, wanted: JobFilter, after: str | None) -> int | None:
    """Return the number of dead letters of a topic or of all; None for other filters, which have no counts."""
    from pulse.model.jobs import JobFilter, JobStatus

    if after is not None or wanted != JobFilter(topic=wanted.topic):
        return None
    counts = [each for each in await engine.jobs.counts() if wanted.topic in (None, each.topic)]
    return sum(each.counts.get(JobStatus.DEAD_LETTERED, 0) for each in counts)


async def _question(engine: Engine, wanted: JobFilter, after: str | None, limit: int, total: int | None) -> str | None:
    """Return the question to ask, or None if no job matches."""
    if total is not None:
        some = f"{limit:,} of " if limit < total else ""
        return f"Replay {some}{plural(total, 'dead letter')}?" if total else None
    found = await _count_some(engine, wanted, after, limit)
    if not found.is_all and found.number < limit:
        return f"Replay {found}, at most {limit:,}?"
    return f"Replay {plural(found.number, 'dead letter')}?" if found.number else None


async def _count_left(engine: Engine, wanted: JobFilter, done: ReplayResult, total: int | None) -> DeadLetterCount:
    """Return how many of `total` were not replayed; without a total, how many more match, up to one page."""
    from pulse.model.jobs import PAGE_LIMIT

    if done.next is None:
        return DeadLetterCount(0)
    if total is not None:
        return DeadLetterCount(max(0, total - done.number))
    return await _count_some(engine, wanted, done.next, PAGE_LIMIT)


async def _count_some(engine: Engine, wanted: JobFilter, after: str | None, limit: int) -> DeadLetterCount:
    from pulse.model.jobs import PAGE_LIMIT

    page = await search(engine, _dead(wanted), after, min(limit, PAGE_LIMIT))
    return DeadLetterCount(len(page.jobs), is_all=page.next is None)


def _dead(wanted: JobFilter) -> JobFilter:
    import msgspec

    from pulse.model.jobs import JobStatus

    return msgspec.structs.replace(wanted, status=JobStatus.DEAD_LETTERED)


class DeadLetterCount(NamedTuple):
    """A number of dead letters, which may be a lower bound."""

    number: int
    is_all: bool = True

    def __str__(self) -> str:
        return f"{'' if self.is_all else 'at least '}{plural(self.number, 'dead letter')}"


def _show_outcomes(session: Session, outcomes: Outcomes, done: str) -> None:
    """Print each outcome. The exit code is the highest of all errors."""
    moved = [job_id for job_id, problem in outcomes.items() if problem is None]
    problems = [problem for problem in outcomes.values() if problem]
    listed = [{"id": job_id, "error": problem and describe(problem)} for job_id, problem in outcomes.items()]
    session.answer({done: len(moved), "outcomes": listed}, lambda: print_lines(f"{job_id} {done}" for job_id in moved))
    for problem in problems:
        print_text(f"Error: {problem}", to_stderr=True)
    if problems:
        click.get_current_context().exit(max(map(exit_code_of, problems)))
