"""Do the metrics of a run add up to what the run did, whatever topics are called and whether the database is there?"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pulse.engine import metrics
from pulse.engine.duties import loops
from pulse.engine.engine import Engine
from pulse.engine.instruments import Histogram, Instruments
from pulse.engine.metrics import Figures, TopicLabels
from pulse.engine.tokens import Tokens
from pulse.model.jobs import Outcome, RetryPolicy
from pulse.model.prometheus_text import Family, Sample, buckets, write
from pulse.model.schedules import NewSchedule
from pulse.model.statistics import Event, Overview, TopicFacts, Total
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from pulse.telemetry import health
from pulse.version import __version__
from tests.clock import FrozenClock
from tests.deploy.metrics import METRICS
from tests.doors.http_client import served_http
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one
from tests.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
AT_ONCE = RetryPolicy(kind="fixed", base=0, jitter=0)

Scraped = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Scraped:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(scraped: Scraped, name: str, **labels: str) -> float:
    return scraped["pulse_" + name, frozenset(labels.items())]


async def scrape(engine: Engine) -> Scraped:
    engine.metrics._written_at = float("-inf")
    return read(await engine.metrics.scrape())


# --- they add up


@pytest.mark.parametrize("is_rolled", [False, True])
async def test_they_add_up_to_what_the_run_did(engine: Engine, clock: FrozenClock, is_rolled: bool) -> None:
    """Twelve jobs: four done, one done at the second try, two dead letters, one cancelled, one snoozed, one given back,
    one reaped, and one that nobody has looked at."""
    await engine.jobs.submit([a_new_job(topic="mail", retry=AT_ONCE) for _ in range(12)])
    await clock.advance(timedelta(seconds=3))
    claims = await engine.claims.claim("mail", worker="w", slots=11)
    await clock.advance(timedelta(seconds=0.2))
    outcomes = [Outcome.COMPLETE] * 4 + [Outcome.FAIL] + [Outcome.DISCARD] * 2 + [Outcome.SNOOZE]
    await engine.claims.report([a_report(claim, outcome) for claim, outcome in zip(claims, outcomes, strict=False)])
    await engine.jobs.cancel(claims[8].id)
    await engine.claims.release([lease_of(claims[9])])
    await clock.advance(engine.settings.lease)
    assert await engine.duties.reap() == 1
    await engine.duties.promote()
    again = await engine.claims.claim("mail", worker="w", slots=4)
    [retried] = [claim for claim in again if claim.id == claims[4].id]
    await engine.claims.report([a_report(retried)])
    await engine.claims.release([lease_of(claim) for claim in again if claim.id != retried.id])
    if is_rolled:
        while (await engine.duties.tally()) == timedelta():
            pass
    await clock.advance(timedelta(seconds=7))

    found = await scrape(engine)

    states = {"pending": 3, "scheduled": 1, "running": 0, "retrying": 0, "completed": 5, "dead_lettered": 2}
    for status, jobs in {**states, "cancelled": 1}.items():
        assert of(found, "jobs", topic="mail", status=status) == jobs, status
    ended = {"completed": 5, "retried": 2, "dead_lettered": 2, "cancelled": 1, "snoozed": 1, "released": 4}
    for outcome, jobs in ended.items():
        assert of(found, "jobs_ended_total", topic="mail", outcome=outcome) == jobs, outcome
    assert of(found, "jobs_submitted_total", topic="mail") == 12
    assert of(found, "leases_reaped_total", topic="mail") == 1
    assert of(found, "job_wait_seconds_count", topic="mail") == 15
    waits = [of(found, "job_wait_seconds_bucket", topic="mail", le=bound) for bound in ("2.5", "5", "30", "60")]
    assert waits == [2, 13, 13, 15]  # retried and reaped when they were promoted, the first eleven after 3 s
    assert of(found, "job_run_seconds_count", topic="mail") == 9
    assert of(found, "job_run_seconds_bucket", topic="mail", le="0.25") == 9
    assert of(found, "job_run_seconds_sum", topic="mail") == pytest.approx(8 * 0.2, abs=1e-6)
    assert of(found, "oldest_pending_seconds", topic="mail") == 7
    assert of(found, "claim_seconds_count") == 2
    assert of(found, "database_up") == 1
    assert of(found, "build_info", version=__version__) == 1


async def test_schedules_pauses_and_workers_are_told(
    engine: Engine, clock: FrozenClock, conn: Connection, settings: Settings
) -> None:
    for name in ("a", "b", "c"):
        await engine.schedules.create(NewSchedule(name=name, job=a_new_job(), every=timedelta(minutes=1)))
    await engine.schedules.pause("c")
    await submit_one(engine, topic="still")
    await engine.jobs.pause("still")
    await clock.advance(timedelta(minutes=1, seconds=2))
    before = await scrape(engine)
    await engine.duties.fires.step()
    after = await scrape(engine)

    assert of(before, "schedules", state="active") == 2
    assert of(before, "schedules", state="paused") == 1
    assert of(before, "topics_paused") == 1
    assert of(before, "schedule_overdue_seconds") == pytest.approx(2, abs=0.5)
    assert of(before, "schedule_lateness_seconds_count") == 0
    assert of(after, "schedule_overdue_seconds") == 0
    assert of(after, "schedule_lateness_seconds_count") == 2
    assert of(after, "schedule_lateness_seconds_bucket", le="2.5") == 2
    assert (of(after, "workers"), of(after, "worker_slots"), of(after, "worker_slots_busy")) == (0, 0, 0)


async def test_every_metric_is_explained_and_has_its_kind(engine: Engine, clock: FrozenClock) -> None:
    await engine.schedules.create(NewSchedule(name="a", job=a_new_job(), every=timedelta(minutes=1)))
    await submit_one(engine)
    await engine.claims.report([a_report(await claim_one(engine))])
    engine.instruments.wake_outcomes["delivered"] += 1
    engine.healths += [loop.health for loop in engine.duties.loops()]

    text = await engine.metrics.scrape()

    told = {(name, kind) for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)}
    listed = re.findall(r"^\| `(pulse_\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.MULTILINE)
    assert told == {(name, kind) for name, kind, _ in listed}
    assert told == {(name, metric.kind) for name, metric in METRICS.items()}  # which alerts and dashboards are held to
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(family.name, set()).update(sample.labels.keys() - {"le"})
    for name, _, listed_labels in listed:
        assert labels[name.removesuffix("_total")] == set(re.findall(r"`(\w+)`", listed_labels)), name
    duties = {dict(at)["duty"] for name, at in read(text) if name == "pulse_duty_age_seconds"}
    assert duties | {"presence", "moved workers", "dispatch"} == set(
        re.findall(r"`([a-z ]+)`", PAGE.partition("The duties are")[2])
    )


# --- whatever topics are called, and however many there are


@pytest.mark.parametrize(
    "topic", ['"} 1', "a\\b", 'x",topic="y', "\\n", "# HELP x", "größe 漢字 🎉", "{}", "a=b,c", "\u2028"]
)
async def test_a_hostile_topic_is_a_label_and_nothing_else(engine: Engine, topic: str) -> None:
    await submit_one(engine, topic=topic)

    found = await scrape(engine)

    assert of(found, "jobs", topic=topic, status="pending") == 1
    assert {dict(labels)["topic"] for _, labels in found if "topic" in dict(labels)} == {topic}


def figures(submitted: dict[str, int]) -> Figures:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    topics = [TopicFacts(topic, {}, False, None, 0, 0, None) for topic in submitted]
    overview = Overview(now, topics, [], [], 0, 0, None, 0, 0, timedelta(), timedelta())
    return Figures(overview, [Total(name, Event.SUBMITTED, -1, jobs, 0) for name, jobs in submitted.items()], {})


def test_the_busiest_topics_have_labels_and_the_rest_are_added_up() -> None:
    labels, seen = TopicLabels(), figures({f"t{n}": n for n in range(300)})
    labels.update(seen)

    found = read(write(metrics.of_jobs(seen, labels)))
    submitted = {dict(at)["topic"]: jobs for (name, at), jobs in found.items() if name == "pulse_jobs_submitted_total"}

    assert len(submitted) == 201
    assert submitted["(other)"] == sum(range(100))
    assert submitted["t299"] == 299
    assert sum(submitted.values()) == sum(range(300))


def test_who_has_a_label_keeps_it_until_the_topic_is_gone() -> None:
    labels = TopicLabels(limit=2)
    labels.update(figures({"a": 5, "b": 4, "c": 1}))
    labels.update(figures({"a": 5, "b": 4, "c": 100}))

    assert [labels.of(topic) for topic in "abc"] == ["a", "b", "(other)"]
    labels.update(figures({"a": 5, "c": 100, "d": 1}))
    assert [labels.of(topic) for topic in "acd"] == ["a", "(other)", "d"], "counters of the others must not fall"


def test_a_histogram_counts_what_is_at_a_bound_as_within() -> None:
    found = Histogram((0.1, 1))
    for seconds in (0.05, 0.1, 0.5, 2):
        found.note(seconds)

    text = write([Family("x", "histogram", "X.", list(buckets({}, found.bounds, found.counts, found.seconds)))])

    assert text.splitlines()[2:] == [
        'x_bucket{le="0.1"} 2',
        'x_bucket{le="1"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 2.65",
        "x_count 4",
    ]
    assert write([Family("y", "gauge", "Y.", [Sample({}, -0.25)])]).endswith("\ny -0.25\n")


async def test_a_loop_that_stands_still_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.engine.instruments.LAG_EVERY", 0.01)
    instruments = Instruments()
    watching = asyncio.create_task(instruments.watch_loop())
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251
    await asyncio.sleep(0.02)
    watching.cancel()

    assert 0.1 < instruments.loop_lag < 5


# --- one scrape for all, and while the database is away


async def test_all_who_scrape_within_a_second_share_one_look(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    overview = engine.statistics.overview

    async def counted() -> Overview:
        nonlocal asked
        asked += 1
        return await overview()

    monkeypatch.setattr(engine.statistics, "overview", counted)
    await asyncio.gather(*(engine.metrics.scrape() for _ in range(20)))

    assert asked == 1


async def test_a_scrape_costs_nine_statements_however_much_there_is(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    rows = Connection.rows

    async def counted(self: Connection, name: str, **values: Any) -> Any:
        asked.append(name)
        return await rows(self, name, **values)

    await engine.jobs.submit([a_new_job(topic=f"t{n}") for n in range(50)])
    monkeypatch.setattr(Connection, "rows", counted)
    found = await scrape(engine)

    assert of(found, "jobs_submitted_total", topic="t49") == 1
    assert len(asked) == len(set(asked)) == 9


async def test_while_the_database_is_away_the_process_is_still_told_of(
    engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.1)
    monkeypatch.setattr(engine.statistics, "totals", asyncio.Event().wait)  # it hangs
    hung = await scrape(engine)
    gone = Engine(Database(replace(database.settings, database_url="postgresql://127.0.0.1:1/x")), buckets=1)
    refused = await scrape(gone)

    for found in (hung, refused):
        assert of(found, "database_up") == 0
        assert of(found, "claim_seconds_count") == 0
        assert not any("topic" in dict(labels) for _, labels in found)
    assert of(refused, "database_errors_total") > 0


# --- at the doors


async def test_a_server_shows_them_to_those_who_may_see(settings: Settings, database: Database) -> None:
    tokens = Tokens(database)
    _, reader = await tokens.create("scraper", ["read"])
    _, producer = await tokens.create("shop", ["submit"])

    async with served_http(settings) as http:
        assert (await http.refused("GET", "/metrics"))[0] == 401
        assert (await http.refused("GET", "/metrics", headers={"authorization": f"Bearer {producer}"}))[0] == 403
        answer = await http.ask("GET", "/metrics", headers={"authorization": f"Bearer {reader}"})
        assert (await http.done("GET", "/livez"), await http.done("GET", "/readyz")) == ({"status": "ok"},) * 2

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = read(answer.text)
    assert {dict(labels)["duty"] for name, labels in found if name == "pulse_duty_age_seconds"} >= {"reap", "dispatch"}


async def test_a_duty_that_stands_still_makes_a_server_unready_by_its_name(settings: Settings) -> None:
    async with served_http(settings) as http:
        [reap] = [beat for beat in http.server.metrics.healths if beat.name == "reap"]

        async def has_begun() -> bool:
            return reap.due_at > reap.good_at

        await until(has_begun)
        reap.good_at = reap.due_at = reap.due_at - loops.LATE_AFTER - 100
        status, code, message = await http.refused("GET", "/readyz")
        reap.succeeded(0)
        assert (await http.ask("GET", "/readyz")).status_code == 200

    assert (status, code) == (503, "not_ready")
    assert re.search(r"the duty reap has not been done for 1\d\d s", message)


async def test_a_schema_that_does_not_suit_makes_a_server_unready_at_once(
    settings: Settings, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ASK_EVERY", 0)
    raw: Any = conn._raw
    async with served_http(settings) as http:
        assert (await http.ask("GET", "/readyz")).status_code == 200
        await raw.execute("insert into pulse.migrations (version, name, works_from) values (999, 'later', 999)")
        try:
            status, _, message = await http.refused("GET", "/readyz")
        finally:
            await raw.execute("delete from pulse.migrations where version = 999")

    assert status == 503
    assert "upgrade pulse-postgres" in message


async def test_a_failing_step_is_counted_and_ages_its_duty() -> None:
    stop = asyncio.Event()
    loop = loops.Loop("odd", broken_step(stop))

    await loop.run(stop)

    assert loop.health.errors == 1
    assert not loop.health.is_late


def broken_step(stop: asyncio.Event) -> loops.Step:
    async def step() -> timedelta:
        stop.set()
        raise ValueError("broken")

    return step
