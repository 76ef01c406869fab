"""When is a destination let alone, for how long, and how is it tried again?"""

from __future__ import annotations

import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pulse.delivery.breaker import FIRST_PAUSE, LONGEST_PAUSE, Breakers

HERE = "https://example.com:443"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breakers(clock: Clock) -> Breakers:
    return Breakers(16, clock=clock)


def results(breakers: Breakers, text: str, destination: str = HERE) -> None:
    """One delivery after the other: x is a failure, anything else a success."""
    for result in text:
        breakers.started(destination)
        breakers.ended(destination, result != "x", "HTTP 503 Service Unavailable")


def test_a_destination_has_so_many_slots(breakers: Breakers) -> None:
    assert breakers.may_start(HERE) == 16
    for _ in range(16):
        breakers.started(HERE)

    assert breakers.may_start(HERE) == 0
    assert breakers.may_start("https://other.test:443") == 16
    breakers.ended(HERE, True)
    assert breakers.may_start(HERE) == 1


def test_ten_failures_in_a_row_open_it(breakers: Breakers) -> None:
    results(breakers, "x" * 9)
    assert (breakers.may_start(HERE), breakers.open_until(HERE), breakers.reason(HERE)) == (16, None, None)

    results(breakers, "x")

    assert breakers.may_start(HERE) == 0
    assert breakers.open_until(HERE) == FIRST_PAUSE
    assert breakers.reason(HERE) == "10 failures in a row; the last error: HTTP 503 Service Unavailable"


def test_a_success_in_between_begins_the_row_anew(breakers: Breakers) -> None:
    results(breakers, "." * 10 + "x" * 9 + "." + "x" * 9)

    assert breakers.may_start(HERE) == 16


def test_seven_of_ten_open_it(breakers: Breakers) -> None:
    results(breakers, "...xxxxxx")
    assert breakers.may_start(HERE) == 16

    results(breakers, "x")

    assert breakers.may_start(HERE) == 0
    assert breakers.reason(HERE) == "7 of 10 failed within 5 minutes; the last error: HTTP 503 Service Unavailable"


def test_fewer_do_not(breakers: Breakers) -> None:
    results(breakers, "xx.x.x." * 20)  # four of seven

    assert breakers.may_start(HERE) == 16


def test_what_is_older_than_five_minutes_does_not_count(breakers: Breakers, clock: Clock) -> None:
    results(breakers, "." * 20)
    clock.now += 301

    results(breakers, "xxxx.xxxx")
    assert breakers.may_start(HERE) == 16
    results(breakers, "x")

    assert breakers.reason(HERE) == "9 of 10 failed within 5 minutes; the last error: HTTP 503 Service Unavailable"


def test_old_failures_are_forgotten_as_well(breakers: Breakers, clock: Clock) -> None:
    results(breakers, "xxxxxx.")
    clock.now += 301
    results(breakers, "..xxx.x")

    assert breakers.may_start(HERE) == 16


def test_after_a_while_one_may_try(breakers: Breakers, clock: Clock) -> None:
    results(breakers, "x" * 10)
    clock.now += 29.9
    assert breakers.may_start(HERE) == 0
    assert breakers.open_until(HERE) == pytest.approx(0.1)

    clock.now += 0.1
    assert (breakers.may_start(HERE), breakers.open_until(HERE)) == (1, 0)
    breakers.started(HERE)
    assert breakers.may_start(HERE) == 0


def test_a_try_that_succeeds_closes_it(breakers: Breakers, clock: Clock) -> None:
    results(breakers, "x" * 10)
    clock.now += 30
    results(breakers, ".")

    assert (breakers.may_start(HERE), breakers.open_until(HERE), breakers.reason(HERE)) == (16, None, None)
    results(breakers, "x" * 9)
    assert breakers.may_start(HERE) == 16
    results(breakers, "x")
    assert breakers.open_until(HERE) == FIRST_PAUSE  # it begins with the short while again


