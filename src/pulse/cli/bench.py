"""How fast is Pulse on this machine, compared with bare SQL?"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import print_text
from pulse.cli.progress import show_status
from pulse.event_loop import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.bench.results import Result
    from pulse.cli.session import Session
    from pulse.settings import Settings

SCHEMA = "pulse_bench"
SCENARIOS = {
    "drain": "running a backlog of jobs, against bare SQL",
    "live": "enqueueing and running jobs at the same time",
    "latency": "from the call of enqueue to the handler's first line, idle",
    "delayed": "how long after its instant a delayed job begins",
    "retries": "how long after its instant a retry begins",
    "backlog": "a drain beside a million rows, against one beside a hundred",
    "enqueue": "enqueueing many jobs at once, against a bare insert",
    "fire": "schedules that are all due at once, against a bare insert",
    "on-time": "how late the jobs of schedules begin, idle",
    "wake": "alarms that are all due at once, against a bare HTTP client",
    "wake-on-time": "how late alarms arrive, idle",
}
HELP = f"""Measure Pulse, and bare SQL beside it, in a schema of its own.

\b
{chr(10).join(f"{name:<12}  {what}" for name, what in SCENARIOS.items())}

The schema pulse_bench is created in the given database, or in an embedded one created for this, and dropped
afterwards. Nothing else in the database is changed.
"""
WITH_SERVER = ("drain", "live", "latency")
DEFAULT_JOBS = {"fire": 100_000, "wake": 100_000}
DEFAULT_JOBS |= dict.fromkeys(("latency", "delayed", "retries", "on-time", "wake-on-time"), 200)
BESIDE = {"backlog": "beside a hundred rows", "wake": "of a bare HTTP client"}
# Durable, but without checkpoints during a round.
SERVER = {"max_wal_size": "4GB", "shared_buffers": "256MB"}


@click.command(cls=Command, help=HELP)
@click.argument("scenario", metavar="SCENARIO", type=click.Choice(list(SCENARIOS)))
@click.option(
    "--jobs", type=click.IntRange(1), help="Number of jobs (50000; fire and wake 100000; 200 if each is timed)."
)
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="Take the median of N rounds.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Number of worker processes.")
@click.option("--concurrency", type=click.IntRange(1), default=1000, show_default=True, help="Of each worker.")
@click.option("--threads", type=click.IntRange(1), default=10, show_default=True, help="Of each worker, for --sync.")
@click.option("--sync", is_flag=True, help="Run sync tasks, which run in threads.")
@click.option("--rate", type=float, default=20.0, show_default=True, help="Jobs per second, for latency.")
@click.option("--notify/--no-notify", default=True, help="Notify workers of new jobs, for latency.")
@click.option(
    "--background",
    type=click.Choice(["ready", "future", "finished", "topics"]),
    default="ready",
    show_default=True,
    help="The kind of other rows in the table, for backlog.",
)
@click.option("--server", is_flag=True, help="Use a server, for drain (against direct mode), live and latency.")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="Number of other rows.")
@click.pass_obj
def bench(session: Session, /, scenario: str, jobs: int | None, rounds: int, **options: Any) -> None:  # noqa: ANN401
    if options["server"] and scenario not in WITH_SERVER:
        raise click.UsageError(f"--server can be used with {', '.join(WITH_SERVER)}.")
    jobs = jobs or DEFAULT_JOBS.get(scenario, 50_000)
    with bench_database(session) as settings:
        results = [
            run_round(session, settings, scenario, jobs, number, rounds, **options) for number in range(1, rounds + 1)
        ]
    from pulse.bench.results import median_of

    result = median_of(results)
    session.answer(result, lambda: show(result, rounds))


@contextmanager
def bench_database(session: Session) -> Iterator[Settings]:
    from pulse.store.embedded import server as embedded

    settings = session.settings(schema=SCHEMA) if "schema" not in session.given else session.settings()
    settings = replace(settings, schema=SCHEMA, buckets=1)
    if settings.database_url:
        with fresh_schema(settings):
            yield settings
        return
    folder = Path(tempfile.mkdtemp(prefix="pulse-bench-"))
    try:
        with embedded.start(folder, postgres=settings.postgres, settings=SERVER) as server:
            settings = replace(settings, database_url=server.dsn)
            with fresh_schema(settings):
                yield settings
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_schema(settings: Settings) -> Iterator[None]:
    from pulse.store.schema.migrate import drop_schema, migrate

    run(drop_schema(settings))
    run(migrate(settings))
    try:
        yield
    finally:
        run(drop_schema(settings))


def run_round(
    session: Session,
    settings: Settings,
    scenario: str,
    jobs: int,
    number: int,
    rounds: int,
    *,
    processes: int,
    concurrency: int,
    threads: int,
    **options: Any,  # noqa: ANN401
) -> Result:
    from pulse.bench import all_scenarios
    from pulse.bench.scenarios import Plan

    sized = replace(settings, concurrency=concurrency, threads=threads, pool_size=4)
    plan = Plan(settings=sized, jobs=jobs, processes=processes, **options)
    with show_status(session, f"round {number} of {rounds}, {scenario}: {SCENARIOS[scenario]}"):
        result: Result = run(all_scenarios.SCENARIOS[scenario](plan))
    if not session.as_json:
        print_text(f"round {number} of {rounds}: {' · '.join(figures(result))}")
    return result


def show(result: Result, rounds: int) -> None:
    if rounds > 1:
        print_text(f"median of {rounds}: {' · '.join(figures(result))}")
    print_text(f"settings: {', '.join(f'{name} {value}' for name, value in result.settings.items())}")


def figures(result: Result) -> Iterator[str]:
    if result.rate is not None:
        yield f"{result.rate:,.0f} {'wakes' if result.scenario == 'wake' else 'jobs'}/s"
    if result.ratio is not None:
        beside = BESIDE.get(result.scenario, "of bare SQL")
        if result.settings.get("server"):
            beside = "of direct mode"
        yield f"{result.ratio:.2f} {beside} ({result.ceiling_rate:,.0f})"
    if result.p50_ms is not None:
        yield f"p50 {result.p50_ms:.2f} ms, p95 {result.p95_ms:.2f} ms, p99 {result.p99_ms:.2f} ms"
    if result.tx_per_job is not None:
        yield f"{result.tx_per_job:.3f} transactions/job, {result.rollbacks} rolled back"
