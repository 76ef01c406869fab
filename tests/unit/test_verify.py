"""Does the table of suites say what pytest said?"""

from __future__ import annotations

from pathlib import Path

from tools.verify import SUITES, Ran, count, table


def test_counts_are_those_of_every_closing_line() -> None:
    output = "1 failed, 2 passed, 1 error in 3.21s\nnothing passed in here\n== 40 passed, 2 skipped in 61s (0:01) ==\n"

    assert count(output) == {"failed": 1, "passed": 42, "error": 1, "skipped": 2}


def test_a_suite_that_failed_stands_out() -> None:
    drawn = table([Ran("check", 0, {}, 61.0), Ran("test", 2, {"passed": 7, "failed": 1}, 5.0)])

    assert "| make check | ok | – | – | – | – | – | 1:01 |" in drawn
    assert "| make test | FAILED (exit 2) | 7 | 1 | 0 | 0 | 0 | 0:05 |" in drawn


def test_every_suite_is_a_target() -> None:
    targets = (Path(__file__).parents[2] / "Makefile").read_text()

    assert all(f"\n{suite}: " in targets for suite in SUITES)
