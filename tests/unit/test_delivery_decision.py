"""Does every outcome of a delivery leave its alarm as it should?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest

from pulse.model.alarms import AlarmStatus, DeliveryOutcome
from pulse.model.decisions.delivery import AlarmClaim, DeliveryResult, backoff, decide

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
OK, DOWN = DeliveryResult(None), DeliveryResult("HTTP 503")
iso = datetime.isoformat


def a_ringing(**given: Any) -> AlarmClaim:
    defaults: dict[str, Any] = {
        "id": UUID(int=1), "lease_id": 1, "owner": "ada", "label": "", "payload": "null", "url": None, "headers": {},
        "destination": "default", "revision": 1, "occurrence": NOON, "attempt": 1, "failure_count": 0,
        "max_failures": 5, "cron": None, "tz": "UTC", "lateness": timedelta(),
    }  # fmt: skip
    return AlarmClaim(**defaults | given)


def test_the_ladder_is_as_the_seed_has_it() -> None:
    assert [backoff(n) for n in range(8)] == [
        30 * SECOND,
        MINUTE,
        2 * MINUTE,
        4 * MINUTE,
        8 * MINUTE,
        *[15 * MINUTE] * 3,
    ]


def test_a_once_alarm_that_was_delivered_has_fired() -> None:
    verdict = decide(a_ringing(failure_count=3), OK, NOON)

    assert verdict[:6] == (DeliveryOutcome.DELIVERED, AlarmStatus.FIRED, NOON, None, 0, None)


def test_a_cron_alarm_that_was_delivered_goes_to_its_next_occurrence() -> None:
    verdict = decide(a_ringing(cron="0 * * * *", failure_count=2), OK, NOON + SECOND)

    assert verdict == (
        DeliveryOutcome.DELIVERED, AlarmStatus.ACTIVE, NOON + 60 * MINUTE, NOON + 60 * MINUTE, 0, None, None,
    )  # fmt: skip


def test_occurrences_that_passed_meanwhile_are_coalesced_and_counted() -> None:
    verdict = decide(a_ringing(cron="* * * * *"), OK, NOON + 150 * SECOND)

    assert verdict.next_fire_at == NOON + 3 * MINUTE
    assert verdict.note == f"coalesced 2 occurrences ({iso(NOON + MINUTE)} to {iso(NOON + 2 * MINUTE)})"


def test_a_timetable_without_a_future_is_retired() -> None:
    verdict = decide(
        a_ringing(cron="0 0 29 2 *", occurrence=datetime(2096, 2, 29, tzinfo=UTC)), OK, datetime(2096, 3, 1, tzinfo=UTC)
    )

    assert (verdict.status, verdict.next_fire_at, verdict.error) == (AlarmStatus.FIRED, None, None)


def test_a_zone_that_is_gone_fails_the_alarm_and_says_so() -> None:
    verdict = decide(a_ringing(cron="* * * * *", tz="Mars/Olympus"), OK, NOON)

    assert verdict.status is AlarmStatus.FAILED
    assert verdict.error is not None
    assert "Mars/Olympus" in verdict.error


@pytest.mark.parametrize("failures", range(5))
def test_a_failure_is_retried_after_its_rung_of_the_ladder(failures: int) -> None:
    verdict = decide(a_ringing(failure_count=failures), DOWN, NOON)

    assert verdict == (
        DeliveryOutcome.FAILED, AlarmStatus.ACTIVE, NOON, NOON + backoff(failures), failures + 1, "HTTP 503", None,
    )  # fmt: skip


def test_the_sixth_failure_of_a_once_alarm_is_final() -> None:
    verdict = decide(a_ringing(failure_count=5), DOWN, NOON)

    assert verdict[:6] == (DeliveryOutcome.GIVEN_UP, AlarmStatus.FAILED, NOON, None, 6, "HTTP 503")


def test_the_sixth_failure_of_a_cron_alarm_skips_and_advances() -> None:
    verdict = decide(a_ringing(cron="0 * * * *", failure_count=5), DOWN, NOON + 16 * MINUTE)

    assert verdict[:6] == (
        DeliveryOutcome.GIVEN_UP, AlarmStatus.ACTIVE, NOON + 60 * MINUTE, NOON + 60 * MINUTE, 0, "HTTP 503",
    )  # fmt: skip
    assert verdict.note == "skipped after its last retry"


def test_without_retries_a_cron_alarm_skips_at_once_and_says_why() -> None:
    verdict = decide(a_ringing(cron="0 * * * *", max_failures=0), DOWN, NOON)

    assert verdict[:5] == (
        DeliveryOutcome.GIVEN_UP, AlarmStatus.ACTIVE, NOON + 60 * MINUTE, NOON + 60 * MINUTE, 0,
    )  # fmt: skip
    assert verdict.note == "skipped: max_failures allows no retries"


def test_what_passed_during_the_last_try_is_skipped_with_it() -> None:
    verdict = decide(a_ringing(cron="* * * * *", failure_count=5), DOWN, NOON + 61 * SECOND)

    assert (verdict.occurrence, verdict.next_fire_at) == (NOON + 2 * MINUTE, NOON + 2 * MINUTE)
    assert verdict.note == f"skipped after its last retry; coalesced 1 occurrence ({iso(NOON + MINUTE)})"


@pytest.mark.parametrize("cron", ["* * * * *", "@every 1m"])
def test_a_retry_climbs_the_ladder_and_stands_for_the_newest_occurrence_by_then(cron: str) -> None:
    verdict = decide(a_ringing(cron=cron, failure_count=3), DOWN, NOON + 30 * SECOND)

    newest, at = NOON + 4 * MINUTE, NOON + 4.5 * MINUTE
    assert verdict[:6] == (DeliveryOutcome.FAILED, AlarmStatus.ACTIVE, newest, at, 4, "HTTP 503")
    assert verdict.note == f"coalesced 4 occurrences ({iso(NOON)} to {iso(NOON + 3 * MINUTE)}) into {iso(newest)}"


def test_a_retry_at_the_very_instant_of_the_next_occurrence_is_for_that() -> None:
    verdict = decide(a_ringing(cron="* * * * *"), DOWN, NOON + 30 * SECOND)

    assert (verdict.occurrence, verdict.next_fire_at) == (NOON + MINUTE, NOON + MINUTE)
    assert verdict.note == f"coalesced 1 occurrence ({iso(NOON)}) into {iso(NOON + MINUTE)}"


def test_years_of_occurrences_are_counted_not_walked_through() -> None:
    verdict = decide(a_ringing(cron="* * * * *", failure_count=1), DOWN, NOON + timedelta(days=3650))

    assert verdict.occurrence == NOON + timedelta(days=3650) + MINUTE
    assert verdict.note is not None
    assert verdict.note.startswith("coalesced 5256001 occurrences (")


def test_a_retry_is_owed_even_if_the_zone_is_gone() -> None:
    verdict = decide(a_ringing(cron="* * * * *", tz="Mars/Olympus"), DOWN, NOON)

    assert verdict[:5] == (DeliveryOutcome.FAILED, AlarmStatus.ACTIVE, NOON, NOON + 30 * SECOND, 1)


def test_a_retry_before_the_next_occurrence_stays_a_retry() -> None:
    verdict = decide(a_ringing(cron="* * * * *"), DOWN, NOON + SECOND)

    assert (verdict.occurrence, verdict.next_fire_at, verdict.note) == (NOON, NOON + 31 * SECOND, None)


@pytest.mark.parametrize("cron", [None, "* * * * *"])
def test_gone_is_the_end_of_it(cron: str | None) -> None:
    verdict = decide(a_ringing(cron=cron), DeliveryResult("HTTP 410 Gone", is_gone=True), NOON)

    assert verdict.status is AlarmStatus.FAILED
    assert verdict.error == "HTTP 410 Gone: the receiver wants no more wakes"


@pytest.mark.parametrize(
    ("asked", "waits"), [(5 * SECOND, 30 * SECOND), (5 * MINUTE, 5 * MINUTE), (timedelta(days=1), 15 * MINUTE)]
)
def test_retry_after_is_honoured_and_capped(asked: timedelta, waits: timedelta) -> None:
    verdict = decide(a_ringing(), DeliveryResult("HTTP 429", retry_after=asked), NOON)

    assert verdict.next_fire_at == NOON + waits


@pytest.mark.parametrize("failures", range(9))
def test_spreading_makes_a_wait_shorter_and_never_longer_than_the_cap(failures: int) -> None:
    claim = a_ringing(failure_count=failures, max_failures=50)

    assert decide(claim, DOWN, NOON, spread=0.8).next_fire_at == NOON + backoff(failures) * 0.8
    longest = decide(claim, DOWN, NOON, spread=1.2).next_fire_at
    assert longest is not None
    assert longest <= NOON + 15 * MINUTE


def test_every_attempt_for_an_occurrence_has_one_id() -> None:
    first, again = a_ringing(), a_ringing(attempt=2, lease_id=9, failure_count=1)
    others = [a_ringing(revision=2), a_ringing(occurrence=NOON + SECOND), a_ringing(id=UUID(int=2))]

    assert first.wake_id == again.wake_id
    assert len({first.wake_id, *(each.wake_id for each in others)}) == 4
    assert "." not in first.wake_id


def test_the_id_of_a_wake_is_a_uuid5() -> None:
    assert a_ringing().wake_id == str(uuid5(UUID(int=1), f"1 {NOON.isoformat()}"))


def test_every_goes_on_from_its_occurrence_without_drift() -> None:
    verdict = decide(a_ringing(cron="@every 10m"), OK, NOON + 7 * SECOND)

    assert verdict.next_fire_at == NOON + 10 * MINUTE
