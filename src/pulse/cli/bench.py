"""How fast is it on this machine, and how far from what bare SQL does here?"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import say
from pulse.cli.progress import under_way
from pulse.event_loop import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.bench.results import Result
    from pulse.cli.session import Session
    from pulse.settings import Settings

SCHEMA = "pulse_bench"
SCENARIOS = {
    "drain": "a backlog worked off, against the same moves in bare SQL",
    "live": "enqueueing and working at the same time",
    "latency": "from the call of enqueue to the handler's first line, idle",
    "delayed": "how late delayed jobs begin after their instant",
    "retries": "how late retries begin after theirs",
    "backlog": "a drain beside a million rows, against one beside a hundred",
    "enqueue": "many at once, against a bare insert of the same rows",
    "fire": "schedules that are all due at once, against a bare insert",
    "on-time": "how late the jobs of schedules begin, idle",
    "wake": "alarms that are all due at once, against a bare HTTP client",
    "wake-on-time": "how late alarms arrive, idle",
}
HELP = f"""Measure Pulse, and bare SQL beside it, in a schema of its own.

\b
{chr(10).join(f"{name:<12}  {what}" for name, what in SCENARIOS.items())}

The schema pulse_bench is made in the database that was named, or in an embedded one made for this, and dropped
afterwards. Nothing else there is touched.
"""
SERVED = ("drain", "live", "latency")
DEFAULT_JOBS = {"fire": 100_000, "wake": 100_000}
DEFAULT_JOBS |= dict.fromkeys(("latency", "delayed", "retries", "on-time", "wake-on-time"), 200)
BESIDE = {"backlog": "beside a hundred rows", "wake": "of a bare HTTP client"}
# Durable, but without a checkpoint in the middle of a round.
SERVER = {"max_wal_size": "4GB", "shared_buffers": "256MB"}


@click.command(cls=Command, help=HELP)
@click.argument("scenario", metavar="SCENARIO", type=click.Choice(list(SCENARIOS)))
@click.option("--jobs", type=click.IntRange(1), help="How many (default: 50000, or 200 where each is timed).")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="Take the median of so many.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Worker processes.")
@click.option("--concurrency", type=click.IntRange(1), default=1000, show_default=True, help="Of each worker.")
@click.option("--threads", type=click.IntRange(1), default=10, show_default=True, help="Of each worker, for --sync.")
@click.option("--sync", is_flag=True, help="Drain sync tasks, which run in threads.")
@click.option("--rate", type=float, default=20.0, show_default=True, help="Jobs a second, for latency.")
@click.option("--notify/--no-notify", default=True, help="Whether new work is announced, for latency.")
@click.option(
    "--background",
    type=click.Choice(["ready", "future", "finished", "topics"]),
    default="ready",
    show_default=True,
    help="What else is in the table, for backlog.",
)
@click.option("--server", is_flag=True, help="Through a server: drain (beside direct mode), live, latency.")
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="How much of it.")
@click.pass_obj
def bench(session: Session, /, scenario: str, jobs: int | None, rounds: int, **options: Any) -> None:  # noqa: ANN401
    if options["server"] and scenario not in SERVED:
        raise click.UsageError(f"--server goes with {', '.join(SERVED)}.")
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
    with under_way(session, f"round {number} of {rounds}, {scenario}: {SCENARIOS[scenario]}"):
        result: Result = run(all_scenarios.SCENARIOS[scenario](plan))
    if not session.as_json:
        say(f"round {number} of {rounds}: {' · '.join(figures(result))}")
    return result


def show(result: Result, rounds: int) -> None:
    if rounds > 1:
        say(f"median of {rounds}: {' · '.join(figures(result))}")
    say(f"settings: {', '.join(f'{name} {value}' for name, value in result.settings.items())}")


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
