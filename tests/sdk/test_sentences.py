"""Does a newcomer who makes a usual mistake hear what to do, in the words of Python?"""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from pulse import Pulse
from pulse.errors import DatabaseUnreachable, InvalidInput, InvalidOption, InvalidSettings, InvalidTask, PulseError
from pulse.sdk.python_words import WORDS, translate
from pulse.settings import Settings
from tests.sdk.apps_here import closing

SOON = datetime.now(UTC) + timedelta(days=1)


def said_by(call: Any, *args: Any, kind: type[PulseError] = PulseError, **given: Any) -> str:
    with pytest.raises(kind) as raised:
        call(*args, **given)
    return str(raised.value)


# --- alarms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "when? give one of delay, fire_at and cron"),
        ({"fire_at": SOON, "delay": "5m"}, "when? give one of delay, fire_at and cron, not delay and fire_at"),
        ({"delay": 0}, "once alarm requires delay or fire_at: a delay of 0 is none"),
        ({"fire_at": datetime(2030, 1, 1)}, "fire_at "),  # noqa: DTZ001
        (
            {"fire_at": "2030-01-01T09:00:00"},
            "invalid fire_at '2030-01-01T09:00:00' (want RFC3339): it has no time zone",
        ),
        ({"fire_at": SOON, "idempotency_key": ""}, "idempotency_key must have 1 to"),
        ({"fire_at": datetime(2020, 1, 1, tzinfo=UTC)}, "fire_at 2020-01-01T00:00:00+00:00 is not in the future"),
        ({"fire_at": SOON, "headers": "X-Shop: north"}, "headers must be a dict"),
    ],
)
def test_an_alarm_is_refused_in_the_words_it_was_given_in(settings: Settings, options: Any, said: str) -> None:
    with closing(Pulse(settings=settings)) as app:
        message = said_by(app.alarms.set, "tea", url="https://example.com/", **options)

    assert message.startswith(said)
    assert not [word for word in WORDS if word in message]


def test_what_the_caller_wrote_is_left_as_it_is() -> None:
    assert (
        translate("cron_expr 'cron_expr' and \"cron_expr\" are no_cron_expr")
        == "cron 'cron_expr' and \"cron_expr\" are no_cron_expr"
    )


def test_a_job_is_too() -> None:
    app = Pulse()

    @app.task
    def send() -> None: ...

    assert said_by(send.using, unique_key="", kind=InvalidOption).startswith("unique_key must have 1 to")


# --- calls


def test_what_is_no_call_is_told_how_to_make_one() -> None:
    app = Pulse()

    @app.task(name="shop.greet")
    def greet() -> None: ...

    takes = "enqueue_many takes calls of tasks, such as [send.call(1), send.call(2)]"
    handle = app.handle("01998e5c-7a40-7bd2-a3ea-0f2ce83f7000")
    assert said_by(app.enqueue_many, [greet], kind=InvalidInput) == (
        f"{takes}, not the task shop.greet itself: write greet.call(…)"
    )
    assert said_by(app.enqueue_many, [handle]) == f"{takes}, not {handle!r}, which is enqueued already"
    assert said_by(app.enqueue_many, 7) == takes
    assert said_by(app.handle, "nonsense", kind=InvalidInput) == (
        "job_id must be the id of a job, such as 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000, not 'nonsense'"
    )


# --- tasks


def test_what_no_worker_could_find_or_call_is_no_task() -> None:
    app = Pulse()

    class Shop:
        def charge(self, amount: int) -> None: ...

        def __call__(self, amount: int) -> None: ...

    assert said_by(app.task, Shop.charge, kind=InvalidTask) == (
        "Shop.charge is a method, and a worker has no object to call it on: define a function that creates the object"
    )
    assert "is a partial, which has no name: define a function that calls it" in said_by(app.task, partial(print, 1))
    for declare in (app.task, app.task(name="charge")):
        assert "is a Shop object, which has no name: define a function" in said_by(declare, Shop(), kind=InvalidTask)
    assert said_by(app.task, lambda: None, kind=InvalidTask) == (
        'a lambda has no name by which a worker could find it: define a function, or give it a name with name="…"'
    )
    assert app.task(name="double")(lambda n: 2 * n).name == "double"
    assert not said_by(app.task, 7).startswith("Traceback")


# --- settings


def test_a_setting_that_there_is_not_or_is_of_another_kind() -> None:
    assert said_by(Pulse, pool=3, kind=InvalidSettings) == "there is no setting 'pool': did you mean pool_size?"
    assert said_by(Pulse, xyz=3) == "there is no setting 'xyz': docs/reference/settings.md lists all settings"
    many = "pool_size must be a whole number, such as 10, not 'many'"
    assert said_by(lambda: Pulse(pool_size="many").settings, kind=InvalidSettings) == many
    assert said_by(lambda: Pulse(pool_size=[]).settings) == "pool_size must be a whole number, such as 10, not []"
    assert Pulse(grace=5).settings.grace == timedelta(seconds=5)


def test_a_database_that_is_not_there_is_told_without_the_drivers_own_traceback() -> None:
    app = Pulse("postgresql://nobody@127.0.0.1:1/x", patience="100ms")

    @app.task
    def send() -> None: ...

    with closing(app), pytest.raises(DatabaseUnreachable, match="is it running, is the address right") as raised:
        send.enqueue()

    text = "".join(traceback.format_exception(raised.value))
    assert "asyncpg" not in text
    assert text.count("Traceback (most recent call last)") == 1
