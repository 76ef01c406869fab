"""Do the pages about alarms say what is true?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pulse import AlarmStatus, Delivery, DeliveryOutcome, Pulse
from pulse.sdk.alarm_options import OPTION_NAMES
from pulse.sdk.alarms import Alarms
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from tests.sdk.apps_here import closing

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "alarms.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "alarms.md").read_text()
SOMEWHERE = ("https://shop.example/", "http://127.0.0.1:9/")  # there is no network to look names up in


def blocks(text: str) -> list[str]:
    return [block.replace(*SOMEWHERE) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


@pytest.mark.parametrize("settings", ["direct", "server"], indirect=True)
def test_the_examples_of_the_how_to_run(settings: Settings) -> None:
    names: dict[str, Any] = {"__name__": "shop.tasks"}
    first, *others = blocks(HOW_TO)
    declared, used = first.split("app = Pulse()\n")
    exec(declared, names)
    app = names["app"] = Pulse(settings=settings)
    with closing(app), psycopg.connect(str(settings.database_url), autocommit=True) as conn:
        conn.execute("create temporary table trials (user_id int)")
        names["connection"] = conn
        for block in (used, *others):
            exec(block, names)
        there = {alarm.name: alarm for alarm in app.alarms.list()}
        once = [alarm for alarm in app.alarms.list() if alarm.name is None]

    assert len(others) >= 6
    assert set(there) == {"trial-ends:42", "unpaid:7", "launch", "standup", None}
    assert len(once) == 1
    assert there["unpaid:7"].status is AlarmStatus.CANCELLED
    assert there["trial-ends:42"].revision == 2


@pytest.mark.parametrize("settings", ["direct", "server"], indirect=True)
def test_the_example_of_the_readme_runs(settings: Settings) -> None:
    [block] = [block for block in blocks((ROOT / "README.md").read_text()) if "app.alarms" in block]
    with closing(Pulse(settings=replace(settings))) as app:
        exec(block, {"__name__": "tasks", "app": app})

        assert [alarm.name for alarm in app.alarms.list(status="active")] == ["standup", "trial-ends:42"]


def test_every_option_is_explained_with_its_name_on_the_wire() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", REFERENCE, re.MULTILINE)

    assert [option for option, _ in rows] == list(OPTION_NAMES)
    assert {field for _, field in rows} | {"id", "name"} == set(pb.SetAlarmRequest.DESCRIPTOR.fields_by_name)


def test_every_method_is_explained_and_has_a_twin() -> None:
    listed = re.findall(r"^\| `(\w+)\(", REFERENCE, re.MULTILINE)

    assert {name for name in vars(Alarms) if not name.startswith("_")} == {*listed, *(f"a{name}" for name in listed)}


def test_every_status_outcome_and_field_of_a_delivery_is_explained() -> None:
    states = REFERENCE[REFERENCE.index("## States") : REFERENCE.index("`paused_at` is beside")]
    log = REFERENCE[REFERENCE.index("## The delivery log") :]

    assert re.findall(r"^\| `(\w+)` \|", states, re.MULTILINE) == [*AlarmStatus]
    assert re.findall(r"^\| `(\w+)` \|", log, re.MULTILINE) == [*DeliveryOutcome]
    assert all(f"`{field}`" in log for field in Delivery.__struct_fields__)
