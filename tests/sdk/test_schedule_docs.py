"""Do the pages about schedules say what is true?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pulse import Context, Pulse
from pulse.model.schedules import NewSchedule, ScheduleStatus
from pulse.sdk.schedule_options import OPTION_NAMES
from pulse.sdk.schedules import Schedules
from pulse.settings import Settings
from tests.sdk.apps_here import closing

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "schedules.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "schedules.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("settings", ["direct", "server"], indirect=True)
def test_the_examples_of_the_how_to_run(settings: Settings) -> None:
    names: dict[str, Any] = {"__name__": "shop.tasks"}
    first, *others = blocks(HOW_TO)
    exec(first, names)
    app: Pulse = names["app"]
    app.settings = settings

    with closing(app):
        for block in others:
            exec(block, names)
        there = {schedule.name for schedule in app.schedules.list().schedules}
        report = app.schedules.sync("shop")
        job = names["job"].job()

    assert len(others) >= 6
    assert there == {"reminder:42", "payouts"}
    assert report.created == [
        *("shop.report", "shop.poll_bank", "report.rome", "report.tokyo", "reindex", "report.milan"),
    ]
    assert job.task == "shop.report"
    assert len(names["planned"].occurrences) == len(names["made"].job_ids) == 7


@pytest.mark.parametrize("settings", ["direct", "server"], indirect=True)
def test_the_example_of_the_readme_runs(settings: Settings) -> None:
    [block] = [block for block in blocks((ROOT / "README.md").read_text()) if "app.schedules" in block]
    with closing(Pulse(settings=settings)) as app:
        exec(block, {"__name__": "tasks", "app": app, "Context": Context})

        assert app.schedules.sync("shop").created == ["tasks.report"]
        assert [schedule.name for schedule in app.schedules.list().schedules] == ["digest:42", "tasks.report"]


def test_every_option_is_explained_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ?(\w*) \| ", REFERENCE, re.MULTILINE)
    defaults = dict(zip(NewSchedule.__struct_fields__[2:], NewSchedule.__struct_defaults__, strict=True))
    timed = {"cron", "every", "run_at", "delay"}
    wanted = [(name, "" if name in timed else defaults["tz" if name == "tz" else name]) for name in OPTION_NAMES]

    assert rows == [(name, "none" if default is None else str(default)) for name, default in wanted]


def test_every_method_is_explained_and_has_a_twin() -> None:
    listed = re.findall(r"^\| `(\w+)\(", REFERENCE, re.MULTILINE)
    public = {name for name in vars(Schedules) if not name.startswith("_")} - {"declare", "declare_for", "declared"}
    twins = {"async_" if name == "sync" else f"a{name}" for name in listed}

    assert public == {*listed, *twins}
    assert len(public) == 2 * len(listed)


def test_every_status_is_explained() -> None:
    assert re.findall(r"^\| `([A-Z]+)` \|", REFERENCE, re.MULTILINE) == [status.value for status in ScheduleStatus]
