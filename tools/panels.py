"""What does the Grafana dashboard show? `python -m tools.dashboard` writes it.

Every server reports the same figures of the database, so queries take their max over the servers and never their sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

HERE = 'job="$job"'
TOPIC = f'{HERE}, topic=~"$topic"'
ORANGE, RED = "orange", "red"
QUANTILES = (0.5, 0.95, 0.99)


class Query(NamedTuple):
    expr: str
    legend: str = ""
    unit: str = "short"  # in a table, where each has its own


class Panel(NamedTuple):
    title: str
    description: str
    queries: list[Query]
    kind: str = "timeseries"
    unit: str = "short"
    steps: tuple[tuple[float, str], ...] = ()  # from this value on, this colour; below all, green
    words: dict[int, str] | None = None
    most: float | None = None
    width: int = 8
    height: int = 8

    @property
    def is_instant(self) -> bool:
        return self.kind == "table"


def stat(title: str, description: str, expr: str, **given: Any) -> Panel:  # noqa: ANN401
    return Panel(title, description, [Query(expr)], "stat", width=3, height=4)._replace(**given)


def jobs(status: str, *by: str) -> str:
    """How many jobs there are; without `by`, of all topics together."""
    found = f'max by (topic) (pulse_jobs{{{TOPIC}, status="{status}"}})'
    return found if by else f"sum({found})"


def ended(*by: str, outcome: str = ".+", window: str = "$__rate_interval") -> str:
    """Jobs that ended, per second."""
    rate = f'rate(pulse_jobs_ended_total{{{TOPIC}, outcome=~"{outcome}"}}[{window}])'
    return f"sum by ({', '.join(by)}) (max by (topic, outcome) ({rate}))"


def failing(*by: str) -> str:
    bad = ended(*by, outcome="retried|dead_lettered", window="10m")
    return f"{bad} / ({ended(*by, window='10m')} > 0)"


def quantile(rank: float, histogram: str, *by: str, of_database: bool = True) -> str:
    """Of a histogram; those of topics come from the database, the others from each process."""
    kept = ", ".join(["le", *by])
    where = TOPIC if of_database else HERE
    rate = f"rate({histogram}_bucket{{{where}}}[$__rate_interval])"
    merged = f"sum by ({kept}) (max by (topic, le) ({rate}))" if of_database else f"sum by ({kept}) ({rate})"
    return f"histogram_quantile({rank}, {merged})"


def quantiles(histogram: str, *, of_database: bool = True) -> list[Query]:
    return [Query(quantile(rank, histogram, of_database=of_database), f"p{rank * 100:.0f}") for rank in QUANTILES]


IS_ALL_WELL = [
    stat("Servers", "Servers that Prometheus can scrape.", f"count(pulse_build_info{{{HERE}}})"),
    stat(
        "Database",
        "Whether every server reaches its database.",
        f"min(pulse_database_up{{{HERE}}})",
        words={0: "away", 1: "up"},
        # Green is what is well, which here is the greater value.
        steps=((-1, RED), (1, "green")),
    ),
    stat(
        "Workers",
        "Workers that are connected to servers, without those that work directly on the database.",
        f"max(pulse_workers{{{HERE}}})",
    ),
    stat("Waiting", "Jobs that could run now if a worker had a free slot.", jobs("pending")),
    stat(
        "Oldest waiting",
        "How long the oldest waiting job has waited. Look at this figure first.",
        f"max(pulse_oldest_pending_seconds{{{TOPIC}}})",
        unit="s",
        steps=((60, ORANGE), (600, RED)),
    ),
    stat(
        "Failing",
        "The share of the runs of the last ten minutes that failed.",
        failing(),
        unit="percentunit",
        steps=((0.1, ORANGE), (0.5, RED)),
    ),
    stat(
        "Dead letters",
        "Jobs that failed for the last time and wait for a person.",
        jobs("dead_lettered"),
        steps=((1, ORANGE),),
    ),
    stat(
        "Paused topics",
        "Topics that somebody has paused. Their jobs are not claimed.",
        f"max(pulse_topics_paused{{{HERE}}})",
        steps=((1, ORANGE),),
    ),
]

THROUGHPUT = [
    Panel(
        "In and out",
        "Jobs submitted and ended each second. Where the first stays above the second, jobs pile up.",
        [
            Query(
                f"sum(max by (topic) (rate(pulse_jobs_submitted_total{{{TOPIC}}}[$__rate_interval])))",
                "submitted",
            ),
            Query(f"sum({ended('topic', outcome='completed|dead_lettered|cancelled')})", "ended for good"),
        ],
        unit="ops",
    ),
    Panel(
        "Ended by outcome",
        "Runs that ended, each second, by how they ended.",
        [Query(ended("outcome"), "{{outcome}}")],
        unit="ops",
    ),
    Panel("Ended by topic", "Runs that ended, each second.", [Query(ended("topic"), "{{topic}}")], unit="ops"),
]

WAITING = [
    Panel("Waiting by topic", "Jobs that could run now.", [Query(jobs("pending", "topic"), "{{topic}}")]),
    Panel(
        "Oldest waiting by topic",
        "A line that climbs by a second each second is a topic that no worker serves.",
        [Query(f"max by (topic) (pulse_oldest_pending_seconds{{{TOPIC}}})", "{{topic}}")],
        unit="s",
        steps=((600, RED),),
    ),
    Panel(
        "Time waited",
        "From the instant when a job could run to the instant when it was claimed.",
        quantiles("pulse_job_wait_seconds"),
        unit="s",
    ),
]

RUN_TIME = [
    Panel("Run time", "How long handlers take.", quantiles("pulse_job_run_seconds"), unit="s", width=12),
    Panel(
        "Run time by topic, p95",
        "Nineteen of twenty runs take less.",
        [Query(quantile(0.95, "pulse_job_run_seconds", "topic"), "{{topic}}")],
        unit="s",
        width=12,
    ),
]

FAILURES = [
    Panel(
        "Failing share by topic",
        "The share of the runs of the last ten minutes that failed, whether or not they will be tried again.",
        [Query(failing("topic"), "{{topic}}")],
        unit="percentunit",
        most=1,
        steps=((0.5, RED),),
    ),
    Panel(
        "Dead letters by topic",
        "Jobs that failed for the last time. Repair the cause, then replay them.",
        [Query(jobs("dead_lettered", "topic"), "{{topic}}")],
    ),
    Panel(
        "Leases reaped",
        "Jobs taken from workers that died, stood still or lost their network.",
        [
            Query(
                f"max by (topic) (increase(pulse_leases_reaped_total{{{TOPIC}}}[$__rate_interval]))",
                "{{topic}}",
            )
        ],
    ),
]

TOPICS = [
    Panel(
        "Topics",
        "The current state of every topic.",
        [
            Query(jobs("pending", "topic"), "waiting"),
            Query(f"max by (topic) (pulse_oldest_pending_seconds{{{TOPIC}}})", "oldest", "s"),
            Query(jobs("running", "topic"), "running"),
            Query(jobs("scheduled", "topic"), "for later"),
            Query(jobs("retrying", "topic"), "retrying"),
            Query(jobs("dead_lettered", "topic"), "dead letters"),
            Query(ended("topic", window="10m"), "ended/s", "ops"),
            Query(failing("topic"), "failing", "percentunit"),
        ],
        kind="table",
        width=24,
        height=9,
    ),
]

WORKERS = [
    Panel("Workers", "Workers that are connected to servers.", [Query(f"max(pulse_workers{{{HERE}}})", "workers")]),
    Panel(
        "Slots",
        "The slots of all connected workers, and how many of them are busy.",
        [
            Query(f"max(pulse_worker_slots{{{HERE}}})", "slots"),
            Query(f"max(pulse_worker_slots_busy{{{HERE}}})", "busy"),
        ],
    ),
    Panel(
        "Busy share",
        "If this is near one while jobs wait, more workers would help.",
        [Query(f"max(pulse_worker_slots_busy{{{HERE}}}) / (max(pulse_worker_slots{{{HERE}}}) > 0)", "busy")],
        unit="percentunit",
        most=1,
        steps=((0.95, ORANGE),),
    ),
]

SCHEDULES_AND_ALARMS = [
    Panel("Schedules", "Schedules by state.", [Query(f"max by (state) (pulse_schedules{{{HERE}}})", "{{state}}")]),
    Panel(
        "Overdue",
        "How long the most overdue schedule and the most overdue alarm have been due.",
        [
            Query(f"max(pulse_schedule_overdue_seconds{{{HERE}}})", "schedules"),
            Query(f"max(pulse_alarms_overdue_seconds{{{HERE}}})", "alarms"),
        ],
        unit="s",
        steps=((60, ORANGE), (120, RED)),
    ),
    Panel(
        "Wakes",
        "Deliveries of alarms by how they ended. A failed one is tried again.",
        [Query(f"sum by (outcome) (rate(pulse_wakes_total{{{HERE}}}[$__rate_interval]))", "{{outcome}}")],
        unit="ops",
    ),
    Panel(
        "Lateness of schedules",
        "From the planned instant to the job that it made.",
        quantiles("pulse_schedule_lateness_seconds", of_database=False),
        unit="s",
        width=12,
    ),
    Panel(
        "Lateness of alarms",
        "From the planned instant to the first attempt to deliver it.",
        quantiles("pulse_alarm_lateness_seconds", of_database=False),
        unit="s",
        width=12,
    ),
]

PROCESSES = [
    Panel(
        "Time of a claim, p95",
        "The statement that claims jobs. It is slower while Postgres is busy, or a long transaction keeps dead rows.",
        [Query(quantile(0.95, "pulse_claim_seconds", "instance", of_database=False), "{{instance}}")],
        unit="s",
    ),
    Panel(
        "Loop lag",
        "How late the event loop of a process is: it has too much to do, or something blocks it.",
        [Query(f"max by (instance) (pulse_loop_lag_seconds{{{HERE}}})", "{{instance}}")],
        unit="s",
        steps=((0.5, RED),),
    ),
    Panel(
        "Database",
        "Which process reaches its database.",
        [Query(f"min by (instance) (pulse_database_up{{{HERE}}})", "{{instance}}")],
        unit="bool_yes_no",
        most=1,
    ),
    Panel(
        "Errors of the database",
        "Connections lost and statements refused.",
        [
            Query(
                f"sum by (instance) (increase(pulse_database_errors_total{{{HERE}}}[$__rate_interval]))",
                "{{instance}}",
            )
        ],
    ),
    Panel(
        "Age of duties",
        "The time since each duty last ran, in the process where that is the longest.",
        [Query(f"max by (duty) (pulse_duty_age_seconds{{{HERE}}})", "{{duty}}")],
        unit="s",
        steps=((180, RED),),
    ),
    Panel(
        "Errors of duties",
        "Runs of duties that failed. They are repeated, with longer and longer waits.",
        [
            Query(
                f"sum by (instance, duty) (increase(pulse_duty_errors_total{{{HERE}}}[$__rate_interval]))",
                "{{instance}} {{duty}}",
            )
        ],
    ),
    Panel(
        "Versions",
        "Which release each server runs.",
        [Query(f"max by (instance, version) (pulse_build_info{{{HERE}}})")],
        kind="table",
        width=24,
        height=6,
    ),
]

ROWS: list[tuple[str, list[Panel]]] = [
    ("Is all well?", IS_ALL_WELL),
    ("Throughput", THROUGHPUT),
    ("Waiting", WAITING),
    ("Run time", RUN_TIME),
    ("Failures", FAILURES),
    ("Topics", TOPICS),
    ("Workers", WORKERS),
    ("Schedules and alarms", SCHEDULES_AND_ALARMS),
    ("Processes", PROCESSES),
]
