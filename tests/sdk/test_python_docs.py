"""Does the page about Python name all there is, and do its examples run?"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing, nullcontext
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any, get_overloads
from uuid import uuid4

import asyncpg
import pytest

import pulse
import pulse.testing
from pulse import Alarm, Context, Delivery, Fire, Job, JobHandle, JobStatus, Pulse, Retry, Schedule, Task
from pulse.model import errors
from pulse.sdk.alarms import Alarms
from pulse.sdk.schedules import Schedules
from pulse.settings import Settings
from pulse.testing import PulseFixture, Summary
from pulse.testing.database_session import DatabaseSession
from tests.sdk.apps_here import working
from tests.sdk.pages import DOCS, a_module, blocks, run, section
from tests.waiting import until

PAGE = (DOCS / "reference" / "python.md").read_text()


def first_cells(text: str) -> str:
    """What a page's tables are about, which is what stands first in each row."""
    return " ".join(re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE))


def is_named(name: str, text: str) -> bool:
    return re.search(rf"`(?:raise )?(?:ctx\.)?{re.escape(name)}[`(]", text) is not None


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def missing(names: Iterable[str], text: str) -> set[str]:
    return {name for name in names if not is_named(name, text)}


def options_of(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """The options that a function takes by name, with their defaults as the page writes them."""
    parameters = inspect.signature(function).parameters.values()
    named = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return [(each.name, written(each.default)) for each in named]


def written(default: object) -> str:
    return "(Exception,)" if default == (Exception,) else "none" if default is None else str(default)


def rows(heading: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \| ", section(PAGE, heading), re.MULTILINE)


# --- nothing is left out


def test_every_public_name_is_in_the_first_table() -> None:
    listed = re.findall(r"`(\w+)`", first_cells(PAGE.split("\n## ", 1)[0]))

    assert sorted(listed) == sorted([*pulse.__all__, *pulse.testing.__all__])


def test_places_on_the_page_are_there() -> None:
    places = {
        re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in re.findall(r"^## (.+)", PAGE, re.MULTILINE)
    }

    assert places >= set(re.findall(r"\]\(#([\w-]+)\)", PAGE))


def test_every_option_of_a_task_is_explained_with_its_default() -> None:
    *_, with_options = get_overloads(Pulse.task)

    assert rows("@app.task") == options_of(with_options)


def test_every_option_of_using_is_explained_with_its_default() -> None:
    assert rows("using") == options_of(Task.using)


def test_every_field_of_a_retry_is_explained_with_its_default() -> None:
    assert rows("Retry") == [(each.name, written(each.default)) for each in fields(Retry)]


@pytest.mark.parametrize(
    ("kind", "heading", "ours"),
    [
        (Pulse, "The app", {"link_thread"}),
        (Task, "Task", set()),
        (Context, "Context", {"on_progress"}),
        (JobHandle, "JobHandle", {"id"}),
        (PulseFixture, "Testing", set()),
    ],
)
def test_everything_that_can_be_asked_is_explained(kind: type, heading: str, ours: set[str]) -> None:
    """But for what is the worker's business and not a user's."""
    names = public(kind) - ours
    names -= {f"a{name}" for name in names} if kind is JobHandle else set()

    assert not missing(names, first_cells(section(PAGE, heading)))


@pytest.mark.parametrize(
    ("kind", "heading"),
    [(Pulse, "The app"), (JobHandle, "JobHandle"), (Context, "Context"), (PulseFixture, "Testing")],
)
def test_what_is_called_has_the_parameters_that_the_page_says(kind: type, heading: str) -> None:
    said = re.findall(r"`(\w+\([^)…]*\))`", first_cells(section(PAGE, heading)))

    assert said == [spelled(kind, each.partition("(")[0]) for each in said]


def spelled(kind: type, method: str) -> str:
    """A method as the page writes it: no types, and the quotes of everybody."""
    [_, *parameters] = inspect.signature(getattr(kind, method)).parameters.values()
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return f"{method}{inspect.Signature(bare)}".replace("''", '""')


@pytest.mark.parametrize(("kind", "heading"), [(Schedules, "Schedules"), (Alarms, "Alarms")])
def test_every_method_of_schedules_and_alarms_is_named(kind: type, heading: str) -> None:
    found = public(kind) - {"declare_for", "async_"}

    assert not missing({name for name in found if name[0] != "a" or name[1:] not in found}, section(PAGE, heading))


@pytest.mark.parametrize(
    ("kind", "heading"), [(Job, "Job"), (Alarm, "Alarms"), (Delivery, "Alarms"), (Fire, "Schedules")]
)
def test_every_field_is_named(kind: Any, heading: str) -> None:
    assert not missing(kind.__struct_fields__, section(PAGE, heading))


def test_every_field_of_a_schedule_that_is_no_option_is_named() -> None:
    options = re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "schedules.md").read_text(), re.MULTILINE)
    kept = {"buffered_for", "created_at", "updated_at"}

    assert not missing({*Schedule.__struct_fields__} - {*options} - kept, section(PAGE, "Schedules"))


