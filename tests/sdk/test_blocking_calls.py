"""Is whoever blocks an event loop told so, at the right line, and nobody else?"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pulse import BlockingCallWarning, JobHandle, Pulse, Task
from pulse.model.jobs import NewJob
from pulse.sdk.alarms import Alarms
from pulse.sdk.schedules import Schedules
from pulse.settings import Settings
from pulse.testing import PulseFixture
from pulse.testing.database_session import DatabaseSession
from tests.sdk.apps_here import closing, working

WARNING = "greet.enqueue() blocks the event loop of this coroutine; await greet.aenqueue() instead"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = {
    Task: "greet",
    Pulse: "app",
    JobHandle: "handle",
    Alarms: "app.alarms",
    Schedules: "app.schedules",
}
# Each method that blocks, as a caller would call it. Those that give many are iterated over.
CALLS: dict[str, Callable[[Any, Pulse, JobHandle[Any]], object]] = {
    "greet.enqueue": lambda greet, app, handle: greet.enqueue("Ada"),
    "app.enqueue_many": lambda greet, app, handle: app.enqueue_many([greet.call("Ada")]),
    "app.submit": lambda greet, app, handle: app.submit([NewJob(task="greet")]),
    "handle.job": lambda greet, app, handle: handle.job(),
    "handle.status": lambda greet, app, handle: handle.status(),
    "handle.progress": lambda greet, app, handle: handle.progress(),
    "handle.cancel": lambda greet, app, handle: handle.cancel(reason="no"),
    "handle.explain": lambda greet, app, handle: handle.explain(),
    "handle.result": lambda greet, app, handle: handle.result(10),
    "app.alarms.set": lambda greet, app, handle: app.alarms.set("a", delay="1h", url="https://a.example/"),
    "app.alarms.cancel": lambda greet, app, handle: app.alarms.cancel("a"),
    "app.alarms.pause": lambda greet, app, handle: app.alarms.pause("a"),
    "app.alarms.resume": lambda greet, app, handle: app.alarms.resume("a"),
    "app.alarms.fire": lambda greet, app, handle: app.alarms.fire("a"),
    "app.alarms.get": lambda greet, app, handle: app.alarms.get("a"),
    "app.alarms.list": lambda greet, app, handle: list(app.alarms.list()),
    "app.alarms.deliveries": lambda greet, app, handle: list(app.alarms.deliveries("a")),
    "app.schedules.create": lambda greet, app, handle: app.schedules.create("s", "greet", every="1h"),
    "app.schedules.edit": lambda greet, app, handle: app.schedules.edit("s", every="2h"),
    "app.schedules.pause": lambda greet, app, handle: app.schedules.pause("s"),
    "app.schedules.resume": lambda greet, app, handle: app.schedules.resume("s"),
    "app.schedules.delete": lambda greet, app, handle: app.schedules.delete("s"),
    "app.schedules.get": lambda greet, app, handle: app.schedules.get("s"),
    "app.schedules.list": lambda greet, app, handle: app.schedules.list(),
    "app.schedules.preview": lambda greet, app, handle: app.schedules.preview("s"),
    "app.schedules.fires": lambda greet, app, handle: app.schedules.fires("s"),
    "app.schedules.trigger": lambda greet, app, handle: app.schedules.trigger("s"),
    "app.schedules.backfill": lambda greet, app, handle: app.schedules.backfill("s", start=NOON, end=NOON),
    "app.schedules.sync": lambda greet, app, handle: app.schedules.sync("shop"),
}


def declare(app: Pulse) -> Any:
    @app.task
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    return greet


def twin(kind: type, method: str) -> str | None:
    return next((name for name in (f"a{method}", f"a{method}_") if hasattr(kind, name)), None)


def test_every_method_with_a_twin_is_tried_here() -> None:
    found = {f"{called}.{method}" for kind, called in KINDS.items() for method in vars(kind) if twin(kind, method)}

    assert found == CALLS.keys()


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_in_a_coroutine_is_warned_of_before_anything_is_done(call: str) -> None:
    app = Pulse("postgresql://nobody@127.0.0.1:9/nowhere")
    called, _, method = call.rpartition(".")
    kind = next(kind for kind, name in KINDS.items() if name == called)
    instead = f"{called}.{twin(kind, method)}()"
    is_awaited = inspect.iscoroutinefunction(getattr(kind, str(twin(kind, method))))

    with pytest.raises(BlockingCallWarning) as caught:  # our tests turn warnings into errors
        CALLS[call](declare(app), app, app.handle(uuid4()))

    assert str(caught.value) == (
        f"{call}() blocks the event loop of this coroutine; "
        f"{f'await {instead}' if is_awaited else f'use async for with {instead}'} instead"
    )


# --- where it is said


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


async def test_the_place_is_the_line_of_the_caller(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        greet = declare(app)
        lines = [line() + 1]
        handle = greet.using(priority=5).enqueue("Ada")
        lines.append(line() + 1)
        app.enqueue_many([greet.call("Ada")])
        lines.append(line() + 1)
        handle.status()
        lines.append(line() + 1)
        for _ in app.alarms.list():
            pass
        lines.append(line() + 1)
        app.schedules.create("s", greet, payload={"name": "Ada"}, every="1h")
        lines.append(line() + 1)
        app.alarms.set("a", delay="1h", url="http://127.0.0.1:9/")

    assert [(each.filename, each.lineno) for each in caught] == [(__file__, each) for each in lines]


async def test_in_a_function_that_a_coroutine_calls_it_is_the_line_of_the_function(settings: Settings) -> None:
    def place_order() -> None:
        greet.enqueue("Ada")

    with closing(Pulse(settings=settings)) as app:
        greet = declare(app)
        with pytest.warns(BlockingCallWarning) as caught:
            place_order()

    assert [each.lineno for each in caught] == [place_order.__code__.co_firstlineno + 1]


async def test_a_line_is_warned_of_once_however_often_it_runs(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")  # as Python has it for all of its kind
        greet = declare(app)
        for _ in range(3):
            greet.enqueue("Ada")
        greet.enqueue("Ada")

    assert [str(each.message) for each in caught] == [WARNING] * 2


@pytest.mark.parametrize("settings", ["direct"], indirect=True)
def test_python_shows_it_by_itself(settings: Settings, tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(
        textwrap.dedent(f"""
        import asyncio
        from pulse import Pulse
        app = Pulse({str(settings.database_url)!r})
        @app.task
        def greet(name): ...
        async def main():
            for _ in range(3):
                greet.enqueue("Ada")
        asyncio.run(main())
        """)
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr.splitlines() == [
        f"{script}:9: BlockingCallWarning: {WARNING}",
        '  greet.enqueue("Ada")',
    ]


# --- where it is not said: our tests turn warnings into errors


def test_code_without_a_loop_is_not_warned(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        declare(app).enqueue("Ada").status()


async def test_nor_is_a_thread_beside_one(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        await asyncio.to_thread(lambda: declare(app).enqueue("Ada").status())


async def test_nor_are_coroutines_that_await(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        greet = declare(app)
        for _ in range(3):  # through the link_thread, and on a link of this loop
            handle = await greet.aenqueue("Ada")
            await asyncio.sleep(0.01)
        await handle.acancel()
        assert [alarm async for alarm in app.alarms.alist()] == []


async def test_nor_are_sync_handlers(settings: Settings) -> None:
    app = Pulse(settings=settings)
    greet = declare(app)

    @app.task
    def place_order() -> str:
        return str(greet.enqueue("Ada").result(10))

    async with working(app):
        handle = await place_order.aenqueue()
        assert await handle.aresult(10) == "Hello, Ada!"


async def test_an_async_handler_is_warned_at_its_own_line(settings: Settings) -> None:
    app = Pulse(settings=settings)
    greet = declare(app)

    @app.task
    async def place_order() -> None:
        greet.enqueue("Ada")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with working(app):
            handle = await place_order.aenqueue()
            await handle.aresult(10)

    assert [each.lineno for each in caught] == [place_order.function.__code__.co_firstlineno + 2]


async def test_a_module_that_is_imported_on_a_loop_is_not_warned(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blocking_shop.py").write_text(
        textwrap.dedent("""
        from pulse import Pulse
        app = Pulse()
        @app.task
        def greet(name): ...
        def seed():
            return greet.enqueue("Ada")
        handle = seed()
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Pulse, "settings", settings)

    import blocking_shop  # type: ignore[import-not-found]

    assert blocking_shop.handle.id
    blocking_shop.app.close()
    monkeypatch.delitem(sys.modules, "blocking_shop")


async def test_a_notebook_is_not_warned(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))

    with closing(Pulse(settings=settings)) as app:
        declare(app).enqueue("Ada")


async def test_with_a_connection_of_ones_own_it_is_ones_own_business(settings: Settings) -> None:
    """Where it is a sync one, the twin would block as well; under SQLAlchemy's run_sync neither does."""
    with closing(Pulse(settings=settings)) as app, psycopg.connect(str(settings.database_url)) as conn:
        declare(app).using(conn=conn).enqueue("Ada")


async def test_what_tests_ask_is_not_warned_of(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DatabaseSession(settings)
    stage.prepare(monkeypatch)
    pulse = PulseFixture(stage)
    greet = declare(Pulse())
    try:
        await greet.aenqueue("Ada")
        pulse.assert_enqueued(greet, "Ada")
        pulse.travel("1m")
        assert pulse.drain().completed == 1
    finally:
        stage.shift_time(None)
        stage.close()
