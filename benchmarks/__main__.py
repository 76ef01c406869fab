"""Run the benchmarks side by side and print ratios: `make bench`, or `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import compare, drain, pages, processes, soak
from pulse.settings import Settings
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import migrate

console = Console()
DRAIN_TARGET = 0.8
TRANSACTIONS_TARGET = 0.03
PAGE_TARGET = 300  # milliseconds


def main() -> None:
    options = read_options()
    url = os.environ.get("PULSE_DATABASE_URL")
    if url:
        run_all(options, Settings(database_url=url, buckets=1))
        return
    state_dir = Path(tempfile.mkdtemp(prefix="pulse-bench-"))
    quiet = {"max_wal_size": "4GB", "shared_buffers": "256MB"}  # durable, but without checkpoints during a run
    try:
        with embedded.start(state_dir, postgres=os.environ.get("PULSE_POSTGRES", "auto"), settings=quiet) as server:
            run_all(options, Settings(database_url=server.dsn))
    finally:
        shutil.rmtree(state_dir)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "which",
        nargs="*",
        choices=["drain", "processes", "soak", "compare", "pages", []],
        help="the benchmarks to run (default: drain and processes)",
    )
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--finished", type=int, default=10_000_000, help="finished jobs to fill in, for pages")
    parser.add_argument("--pending", type=int, default=1_000_000, help="waiting jobs to fill in, for pages")
    return parser.parse_args()


def run_all(options: argparse.Namespace, settings: Settings) -> None:
    run = loop_runner()
    run(migrate(settings))
    settings = replace(settings, notify=False)
    if not options.which or "drain" in options.which:
        with console.status(f"drain: {options.rounds} rounds of {options.jobs:,} jobs, engine and bare SQL in turn…"):
            summary = run(drain.compare(settings, jobs=options.jobs, rounds=options.rounds, connections=4))
        show_drain(summary)
    if not options.which or "processes" in options.which:
        with console.status("processes: one against eight…"):
            runs = run(processes.compare(settings, jobs=options.jobs, rounds=options.rounds, processes=8))
        show_processes(runs)
    if "compare" in options.which:
        with console.status("compare: Pulse and its peers, in turn…"):
            found = compare.compare(settings, jobs=options.jobs, rounds=options.rounds, latency_jobs=200)
        console.print(f"written: {compare.write(found, jobs=options.jobs, rounds=options.rounds)}")
    if "soak" in options.which:
        with console.status("soak: finished jobs stay in the table, or move to another…"):
            show_soak(run(soak.compare(settings, seconds=10, rounds=options.rounds)))
    if "pages" in options.which:
        with console.status(f"pages: filling the database with {options.finished:,} finished jobs, for minutes…"):
            run(pages.fill(settings, finished=options.finished, pending=options.pending))
        with console.status("pages: requesting each page, and watching with viewers…"):
            timings, watched = run(pages.measure(settings, rounds=max(options.rounds, 20)))
        show_pages(timings, watched)


def loop_runner() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def show_drain(summary: drain.Summary) -> None:
    table = Table(title="Drain: claim 100, complete 100, no handler, 4 connections")
    for column in ("round", "engine jobs/s", "bare SQL jobs/s", "ratio"):
        table.add_column(column, justify="right")
    for number, each in enumerate(summary.rounds, 1):
        rates = (f"{each.jobs / seconds:,.0f}" for seconds in (each.engine_seconds, each.lean_seconds))
        table.add_row(str(number), *rates, f"{each.ratio:.2f}")
    console.print(table)
    verdict("engine / bare SQL, median", summary.ratio, summary.ratio >= DRAIN_TARGET, f"≥ {DRAIN_TARGET}")
    each_job = summary.transactions_per_job
    verdict("transactions per job", each_job, each_job <= TRANSACTIONS_TARGET, f"≤ {TRANSACTIONS_TARGET}")
    verdict("rollbacks", summary.rollbacks, summary.rollbacks == 0, "0")


def show_processes(runs: list[processes.Run]) -> None:
    table = Table(title="Processes claiming from one topic, one connection each")
    for column in ("processes", "jobs/s", "jobs", "claimed once", "rollbacks"):
        table.add_column(column, justify="right")
    for run in runs:
        table.add_row(str(run.processes), f"{run.rate:,.0f}", str(run.jobs), str(run.completed), str(run.rollbacks))
    console.print(table)
    ratio = processes.ratio(runs)
    verdict("eight / one, median", ratio, ratio >= 1, "≥ 1")
    rollbacks = sum(run.rollbacks for run in runs)
    verdict("rollbacks", rollbacks, rollbacks == 0, "0")


def show_soak(soaks: list[soak.Soak]) -> None:
    table = Table(title="Sustained submit + claim + complete, bare SQL")
    for column in ("finished jobs", "old snapshot held", "jobs/s", "last third / first"):
        table.add_column(column, justify="right")
    for design, is_pinned, rate, held_up in soak.summarize(soaks):
        name = "stay in the table" if design == "one" else "move to another"
        table.add_row(name, "yes" if is_pinned else "no", f"{rate:,.0f}", f"{held_up:.2f}")
    console.print(table)


def show_pages(timings: list[pages.Timing], watched: list[pages.Watched]) -> None:
    table = Table(title="Pages of the dashboard, milliseconds")
    for column in ("page", "status", "p50", "p95", "worst"):
        table.add_column(column, justify="left" if column == "page" else "right")
    for each in timings:
        table.add_row(each.path, str(each.status), f"{each.p50:,.0f}", f"{each.p95:,.0f}", f"{each.worst:,.0f}")
    console.print(table)
    slowest = max(timings, key=lambda each: each.p95)
    verdict(f"slowest p95 ({slowest.path}), ms", slowest.p95, slowest.p95 <= PAGE_TARGET, f"≤ {PAGE_TARGET}")
    one, ten = (each.statements for each in watched)
    console.print(f"  statements per second: {one:.1f} with one viewer, {ten:.1f} with ten")
    verdict("ten viewers / one", ten / one, ten / one <= 1.1, "≤ 1.1")


def verdict(what: str, value: float, is_met: bool, target: str) -> None:
    console.print(f"  {what}: [bold]{value:.3g}[/] (target {target}) {'[green]met' if is_met else '[red]not met'}")


if __name__ == "__main__":
    main()
