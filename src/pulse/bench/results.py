"""What does a benchmark report? One line of figures, with the same fields for every scenario."""

from __future__ import annotations

import statistics
from typing import Any

import msgspec


class Result(msgspec.Struct, kw_only=True):
    """The figures of a scenario. One that does not apply is None."""

    scenario: str
    jobs: int
    seconds: float | None = None
    rate: float | None = None
    ceiling_rate: float | None = None
    ratio: float | None = None
    tx_per_job: float | None = None
    rollbacks: int | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    settings: dict[str, Any] = {}


def median_of(results: list[Result]) -> Result:
    """Return the median of each figure. Ratios are those of single rounds, because the load of a shared machine changes
    from one round to the next."""
    merged: dict[str, Any] = {"scenario": results[0].scenario, "jobs": results[0].jobs, "settings": results[0].settings}
    for name in ("seconds", "rate", "ceiling_rate", "ratio", "tx_per_job", "p50_ms", "p95_ms", "p99_ms"):
        values = [value for each in results if (value := getattr(each, name)) is not None]
        merged[name] = round(statistics.median(values), 4) if values else None
    rollbacks = [each.rollbacks for each in results if each.rollbacks is not None]
    merged["rollbacks"] = sum(rollbacks) if rollbacks else None
    return Result(**merged)


def percentiles(milliseconds: list[float]) -> dict[str, Any]:
    ordered = sorted(milliseconds)
    last = len(ordered) - 1
    return {f"p{share}_ms": round(ordered[min(last, len(ordered) * share // 100)], 3) for share in (50, 95, 99)}
