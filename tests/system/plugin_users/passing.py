"""Tests of the shop that pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest.mock import ANY
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.orm import Session

from pulse import JobStatus, Pulse, errors
from pulse.testing import DrainFailed, PulseFixture, Summary
from tests.system.plugin_users import shop

ORDER = UUID(int=7)
HOME = shop.Address("Main Street 1", "Springfield")


# --- looking


def test_nothing_is_left_from_other_tests(pulse: PulseFixture) -> None:
    assert pulse.enqueued() == []
    shop.send_receipt.enqueue(1)


def test_nothing_is_left_from_other_tests_again(pulse: PulseFixture) -> None:
    test_nothing_is_left_from_other_tests(pulse)


def test_who_waits_without_a_drain_is_told_of_it(pulse: PulseFixture) -> None:
    with pytest.raises(errors.ResultTimeout, match=r"call pulse\.drain\(\) to run topic") as waited:
        shop.send_receipt.enqueue(42).result(0.1)

    assert "worker" not in str(waited.value).lower()


def test_arguments_match_by_name_however_they_were_given(pulse: PulseFixture) -> None:
    shop.send_receipt.enqueue(42, to="ada")

    pulse.assert_enqueued(shop.send_receipt)
    pulse.assert_enqueued(shop.send_receipt, 42)
    pulse.assert_enqueued(shop.send_receipt, order_id=42)
    pulse.assert_enqueued(shop.send_receipt, to="ada")
    pulse.assert_enqueued(shop.send_receipt, ANY, "ada", copies=1)
    pulse.assert_enqueued("shop.send_receipt", to="ada")
    pulse.refute_enqueued(shop.send_receipt, 43)
    pulse.refute_enqueued(shop.send_receipt, "42")
    pulse.refute_enqueued(shop.send_receipt, to="ada", copies=2)
    pulse.refute_enqueued(shop.ship)


def test_arguments_match_as_what_the_handler_gets(pulse: PulseFixture) -> None:
    shop.ship.enqueue(ORDER, HOME, gift="yes", wrap="red")

    pulse.assert_enqueued(shop.ship, ORDER, HOME)
    pulse.assert_enqueued(shop.ship, order=str(ORDER))
    pulse.assert_enqueued(shop.ship, address={"street": "Main Street 1", "city": "Springfield"}, wrap="red")
    pulse.refute_enqueued(shop.ship, address=shop.Address("Elsewhere", "Springfield"))
    pulse.refute_enqueued(shop.ship, gift="no")
    pulse.refute_enqueued(shop.ship, colour="red")


def test_jobs_are_counted_and_answered(pulse: PulseFixture) -> None:
    shop.app.enqueue_many([shop.send_receipt.call(1), shop.send_receipt.call(2), shop.refuse.call()])

    first, second = pulse.assert_enqueued(shop.send_receipt, times=2)
    [only] = pulse.assert_enqueued(shop.send_receipt, 2, times=1)
    pulse.assert_enqueued(shop.send_receipt, 3, times=0)

    assert second == only
    assert json.loads(first.payload) == {"order_id": 1}
    assert [job.task for job in pulse.enqueued()] == ["shop.send_receipt", "shop.send_receipt", "shop.refuse"]
    assert pulse.enqueued(shop.refuse) == pulse.enqueued("shop.refuse") == [pulse.enqueued()[2]]


# --- running


def test_drain_runs_what_is_ready(pulse: PulseFixture) -> None:
    receipt, parcel = shop.send_receipt.enqueue(42, to="ada"), shop.ship.enqueue(ORDER, HOME)

    summary = pulse.drain()

    assert summary == Summary(runs=2, completed=2)
    assert [job.id for job in summary.jobs] == [receipt.id, parcel.id]
    assert receipt.result(0) == "1 for order 42 to ada"
    assert (parcel.result(0), parcel.progress()) == (f"{ORDER} to Main Street 1", {"at": "Springfield"})
    assert pulse.drain() == Summary()


def test_drain_runs_what_handlers_enqueue(pulse: PulseFixture) -> None:
    shop.place_order.enqueue(7)

    assert pulse.drain() == Summary(runs=3, completed=3)
    pulse.assert_enqueued(shop.send_receipt, 7, copies=2, times=1)


def test_one_worker_does_it_all(pulse: PulseFixture) -> None:
    shop.heard.clear()
    shop.count_down.enqueue(5)

    assert pulse.drain() == Summary(runs=6, completed=6)
    assert shop.heard == ["connected"]


def test_hooks_run_as_in_a_worker(pulse: PulseFixture) -> None:
    shop.heard.clear()
    shop.refuse.enqueue()

    pulse.drain()

    assert shop.heard == ["connected", "dead letter"]


def test_a_failure_is_kept_and_tried_again_in_time(pulse: PulseFixture) -> None:
    handle = shop.charge.enqueue(9.5)

    summary = pulse.drain()
    assert summary == Summary(runs=1, retrying=1)
    assert "the bank does not answer" in summary.failures[0].error
    assert pulse.drain() == Summary()

    pulse.travel("9s")
    assert pulse.drain() == Summary()
    pulse.travel(1)
    assert pulse.drain() == Summary(runs=1, retrying=1)
    pulse.travel(timedelta(seconds=10))
    assert pulse.drain() == Summary(runs=1, completed=1)
    assert handle.result(0) == 3


def test_time_is_the_real_one_again(pulse: PulseFixture) -> None:
    shop.send_receipt.enqueue(1)

    [job] = pulse.enqueued()

    assert abs(job.submitted_at - datetime.now(UTC)) < timedelta(seconds=5)


def test_a_failure_for_good(pulse: PulseFixture) -> None:
    handle = shop.refuse.enqueue()

    assert pulse.drain() == Summary(runs=1, dead_lettered=1)
    with pytest.raises(errors.JobFailed, match="no such order"):
        handle.result(0)


def test_errors_are_raised_if_wanted(pulse: PulseFixture) -> None:
    shop.charge.enqueue(9.5)
    shop.send_receipt.enqueue(1)

    with pytest.raises(DrainFailed, match="a run failed") as raised:
        pulse.drain(raise_errors=True)

    assert "shop.charge(amount=9.5): ConnectionError: attempt 1" in str(raised.value)
    assert "in charge\n    raise ConnectionError" in str(raised.value)
    assert pulse.enqueued(shop.send_receipt)[0].status is JobStatus.COMPLETED


def test_delays_fall_due(pulse: PulseFixture) -> None:
    shop.send_receipt.using(delay="5m").enqueue(1)
    shop.send_receipt.using(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue(2)

    assert pulse.drain() == Summary()
    pulse.travel("5m")
    assert [json.loads(job.payload) for job in pulse.drain().jobs] == [{"order_id": 1}]
    pulse.travel("55m")
    assert [json.loads(job.payload) for job in pulse.drain().jobs] == [{"order_id": 2}]


def test_deadlines_pass(pulse: PulseFixture) -> None:
    shop.send_receipt.using(delay="5m", deadline="10m").enqueue(1)

    pulse.travel("11m")

    assert pulse.drain() == Summary(dead_lettered=1)


def test_snoozed_jobs_come_back(pulse: PulseFixture) -> None:
    shop.wait_for_stock.enqueue()
    assert pulse.drain() == Summary(runs=1, snoozed=1)

    shop.stock.append("lamp")
    pulse.travel("1h")

    assert pulse.drain() == Summary(runs=1, completed=1)
    shop.stock.clear()


def test_schedules_fire_when_time_moves(pulse: PulseFixture) -> None:
    assert pulse.drain() == Summary(), "what is declared is not there before it is synced"
    shop.app.schedules.sync()
    assert pulse.drain() == Summary()

    pulse.travel("25h")

    assert pulse.drain() == Summary(runs=1, completed=1)
    [job] = pulse.assert_enqueued(shop.report, city="Springfield")
    assert job.result == '"Springfield at 09:00"'
    assert pulse.drain() == Summary()


def test_a_schedule_can_be_triggered(pulse: PulseFixture) -> None:
    shop.app.schedules.create("capital", shop.report, payload={"city": "Capital"}, every="1h")

    handle = shop.app.schedules.trigger("capital")

    assert pulse.drain() == Summary(runs=1, completed=1)
    assert handle.result(0).startswith("Capital at ")


def test_what_falls_due_in_a_drain_is_for_the_next(pulse: PulseFixture) -> None:
    shop.app.schedules.create("often", shop.slow, every="1s")
    pulse.travel("1s")

    assert pulse.drain() == Summary(runs=1, completed=1)
    assert pulse.drain() == Summary(runs=1, completed=1)


def test_what_waits_for_the_job_before_it_runs_in_the_same_drain(pulse: PulseFixture) -> None:
    shop.app.schedules.create("hourly", shop.report, every="1h", overlap="buffer_one")
    shop.app.schedules.trigger("hourly")
    pulse.travel("1h")

    assert pulse.drain() == Summary(runs=2, completed=2)
    assert [fire.outcome for fire in shop.app.schedules.fires("hourly").fires] == ["FIRED", "BUFFERED", "FIRED"]


def test_a_cancelled_handler_is_ended(pulse: PulseFixture) -> None:
    shop.think_better_of_it.enqueue()

    assert pulse.drain() == Summary(runs=1, cancelled=1)


def test_tasks_run_in_processes_too(pulse: PulseFixture) -> None:
    handle = shop.crunch.enqueue(12)

    assert pulse.drain(raise_errors=True).completed == 1
    assert handle.result(0) == 144


# --- which apps


def test_two_apps_may_share_a_topic(pulse: PulseFixture) -> None:
    handles = [shop.pick.enqueue("lamp"), shop.ship.enqueue(ORDER, HOME), shop.pick.enqueue("bulb")]

    assert pulse.drain() == Summary(runs=3, completed=3)
    assert handles[2].result(0) == "picked bulb"


def test_an_app_made_in_the_test_is_one_too(pulse: PulseFixture) -> None:
    app = Pulse()
    task = app.task(name="made_here")(lambda: "done")

    handle = task.enqueue()

    assert pulse.drain() == Summary(runs=1, completed=1)
    assert handle.result(0) == "done"


@pytest.mark.parametrize("used", range(4))
def test_of_several_that_know_a_task_it_is_the_one_in_use(pulse: PulseFixture, used: int) -> None:
    apps = [Pulse() for _ in range(4)]
    tasks = [app.task(name="twin")(lambda number=number: number) for number, app in enumerate(apps)]

    handle = tasks[used].enqueue()
    pulse.drain()

    assert handle.result(0) == used


def test_jobs_from_elsewhere_are_seen_and_run(pulse: PulseFixture) -> None:
    with psycopg.connect(pulse.database_url) as conn:
        conn.execute(f'select "{pulse.schema}".enqueue(%s, %s)', ["shop.send_receipt", '{"order_id": 5}'])
        conn.execute(f'select "{pulse.schema}".enqueue(%s)', ["nobody.knows.it"])

    pulse.assert_enqueued(shop.send_receipt, 5)
    assert pulse.drain() == Summary(runs=1, completed=1)
    assert pulse.enqueued("nobody.knows.it")[0].status is JobStatus.PENDING


def test_a_job_commits_with_the_transaction_it_is_enqueued_in(pulse: PulseFixture) -> None:
    with psycopg.connect(pulse.database_url) as conn:
        shop.send_receipt.using(conn=conn).enqueue(1)
        pulse.refute_enqueued(shop.send_receipt)
        conn.commit()
        pulse.assert_enqueued(shop.send_receipt, 1)
        shop.send_receipt.using(conn=conn).enqueue(2)
        conn.rollback()

    pulse.refute_enqueued(shop.send_receipt, 2)


@pytest.fixture(scope="session")
def engine(pulse_database_url: str) -> Iterator[Engine]:
    engine = create_engine(make_url(pulse_database_url).set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


def test_the_applications_tables_can_be_where_the_jobs_are(pulse: PulseFixture, engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        session.execute(text("create table if not exists orders (id int)"))
        session.execute(text("insert into orders values (1)"))
        shop.send_receipt.using(conn=session).enqueue(1)

    pulse.assert_enqueued(shop.send_receipt, 1)


def test_settings_of_an_app_are_kept_but_for_the_database(pulse: PulseFixture) -> None:
    app = Pulse("postgresql://elsewhere/shop", schema="shop_jobs", concurrency=7)

    assert (app.settings.database_url, app.settings.schema) == (pulse.database_url, pulse.schema)
    assert app.settings.concurrency == 7


def test_session_fixtures_can_have_the_address(pulse: PulseFixture, pulse_database_url: str) -> None:
    assert pulse_database_url == pulse.database_url


# --- coroutines


@pytest.mark.asyncio
async def test_asyncio(pulse: PulseFixture) -> None:
    handle = await shop.send_receipt.aenqueue(1)
    pulse.assert_enqueued(shop.send_receipt, 1)

    assert await pulse.adrain() == Summary(runs=1, completed=1)
    assert await handle.aresult(0) == "1 for order 1 to nobody"


@pytest.mark.asyncio
async def test_handlers_share_the_loop_of_the_test(pulse: PulseFixture) -> None:
    app, loops = Pulse(), []

    @app.task(name="which_loop")
    async def which_loop() -> None:
        loops.append(asyncio.get_running_loop())

    await which_loop.aenqueue()
    await pulse.adrain()
    await which_loop.aenqueue()
    pulse.drain()

    assert [loop is asyncio.get_running_loop() for loop in loops] == [True, False]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio(pulse: PulseFixture) -> None:
    await shop.place_order.aenqueue(7)

    assert await pulse.adrain() == Summary(runs=3, completed=3)
    pulse.travel("1d")
    assert pulse.drain() == Summary()


# --- what keeps a drain from its end


def test_a_task_that_enqueues_itself_is_told(pulse: PulseFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.testing.drain.MAX_RUNS", 20)
    shop.again.enqueue()

    with pytest.raises(DrainFailed, match="does a task enqueue itself"):
        pulse.drain()


def test_a_row_that_a_transaction_holds_is_told(pulse: PulseFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.testing.drain.STALL_PATIENCE", 0.2)
    shop.send_receipt.enqueue(1)

    with psycopg.connect(pulse.database_url) as conn:
        conn.execute(f'select from "{pulse.schema}".jobs for update')
        with pytest.raises(DrainFailed, match="does an open transaction lock their rows"):
            pulse.drain()


def test_time_goes_forward(pulse: PulseFixture) -> None:
    with pytest.raises(ValueError, match="travel must go forward in time"):
        pulse.travel(-5)


def test_ids_of_other_tests_are_unknown(pulse: PulseFixture) -> None:
    pulse.refute_enqueued("shop.send_receipt", order_id=str(uuid4()))
