"""Do sentences that name a setting together with a number name its default?

`PULSE_GRACE`, 25 s · 2,000 (`PULSE_CALLS_PER_SECOND`) · `PULSE_KEEP_FIRES` (90 days): found in each page by their form.
A number that belongs to no setting is compared with its constant, in the table at the end.
"""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from pulse.cli.dev.demo_shop import JOBS as DEMO_TOPICS
from pulse.engine.tokens import CACHED_FOR
from pulse.model.decisions.delivery import LONGEST_RETRY
from pulse.model.text import PAYLOAD_LIMIT
from pulse.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
UNITS: dict[str, timedelta | int] = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "kib": 1 << 10,
    "mib": 1 << 20,
}
WORDS = {"a": 1, "an": 1, "two": 2, "five": 5, "ten": 10, "fifteen": 15, "thirty": 30}
_UNIT = rf"\s(?P<unit>(?:{'|'.join(UNITS)})s?)\b"
VALUE = rf"(?P<number>\d[\d,.]*(?![\d,.])|(?:{'|'.join(WORDS)})(?={_UNIT.replace('?P<unit>', '?:')}))(?:{_UNIT})?"
NAME = r"\[?`PULSE_(?P<name>[A-Z_]+)`(?:\]\([^)]*\))?"
FORMS = [rf"{NAME},\s{VALUE}(?=[,;:.)\s])", rf"{NAME}\s\({VALUE}\)", rf"\b{VALUE}\s\({NAME}\)"]


def read_value(number: str, unit: str | None) -> object:
    amount = WORDS.get(number.lower()) or float(number.rstrip(".,").replace(",", ""))
    if unit is None:
        return amount
    return amount * (UNITS.get(unit.lower()) or UNITS[unit.lower().removesuffix("s")])


def found_in(text: str) -> list[tuple[str, object]]:
    return [
        (match["name"].lower(), read_value(match["number"], match["unit"]))
        for form in FORMS
        for match in re.finditer(form, text, re.IGNORECASE)
    ]


DEFAULTS = {each.name: each.default for each in fields(Settings)}
SAID = [(page, name, value) for page in PAGES for name, value in found_in(page.read_text())]


@pytest.mark.parametrize(
    ("page", "name", "value"), SAID, ids=[f"{page.relative_to(ROOT)}-{name}" for page, name, _ in SAID]
)
def test_a_number_beside_a_setting_is_its_default(page: Path, name: str, value: object) -> None:
    assert DEFAULTS[name] == value


def test_such_numbers_are_found() -> None:
    assert len(SAID) >= 15
    assert found_in(
        "for `PULSE_GRACE`, 25 s, and 2,000\n(`PULSE_CALLS_PER_SECOND`), or [`PULSE_LEASE`](a.md) (a minute)"
    ) == [
        ("grace", timedelta(seconds=25)),
        ("lease", timedelta(minutes=1)),
        ("calls_per_second", 2_000),
    ]


DEMO_JOBS = sum(DEMO_TOPICS.values())
MINUTES = f"{LONGEST_RETRY // timedelta(minutes=1)} minutes"


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("docs/how-to/receive-wakes.md", f"not before that time ({MINUTES} at most)"),
        ("docs/reference/alarms.md", f"`Retry-After` makes a wait longer, up to {MINUTES}"),
        ("docs/glossary.md", f"doubling to {MINUTES}"),
        ("docs/reference/access.md", f"more than {Settings().calls_per_second:,} calls a second"),
        ("docs/reference/access.md", f"has {Settings().streams_per_token:,} streams open"),
        (
            "docs/reference/access.md",
            f"believes what it knows of a token for {'three' if CACHED_FOR == 3 else '?'} seconds",
        ),
        ("docs/reference/python.md", f"A payload has at most {PAYLOAD_LIMIT >> 20} MiB"),
        ("README.md", f"drains {DEMO_JOBS:,} jobs"),
        ("docs/reference/cli.md", f"enqueues {DEMO_JOBS:,} jobs"),
    ],
)
def test_a_number_that_is_no_setting_is_the_one_in_the_code(page: str, sentence: str) -> None:
    assert sentence in re.sub(r"\s+", " ", (ROOT / page).read_text())


def test_the_readme_has_the_figures_of_the_last_comparison() -> None:
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    rows = (ROOT / "docs" / "benchmarks.md").read_text().splitlines()
    [bare, pulse, pgqueuer, procrastinate] = [row.split("|")[1:-1] for row in rows if re.match(r"\|.*\d,\d{3}", row)]
    half, slowest = pulse[3].strip().split(" / ")

    assert f"Pulse drained {pulse[1].strip()} jobs a second" in readme
    assert f"{bare[2].strip()} of what bare SQL does" in readme
    assert f"{pgqueuer[2].strip()} times pgqueuer and {procrastinate[2].strip()} times procrastinate" in readme
    assert f"{half} ms (p50) and {slowest} ms (p99)" in readme