def test_each_try_that_fails_doubles_the_while(breakers: Breakers, clock: Clock) -> None:
    results(breakers, "x" * 10)
    whiles = []
    for _ in range(7):
        remaining = breakers.open_until(HERE)
        assert remaining is not None
        whiles.append(remaining)
        clock.now += remaining
        results(breakers, "x")

    assert whiles == [30, 60, 120, 240, 480, 900, 900]
    assert breakers.reason(HERE) == "another try failed; the last error: HTTP 503 Service Unavailable"


def test_what_was_under_way_when_it_opened_has_no_say(breakers: Breakers) -> None:
    for _ in range(16):
        breakers.started(HERE)
    for _ in range(10):
        breakers.ended(HERE, False, "no answer")
    assert breakers.open_until(HERE) == FIRST_PAUSE

    for _ in range(5):
        breakers.ended(HERE, False, "no answer")
    breakers.ended(HERE, True)

    assert (breakers.may_start(HERE), breakers.open_until(HERE)) == (0, FIRST_PAUSE)


def test_nobody_tries_while_something_is_under_way(breakers: Breakers, clock: Clock) -> None:
    breakers.started(HERE)
    results(breakers, "x" * 10)
    clock.now += 30

    assert breakers.may_start(HERE) == 0
    breakers.ended(HERE, True)
    assert breakers.may_start(HERE) == 16


def test_asking_makes_nothing_known(breakers: Breakers) -> None:
    breakers.may_start(HERE)
    breakers.open_until(HERE)
    breakers.reason(HERE)

    assert len(breakers) == 0


def test_the_longest_idle_are_forgotten(clock: Clock) -> None:
    breakers = Breakers(4, clock=clock, max_destinations=100)
    breakers.started("busy")
    for number in range(1_000):
        results(breakers, ".", f"d{number}")

    assert len(breakers) <= 101
    assert breakers.may_start("busy") == 3
    breakers.ended("busy", True)


def test_an_end_without_a_beginning_does_no_harm(breakers: Breakers) -> None:
    breakers.ended(HERE, True)

    assert breakers.may_start(HERE) == 16


def test_a_call_takes_as_long_with_many_destinations_as_with_few() -> None:
    def seconds(destinations: int) -> float:
        breakers = Breakers(16)
        names = [f"https://host-{number}.test:443" for number in range(destinations)]
        for name in names:
            results(breakers, ".", name)
        begun = time.perf_counter()
        for number in range(20_000):
            results(breakers, ".", names[number % destinations])
        return time.perf_counter() - begun

    assert min(seconds(9_000) for _ in range(3)) < 8 * min(seconds(10) for _ in range(3))


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, in whatever order, the promises hold."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breakers = Breakers(4, clock=self.clock)
        self.in_flight = 0

    @precondition(lambda self: self.breakers.may_start(HERE) > 0)
    @rule()
    def start(self) -> None:
        self.breakers.started(HERE)
        self.in_flight += 1

    @precondition(lambda self: self.in_flight > 0)
    @rule(ok=st.booleans())
    def end(self, ok: bool) -> None:
        remaining = self.breakers.open_until(HERE)
        self.breakers.ended(HERE, ok, "no")
        self.in_flight -= 1
        if remaining == 0:  # it was half open
            assert (self.breakers.open_until(HERE) is None) == ok
        elif remaining is not None:
            assert self.breakers.open_until(HERE) == remaining
        elif ok:
            assert self.breakers.open_until(HERE) is None

    @rule(seconds=st.sampled_from([0.5, 10, 30, 60, 301, 1000]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def fail_for_good(self) -> None:
        """Ten failures open it from wherever it stands, unless something under way is still to be heard."""
        for _ in range(10):
            if self.breakers.may_start(HERE):
                self.start()
                self.breakers.ended(HERE, False, "no")
                self.in_flight -= 1
        assert self.breakers.open_until(HERE) is not None or self.breakers.may_start(HERE) == 0

    @invariant()
    def slots_are_kept(self) -> None:
        may = self.breakers.may_start(HERE)
        remaining = self.breakers.open_until(HERE)
        assert may >= 0
        assert may + self.in_flight <= 4 or may == 0
        if remaining is None:
            assert may == 4 - self.in_flight
        elif remaining > 0:
            assert may == 0
            assert remaining <= LONGEST_PAUSE
            assert self.breakers.reason(HERE)
        else:
            assert may == (0 if self.in_flight else 1)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
