"""How does Pulse compare with its peers on this machine?

They take turns in one run, each at its best settings. `python -m benchmarks compare` writes docs/benchmarks.md and
docs/benchmarks.svg.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import environment
from pulse.bench.scenarios import Plan, drain, enqueue, latency
from pulse.event_loop import run
from pulse.settings import Settings
from pulse.store.schema.migrate import drop_schema, migrate

DOCS = Path(__file__).parents[1] / "docs"
PEERS = ("pgqueuer", "procrastinate")
SLOW_PEER_JOBS = 5_000  # Procrastinate takes one job at a time: fifty thousand would take minutes


class Comparison(NamedTuple):
    drains: dict[str, list[float]]  # jobs per second, round by round
    ceilings: list[float]
    latencies: dict[str, dict[str, float]]
    enqueues: dict[str, dict[str, float]]
    versions: dict[str, str]


def compare(settings: Settings, *, jobs: int, rounds: int, latency_jobs: int) -> Comparison:
    python = environment.ensure()
    url = str(settings.database_url)
    for peer in PEERS:
        ask(python, peer, "install", url)
    found = Comparison({"pulse": [], **{peer: [] for peer in PEERS}}, [], {}, {}, {})
    settings = replace(settings, schema="pulse_bench", concurrency=1000, buckets=1)
    run(drop_schema(settings))
    run(migrate(settings))
    plan = Plan(settings=settings, jobs=jobs, processes=2)
    for _ in range(rounds):
        result = run(drain(plan))
        found.drains["pulse"].append(result.rate or 0)
        found.ceilings.append(result.ceiling_rate or 0)
        for peer in PEERS:
            count = SLOW_PEER_JOBS if peer == "procrastinate" else jobs
            answer = ask(python, peer, "drain", url, "--jobs", str(count), "--processes", "2", "--batch", "500")
            found.drains[peer].append(answer["rate"])
            found.versions[peer] = answer["version"]
    timed = run(latency(replace(plan, jobs=latency_jobs)))
    found.latencies["pulse"] = {name: getattr(timed, name) for name in ("p50_ms", "p95_ms", "p99_ms")}
    entered = run(enqueue(plan))
    found.enqueues["pulse"] = {"one": entered.settings["one_by_one_rate"], "many": entered.rate or 0}
    for peer in PEERS:
        answer = ask(python, peer, "latency", url, "--jobs", str(latency_jobs), "--rate", "20")
        found.latencies[peer] = {name: answer[name] for name in ("p50_ms", "p95_ms", "p99_ms")}
        answer = ask(python, peer, "enqueue", url, "--jobs", "2000")
        found.enqueues[peer] = {"one": answer["rate"], "many": answer["many_rate"]}
    run(drop_schema(settings))
    return found


def ask(python: Path, peer: str, *arguments: str) -> dict[str, Any]:
    """Run a command of a peer in its own environment, and return its answer."""
    done = subprocess.run(
        [str(python), "-m", f"benchmarks.peers.{peer}_peer", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=DOCS.parent,
    )
    if done.returncode:
        raise RuntimeError(f"{peer} {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    return answer


def write(found: Comparison, *, jobs: int, rounds: int) -> Path:
    (DOCS / "benchmarks.svg").write_text(draw({who: statistics.median(rates) for who, rates in found.drains.items()}))
    page = DOCS / "benchmarks.md"
    page.write_text(describe(found, jobs=jobs, rounds=rounds))
    return page


def describe(found: Comparison, *, jobs: int, rounds: int) -> str:
    pulse = statistics.median(found.drains["pulse"])
    ratios = [rate / top for rate, top in zip(found.drains["pulse"], found.ceilings, strict=True)]
    top = statistics.median(found.ceilings)
    rows = [f"| bare SQL, the same operations | {top:,.0f} | {statistics.median(ratios):.2f} | | | |"]
    for who, rates in found.drains.items():
        beside = statistics.median(a / b for a, b in zip(found.drains["pulse"], rates, strict=True))
        late, put = found.latencies[who], found.enqueues[who]
        name = f"**Pulse** ({pulse:,.0f})" if who == "pulse" else f"{who} {found.versions[who]}"
        rows.append(
            f"| {name} | {statistics.median(rates):,.0f} | {beside:.2f} | {late['p50_ms']:.1f} / {late['p99_ms']:.1f} "
            f"| {put['one']:,.0f} | {put['many']:,.0f} |"
        )
    table = "\n".join(rows)
    return f"""# Benchmarks

Written by `python -m benchmarks compare` on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} cores, {platform.machine()},
Python {platform.python_version()}, one Postgres for all, durable settings, {jobs:,} no-op jobs, two worker processes
each at its best settings, in turn, median of {rounds}. Absolute figures are this machine's; look at the ratios, which
are taken round by round.

| | drain, jobs/s | Pulse / it | latency p50 / p99, ms | enqueue one by one, /s | many at once, /s |
| --- | --- | --- | --- | --- | --- |
{table}

![Jobs drained per second](benchmarks.svg)

How the peers are run, and at which settings: [benchmarks/peers](../benchmarks/peers/README.md). Procrastinate drains
{SLOW_PEER_JOBS:,} jobs, because it takes them one at a time. Latency is from the call of enqueue to the handler's first
line, in an idle system, at 20 jobs a second. `pulse bench --help` lists what you can measure on your own machine.
"""


def draw(rates: dict[str, float]) -> str:
    """Return a chart as SVG, with a bar for each rate, the longest first."""
    longest = max(rates.values())
    ordered = sorted(rates.items(), key=lambda item: -item[1])
    bars = "".join(
        f'<text x="8" y="{34 + 40 * n}">{who}</text>'
        f'<rect x="130" y="{18 + 40 * n}" width="{max(2, 420 * rate / longest):.0f}" height="24" '
        f'fill="{"#2563eb" if who == "pulse" else "#94a3b8"}"/>'
        f'<text x="{138 + max(2, 420 * rate / longest):.0f}" y="{34 + 40 * n}">{rate:,.0f}</text>'
        for n, (who, rate) in enumerate(ordered)
    )
    height = 16 + 40 * len(ordered)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{height}" font-family="sans-serif" '
        f'font-size="14" fill="#334155" role="img" aria-label="Jobs drained per second">{bars}</svg>\n'
    )
