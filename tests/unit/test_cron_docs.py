"""Does the page about cron expressions say what they do?"""

from __future__ import annotations

import doctest
import re
from datetime import datetime
from pathlib import Path

import pytest

from pulse.timing.cron import DESCRIPTORS, Cron, InvalidCron

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cron.md"
TEXT = PAGE.read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table with this first line, without the backquotes around whole cells."""
    table = TEXT.split(f"| {heading} |\n", 1)[1].split("\n\n", 1)[0]
    lines = [line.strip("|").split(" | ") for line in table.splitlines()[1:]]
    return [[cell.strip(" |").removeprefix("`").removesuffix("`") for cell in line] for line in lines]


def test_its_examples_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)

    assert result.attempted >= 5
    assert result.failed == 0


def test_its_descriptors_are_all_there_are() -> None:
    assert [tuple(row) for row in rows("descriptor | same as")] == list(DESCRIPTORS.items())


@pytest.mark.parametrize(("expression", "explained"), rows("expression | explained"))
def test_its_explanations_are_ours(expression: str, explained: str) -> None:
    assert Cron.parse(expression).explain() == f"{explained}, UTC"


@pytest.mark.parametrize(("expression", "reason"), rows("refused | because"))
def test_its_refusals_are_ours(expression: str, reason: str) -> None:
    with pytest.raises(InvalidCron, match=re.escape(f"invalid cron expression {expression!r}: {reason}")):
        Cron.parse(expression)


@pytest.mark.parametrize(
    ("expression", "tz", "after", "then", "note"), rows("expression | zone | after (UTC) | then (UTC) | note")
)
def test_its_clock_changes_are_ours(expression: str, tz: str, after: str, then: str, note: str) -> None:
    [found] = Cron.parse(expression, tz).preview(1, datetime.fromisoformat(f"{after}+00:00"))

    assert f"{found.at:%Y-%m-%d %H:%M}" == then
    assert (found.note or "") == note
