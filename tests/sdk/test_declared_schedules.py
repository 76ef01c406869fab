"""What does code that declares schedules say, and what is refused where it stands?"""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulse import Context, Overlap, Pulse
from pulse.errors import InvalidApp, InvalidName, InvalidOption, InvalidSchedule, InvalidTask, PulseError


def test_a_task_may_bring_its_schedule() -> None:
    app = Pulse()

    @app.task(name="shop.report", aliases=["shop.rapport"], topic="reports", cron="0 9 * * 1-5", tz="Europe/Berlin")
    async def report(ctx: Context, copies: int = 1) -> int:
        return copies

    @app.task(name="shop.poll", every="5m")
    def poll() -> None: ...

    @app.task
    def neither() -> None: ...

    first, second = app.schedules.declared
    assert (first.schedule.name, first.aliases) == ("shop.report", ("shop.rapport",))
    assert (first.schedule.cron, first.schedule.tz) == ("0 9 * * 1-5", "Europe/Berlin")
    assert (first.schedule.job.task, first.schedule.job.topic, first.schedule.job.payload) == (
        "shop.report",
        "reports",
        "{}",
    )
    assert (second.schedule.name, second.schedule.every) == ("shop.poll", timedelta(minutes=5))
    assert list(app.tasks) == ["shop.report", "shop.poll", neither.name]


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"cron": "0 9 * * 1-5", "every": "5m"}, InvalidSchedule, "not cron and every"),
        ({"cron": "0 9 * *"}, InvalidSchedule, "0 9"),
        ({"cron": 5}, InvalidOption, "must be text"),
        ({"cron": "@daily", "tz": "Berlin"}, InvalidSchedule, "Europe/Berlin"),
        ({"every": "10ms"}, InvalidOption, "from 1s"),
        ({"every": 60, "tz": 1}, InvalidOption, "must be text"),
        ({"tz": "Europe/Berlin"}, InvalidTask, "give cron or every, too"),
        ({"every": 60, "delay": 5}, InvalidSchedule, "the job of a schedule must have no delay"),
        (
            {"every": 60, "catch_up": "skip"},
            InvalidOption,
            "option of a task must be one of aliases, cron, deadline, delay, every",
        ),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_its_task(
    given: dict[str, Any], error: type[PulseError], says: str
) -> None:
    app = Pulse()

    with pytest.raises(error, match=says):
        app.task(name="x", **given)(lambda: None)

    assert app.tasks == {}
    assert app.schedules.declared == []


def test_a_task_that_needs_arguments_cannot_bring_its_schedule() -> None:
    app = Pulse()

    with pytest.raises(InvalidTask, match=r"'x' needs city and copies, .*app.schedules.declare\(name, task, payload="):

        @app.task(name="x", every="5m")
        def report(ctx: Context, city: str, *others: str, copies: int, **labels: str) -> None: ...

    assert app.tasks == {}


def test_a_task_may_have_several_schedules() -> None:
    app = Pulse()

    @app.task(name="shop.report", every="1d")
    def report(city: str = "Rome") -> None: ...

    app.schedules.declare("oslo", report.using(priority=5), payload={"city": "Oslo"}, every=60, overlap="skip")
    app.schedules.declare("elsewhere", "crm.import", cron="@daily", aliases=["crm"], catch_up="skip")

    report_itself, oslo, elsewhere = app.schedules.declared
    assert report_itself.schedule.name == "shop.report"
    assert (oslo.schedule.job.payload, oslo.schedule.job.priority) == ('{"city":"Oslo"}', 5)
    assert oslo.schedule.overlap is Overlap.SKIP
    assert (elsewhere.schedule.job.task, elsewhere.aliases) == ("crm.import", ("crm",))


@pytest.mark.parametrize(
    ("name", "aliases"), [("shop.report", ()), ("rapport", ()), ("new", ["rapport"]), ("a", "a"), ("a", ["b", "b"])]
)
def test_a_name_is_declared_once(name: str, aliases: Any) -> None:
    app = Pulse()

    @app.task(name="shop.report", aliases=["rapport"], every="1d")
    def report() -> None: ...

    before = app.schedules.declared

    with pytest.raises(InvalidSchedule, match="two schedules are declared as"):
        app.schedules.declare(name, report, aliases=aliases, every=60)

    assert app.schedules.declared == before


def test_a_schedule_may_have_the_name_before_a_task_wants_it() -> None:
    app = Pulse()
    app.schedules.declare("shop.report", "crm.import", every=60)

    with pytest.raises(InvalidSchedule, match=r"two schedules are declared as 'shop\.report'"):
        app.task(name="shop.report", every=60)(lambda: None)
    assert app.tasks == {}
    app.task(name="shop.report")(lambda: None)


def test_an_alias_is_a_name() -> None:
    with pytest.raises(InvalidName, match="alias must have 1 to 200 characters"):
        Pulse().schedules.declare("x", "crm.import", every=60, aliases=[""])


# --- whose they are


def test_an_app_of_nobody_needs_to_be_given_a_name() -> None:
    with pytest.raises(InvalidApp, match=r'sync\("shop"\)'):
        Pulse().schedules.sync()


def test_an_app_has_one_name_whoever_imports_it(tmp_path: Path) -> None:
    (tmp_path / "core.py").write_text("from pulse import Pulse\napp = Pulse()\n")
    (tmp_path / "a_tasks.py").write_text("from core import app\n")
    say = "from pulse.sdk.locate import load_app, name_of; print(name_of(load_app('{}')))"

    said = [
        subprocess.run([sys.executable, "-c", say.format(path)], cwd=tmp_path, capture_output=True, text=True).stdout
        for path in ("core:app", "core.py", "a_tasks:app", "a_tasks.py")
    ]

    assert said == ["core:app\n"] * 4


def test_a_script_and_its_importer_mean_the_same_app(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from pulse import Pulse\nfrom pulse.sdk.locate import name_of\n\napp = Pulse()\nprint(name_of(app))\n"
    )

    said = [
        subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for how in (["tasks.py"], ["-m", "tasks"], ["-c", "import tasks"])
    ]

    assert said == ["tasks:app\n"] * 3
