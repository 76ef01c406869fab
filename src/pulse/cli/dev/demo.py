"""What does `pulse demo` show? A few thousand jobs of a small shop, and a worker that runs them."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pulse.cli.options import Command
from pulse.cli.output import Cell, Column, Styled, console, escape, print_lines, print_text, show_table
from pulse.doors.http import is_installed
from pulse.event_loop import run
from pulse.model.errors import Conflict
from pulse.model.network.server_url import HTTP_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console

    from pulse.cli.dev.demo_work import Show
    from pulse.cli.session import Session
    from pulse.model.jobs import TopicCount
    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection

SCHEMA = "pulse_demo"
PRINT_EVERY = 1.0  # seconds between two lines, if there is no terminal to draw on


class DemoResult(NamedTuple):
    """The figures of a demo, as the engine counted them."""

    submitted: int
    submit_seconds: float
    drain_seconds: float
    counts: list[TopicCount]
    retried: dict[str, int]

    @property
    def rate(self) -> float:
        return self.submitted / self.drain_seconds


@click.command(cls=Command, short_help="Watch a worker run 5,000 jobs of a small shop.")
@click.pass_obj
def demo(session: Session) -> None:
    """Enqueue 5,000 jobs of a small shop and watch a worker run them.

    Some are urgent, some delayed, some fail and are retried, and a few end as dead letters. The demo uses a schema of
    its own, pulse_demo, which is created anew each time and kept for you to look at.
    """
    given = session.settings()
    on = console(to_stderr=session.as_json)
    on.print(escape(_describe_database(given)))
    with session.database(given, create=True) as found:
        settings = replace(found, schema=SCHEMA, buckets=1, threads=20)
        ended = run(_play(settings, on))
    session.answer(_as_json(ended), lambda: _summarize(session, on, ended))


def _describe_database(settings: Settings) -> str:
    if settings.database_url:
        return f"Using your database, in a schema of its own: {SCHEMA}"
    return f"Using the embedded Postgres in {settings.state_dir}, in a schema of its own: {SCHEMA}"


async def _play(settings: Settings, on: Console) -> DemoResult:
    from pulse.cli.dev.demo_shop import app, calls, retried
    from pulse.cli.dev.demo_work import drain
    from pulse.engine.engine import open_engine
    from pulse.store.schema.migrate import migrate

    logging.getLogger("pulse").addHandler(logging.NullHandler())  # some jobs fail on purpose
    await _remove_schema(settings)
    await migrate(settings)
    app.settings = settings
    try:
        started = time.perf_counter()
        enqueued = await app.aenqueue_many(calls())
        submit_seconds = time.perf_counter() - started
        on.print(f"Enqueued {len(enqueued):,} jobs in {submit_seconds:.1f} s")
        async with open_engine(settings) as engine:
            with _display(on) as show:
                drain_seconds = await drain(engine, show)
            counts = await engine.jobs.counts()
    finally:
        app.close()
    return DemoResult(len(enqueued), submit_seconds, drain_seconds, counts, dict(retried))


async def _remove_schema(settings: Settings) -> None:
    from pulse.store.connections.pool import Database

    async def remove(conn: Connection) -> bool:
        [row] = await conn.fetch(
            "select exists (select from pg_class where relnamespace = to_regnamespace($1)) as is_used, "
            "exists (select from pg_attribute where attrelid = to_regclass($1 || '.migrations') "
            "and attname = 'works_from') as is_ours",
            SCHEMA,
        )
        if row["is_used"] and not row["is_ours"]:
            return False
        await conn.execute(f"drop schema if exists {SCHEMA} cascade")
        return True

    async with await Database.connect(settings) as database:
        if not await database.run(remove):
            raise Conflict(
                f"the database has a schema {SCHEMA} that is not from Pulse: rename it, or use another database"
            )


# While it runs


def _display(on: Console) -> AbstractContextManager[Show]:
    return _bars(on) if on.is_terminal else _lines(on)


@contextmanager
def _bars(on: Console) -> Iterator[Show]:
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    progress = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=on)
    bars: dict[str, TaskID] = {}
    with Live(console=on, refresh_per_second=20) as live:

        def show(counts: list[TopicCount]) -> None:
            for count in counts:
                if count.topic not in bars:
                    bars[count.topic] = progress.add_task(count.topic, total=sum(count.counts.values()))
                progress.update(bars[count.topic], completed=_finished(count))
            live.update(Group(progress, _waiting(counts)))

        yield show


@contextmanager
def _lines(on: Console) -> Iterator[Show]:
    last = -PRINT_EVERY

    def show(counts: list[TopicCount]) -> None:
        nonlocal last
        done, total = sum(map(_finished, counts)), sum(sum(count.counts.values()) for count in counts)
        if time.monotonic() - last >= PRINT_EVERY or done == total:
            last = time.monotonic()
            on.print(f"{done:,} of {total:,} finished  {_waiting(counts)}".rstrip())

    yield show


def _finished(count: TopicCount) -> int:
    from pulse.model.jobs import FINISHED

    return sum(jobs for status, jobs in count.counts.items() if status in FINISHED)


def _waiting(counts: list[TopicCount]) -> str:
    from pulse.model.jobs import FINISHED, JobStatus

    sums = {status: sum(count.counts.get(status, 0) for count in counts) for status in JobStatus}
    return ", ".join(f"{jobs:,} {status.lower()}" for status, jobs in sums.items() if jobs and status not in FINISHED)


# When it is over


def _rows(ended: DemoResult) -> list[tuple[str, int, int, int]]:
    from pulse.model.jobs import JobStatus

    return [
        (
            count.topic,
            count.counts.get(JobStatus.COMPLETED, 0),
            ended.retried.get(count.topic, 0),
            count.counts.get(JobStatus.DEAD_LETTERED, 0),
        )
        for count in ended.counts
    ]


def _summarize(session: Session, on: Console, ended: DemoResult) -> None:
    rows = _rows(ended)
    total = [sum(numbers) for numbers in zip(*(numbers for _, *numbers in rows), strict=True)]
    cells: list[list[Cell]] = [[name, *(f"{number:,}" for number in numbers)] for name, *numbers in rows]
    cells.append([Styled(text, "bold") for text in ("total", *(f"{number:,}" for number in total))])
    columns = [Column("TOPIC"), *(Column(title, is_number=True) for title in ("COMPLETED", "RETRIED", "DEAD_LETTERED"))]
    on.print()
    show_table(columns, cells, on=on)
    on.print(
        f"\n{ended.submitted:,} jobs in {ended.drain_seconds:.1f} s, {ended.rate:,.0f} a second. "
        "The rate is that of the handlers, which sleep to simulate work."
    )
    pulse = _program_here(session)
    print_text("\nLook at the jobs from the command line, and at one of them with `jobs show ID`:\n")
    print_lines(f"  {pulse} {rest}" for rest in ("topics list", "jobs list --status dead_lettered"))
    if is_installed():
        print_text(f"\nOr in the dashboard, http://127.0.0.1:{HTTP_PORT}/, which this opens:\n")
        print_text(f"  {pulse} server --open")


def _program_here(session: Session) -> str:
    """Return the command with the flags for the database that was just used."""
    flags = {**session.flags, "schema": SCHEMA}
    given = " ".join(f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in flags.items())
    return f"{_program()} {given}"


def _program() -> str:
    """Return how this program was called, so that the hints can be pasted."""
    path = sys.argv[0]
    if Path(path).name != "pulse" or shutil.which("pulse") == path:
        return "pulse"
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _as_json(ended: DemoResult) -> dict[str, object]:
    names = ("topic", "completed", "retried", "dead_lettered")
    return {
        "submitted": ended.submitted,
        "submit_seconds": ended.submit_seconds,
        "drain_seconds": ended.drain_seconds,
        "jobs_per_second": ended.rate,
        "topics": [dict(zip(names, row, strict=True)) for row in _rows(ended)],
    }
