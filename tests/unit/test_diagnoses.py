"""Does the doctor judge right what no test can plant: standbys, slots, other clocks, two thousand million rows?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse.model.doctor import diagnoses as judge
from pulse.model.doctor.findings import (
    Ages,
    Clock,
    Connections,
    Durability,
    Finding,
    Lateness,
    Level,
    Pin,
    ServerFacts,
    ServerSeen,
    worst_of,
)

NOW = datetime(2026, 7, 31, 9, 0, tzinfo=UTC)
WELL = ServerFacts(180000, "18.0", is_standby=False, is_read_only=False, encoding="UTF8", database="d", role="r")
DURABLE = Durability("on", "on", "on", [], [], 0, "")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"version": 130009, "version_text": "13.9"}, "too old"),
        ({"is_standby": True, "is_read_only": True}, "standby"),
        ({"is_read_only": True}, "read-only"),
        ({"encoding": "SQL_ASCII"}, "SQL_ASCII"),
    ],
)
def test_a_database_that_will_not_do(changes: dict[str, object], word: str) -> None:
    [found] = judge.judge_server(WELL._replace(**changes))  # type: ignore[arg-type]

    assert (found.level, word in found.text) == (Level.FAIL, True)


def test_standbys_of_which_none_is_waited_for() -> None:
    [found] = judge.judge_durability(DURABLE._replace(standbys=2))

    assert (found.level, found.text) == (Level.WARN, "2 standby servers and none of them synchronous")
    assert judge.judge_durability(DURABLE._replace(standbys=2, synchronous_standbys="*"))[0].level is Level.OK


@pytest.mark.parametrize(
    ("ahead", "level", "word"),
    [(0, Level.OK, "agree"), (1.9, Level.OK, "agree"), (90, Level.WARN, "1m30s ahead"), (-5, Level.WARN, "5s behind")],
)
def test_clocks_that_differ(ahead: float, level: Level, word: str) -> None:
    clock = Clock("select statement_timestamp()", NOW + timedelta(seconds=ahead), NOW, NOW)

    [found] = judge.judge_clock(clock)

    assert (found.level, word in found.text) == (level, True)


def test_a_slow_answer_is_no_difference() -> None:
    clock = Clock("select statement_timestamp()", NOW, NOW - timedelta(seconds=4), NOW + timedelta(seconds=4))

    assert judge.judge_clock(clock)[0].level is Level.OK


def test_a_slot_that_nobody_reads() -> None:
    slot = Pin("replication slot", "old", None, "pgoutput", "inactive", None, None, 5_000_000)

    [found] = judge.judge_pins([slot], NOW)

    assert (found.level, "'old', inactive), 5,000,000 transactions old" in found.text) == (Level.WARN, True)
    assert "pg_drop_replication_slot('old')" in found.advice
    assert judge.judge_pins([slot._replace(age=99)], NOW)[0].level is Level.OK


@pytest.mark.parametrize(("used", "level"), [(7, Level.OK), (8, Level.WARN), (10, Level.FAIL)])
def test_connections(used: int, level: Level) -> None:
    assert judge.judge_connections(Connections(used, 10))[0].level is level


@pytest.mark.parametrize(
    ("is_pooled", "is_configured", "has_listen_url", "level"),
    [
        (False, False, False, Level.OK),
        (False, True, False, Level.OK),
        (True, False, False, Level.FAIL),
        (True, True, False, Level.WARN),
        (True, True, True, Level.OK),
    ],
)
def test_a_pooler(*, is_pooled: bool, is_configured: bool, has_listen_url: bool, level: Level) -> None:
    [found] = judge.judge_pooler(is_pooled=is_pooled, is_configured=is_configured, has_listen_url=has_listen_url)

    assert found.level is level


@pytest.mark.parametrize(("usage", "level"), [(0.1, Level.OK), (0.5, Level.WARN), (0.95, Level.FAIL)])
def test_a_queue_of_notifications(usage: float, level: Level) -> None:
    assert judge.judge_notifier(has_arrived=True, usage=usage)[0].level is level


@pytest.mark.parametrize(
    ("ages", "level"),
    [
        (Ages(200_000_000, 1), Level.OK),
        (Ages(1_000_000_000, 1), Level.WARN),
        (Ages(1, 1_700_000_000), Level.FAIL),
    ],
)
def test_wraparound(ages: Ages, level: Level) -> None:
    assert judge.judge_ages(ages)[0].level is level


def test_a_lease_may_lapse_for_a_while_because_after_an_outage_nobody_is_judged() -> None:
    lease, late = timedelta(seconds=30), Lateness(None, None, None, None, timedelta(seconds=60))

    assert judge.judge_lateness(late, [], lease)[0].level is Level.OK
    assert judge.judge_lateness(late._replace(reap=timedelta(seconds=91)), [], lease)[0].level is Level.FAIL
    assert judge.judge_lateness(late._replace(wake=timedelta(seconds=60)), [], lease)[0].level is Level.FAIL


def test_servers_that_do_not_answer_or_are_of_another_release() -> None:
    seen = [ServerSeen("a:1", "1.0"), ServerSeen("b:1", "0.9"), ServerSeen("c:1", None, "refused")]

    found = judge.judge_servers(seen, "1.0")

    assert [(each.level, each.text[:3]) for each in found] == [(Level.WARN, "b:1"), (Level.FAIL, "c:1")]
    assert judge.judge_servers(seen[:1], "1.0")[0].level is Level.OK


def test_the_worst_counts() -> None:
    levels = [Level.WARN, Level.OK, Level.FAIL, Level.WARN]

    assert worst_of([Finding(level, "", "") for level in levels]) is Level.FAIL
    assert worst_of([]) is Level.OK