def test_every_word_of_a_kind_is_named() -> None:
    for kind in (pulse.ScheduleStatus, pulse.CatchUp, pulse.Overlap):
        assert not missing([each.name for each in kind], section(PAGE, "Schedules"))
    for other in (pulse.AlarmStatus, pulse.DeliveryOutcome):
        assert not missing([each.name for each in other], section(PAGE, "Alarms"))
    assert not missing([each.name for each in JobStatus], section(PAGE, "Job"))
    assert not missing([each.name for each in fields(Summary)], section(PAGE, "Testing"))


def test_the_tree_of_errors_is_the_code_s() -> None:
    [drawn] = re.findall(r"```text\n(.*?)```", section(PAGE, "Errors"), re.DOTALL)
    parents: dict[int, str] = {}
    for line in drawn.splitlines():
        [name] = re.findall(r"^[│├└─ ]*(\w+)", line)
        depth = line.index(name) // 4
        parents[depth] = name
        kind = getattr(errors, name)
        assert kind is errors.PulseError or kind.__bases__[0].__name__ == parents[depth - 1]

    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.PulseError)]
    assert len(drawn.splitlines()) == len(kinds)


# --- what is there runs


@pytest.fixture
async def shop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """The page as a module, every example of it run in order, with a table of orders."""
    names = a_module("shop.tasks", monkeypatch)
    monkeypatch.setenv("DATABASE_URL", str(settings.database_url))
    first, *others = [block.replace("https://shop.example/", "http://127.0.0.1:9/") for block in blocks(PAGE)]
    await run(first, names)
    app: Pulse = names["app"]
    app.settings = settings
    for block in others:
        async with working(app) if "result(" in block else nullcontext():
            await run(block, names)
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("create table orders (id uuid, email text, paid bool)")
    try:
        yield names
    finally:
        await conn.execute("drop table orders")
        await conn.close()
        app.close()


@pytest.mark.parametrize("settings", ["direct"], indirect=True)
async def test_the_examples_run(
    shop: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    order_id = uuid4()
    async with working(shop["app"]):
        await asyncio.to_thread(shop["place_order"], order_id, "ada@example.com")
        charged = await shop["charge"].aenqueue(order_id)
        assert await charged.aresult(10) is None
        withdrawn = await shop["publish"].aenqueue("withdrawn")
        with pytest.raises(errors.JobFailed, match="the author has withdrawn it"):
            await withdrawn.aresult(10)
        for state, status in (("busy", JobStatus.RETRYING), ("embargoed", JobStatus.SCHEDULED)):
            handle = await shop["publish"].aenqueue(state)
            await until(partial(_is, handle, status))
    said = [record.getMessage() for record in caplog.records if record.name == "shop"]

    assert said[0] == "connected"
    assert said[-1] == "disconnected"
    assert any(line.startswith("shop.tasks.charge took") for line in said)
    assert "shop.tasks.publish failed for good: the author has withdrawn it" in said
    assert sum(line.startswith("shop.tasks.send_receipt took") for line in said) == 2
    assert shop["direct"].settings.lease == timedelta(minutes=1)
    assert shop["served"].settings.server_url == "grpc://a:8701,b:8701"
    with closing(DatabaseSession(settings)) as stage:
        await asyncio.to_thread(stage.prepare, monkeypatch)
        await asyncio.to_thread(shop["test_a_sum"], PulseFixture(stage))


async def _is(handle: JobHandle[Any], status: JobStatus) -> bool:
    return await handle.astatus() is status
