"""The metrics that a server tells, with their labels: what alerts and the dashboard may ask for."""

from __future__ import annotations

import re
from typing import NamedTuple


class Metric(NamedTuple):
    kind: str
    labels: tuple[str, ...] = ()
    of_database: bool = False  # every server tells the same


TOPIC = ("topic",)
METRICS = {
    "pulse_build_info": Metric("gauge", ("version",)),
    "pulse_jobs": Metric("gauge", ("topic", "status"), of_database=True),
    "pulse_oldest_pending_seconds": Metric("gauge", TOPIC, of_database=True),
    "pulse_jobs_submitted_total": Metric("counter", TOPIC, of_database=True),
    "pulse_jobs_ended_total": Metric("counter", ("topic", "outcome"), of_database=True),
    "pulse_job_wait_seconds": Metric("histogram", TOPIC, of_database=True),
    "pulse_job_run_seconds": Metric("histogram", TOPIC, of_database=True),
    "pulse_leases_reaped_total": Metric("counter", TOPIC, of_database=True),
    "pulse_workers": Metric("gauge", of_database=True),
    "pulse_worker_slots": Metric("gauge", of_database=True),
    "pulse_worker_slots_busy": Metric("gauge", of_database=True),
    "pulse_topics_paused": Metric("gauge", of_database=True),
    "pulse_schedules": Metric("gauge", ("state",), of_database=True),
    "pulse_schedule_overdue_seconds": Metric("gauge", of_database=True),
    "pulse_alarms_overdue_seconds": Metric("gauge", of_database=True),
    "pulse_schedule_lateness_seconds": Metric("histogram"),
    "pulse_alarm_lateness_seconds": Metric("histogram"),
    "pulse_wakes_total": Metric("counter", ("outcome",)),
    "pulse_claim_seconds": Metric("histogram"),
    "pulse_loop_lag_seconds": Metric("gauge"),
    "pulse_duty_age_seconds": Metric("gauge", ("duty",)),
    "pulse_duty_errors_total": Metric("counter", ("duty",)),
    "pulse_database_up": Metric("gauge"),
    "pulse_database_errors_total": Metric("counter"),
}
VALUES = {
    "topic": ["mail", "images"],
    "status": ["pending", "running", "scheduled", "retrying", "dead_lettered", "completed", "cancelled"],
    "outcome": ["completed", "retried", "dead_lettered", "cancelled", "snoozed", "released"],
    "state": ["active", "paused", "completed", "broken", "disabled"],
    "duty": ["reap", "fire"],
    "version": ["0.1.0"],
    "le": ["0.1", "1", "+Inf"],
}
WAKES = ["delivered", "failed", "given_up", "late"]


def used(expr: str) -> set[str]:
    """The metrics that an expression asks for; of a histogram, its own name."""
    names = set(re.findall(r"\bpulse_\w+", expr))
    return {re.sub(r"_bucket$", "", name) for name in names}


def labels_used(expr: str) -> list[tuple[str, str]]:
    """Each metric with each label that it is filtered by."""
    selectors = re.findall(r"\b(pulse_\w+)\{([^}]*)\}", expr)
    return [
        (re.sub(r"_bucket$", "", name), label)
        for name, inside in selectors
        for label in re.findall(r"(\w+)=~?\"", inside)
    ]


def summed(expr: str) -> list[str]:
    """What comes from the database and is not reduced by max first, where two servers would count double."""
    bare = re.sub(r"max(?: by \([^)]*\))? \((?:rate|increase)?\(?pulse_\w+", "", expr)
    bare = re.sub(r"max(?: by \([^)]*\))?\(pulse_\w+", "", bare)
    return [name for name in sorted(used(bare)) if METRICS[name].of_database]


def series() -> dict[str, str]:
    """Every series of two servers, in the notation of promtool, with values that move."""
    found = {}
    for name, metric in METRICS.items():
        names = {"histogram": f"{name}_bucket"}.get(metric.kind, name)
        labels = [*metric.labels, *(["le"] if metric.kind == "histogram" else [])]
        for chosen in _combinations(name, labels):
            for instance in ("a", "b"):
                pairs = {"job": "pulse", "instance": instance} | chosen
                inside = ", ".join(f'{label}="{value}"' for label, value in pairs.items())
                found[f"{names}{{{inside}}}"] = "1x30" if metric.kind == "gauge" else "0+6x30"
    return found


def _combinations(name: str, labels: list[str]) -> list[dict[str, str]]:
    chosen: list[dict[str, str]] = [{}]
    for label in labels:
        values = WAKES if name == "pulse_wakes_total" else VALUES[label]
        chosen = [each | {label: value} for each in chosen for value in values]
    return chosen
