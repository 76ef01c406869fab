"""The type checkers of our users agree with us: what is right passes, and every planted mistake is caught."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.typing import tasks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "typing"
FILES = sorted(FOLDER.glob("*.py"))

Said = dict[tuple[str, int], str]  # by file and line


def mypy(cache: Path) -> Said:
    # Not our own configuration: what counts is what somebody sees who has none but --strict.
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--output=json"]
    said = run("mypy", *options, *map(str, FILES))
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {(Path(one["file"]).name, one["line"]): one["message"] for one in found if one["severity"] == "error"}


def pyright(_: Path) -> Said:
    said = run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(FOLDER))
    found = [one for one in json.loads(said)["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"] for one in found}


def run(checker: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", checker, *options], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # more: it could not do its work
    return done.stdout


def planted(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if re.search(r"# error$", line)}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_checkers_find_every_planted_mistake_and_nothing_else(check: Callable[[Path], Said], tmp_path: Path) -> None:
    expected = {(file.name, line) for file in FILES for line in planted(file.read_text())}

    found = check(tmp_path)

    false_alarms = {place: found[place] for place in found.keys() - expected}
    assert not false_alarms
    assert not sorted(expected - found.keys()), "these mistakes were not caught"


def test_mistakes_are_planted_where_they_belong() -> None:
    counts = {file.stem: len(planted(file.read_text())) for file in FILES}

    assert all((count > 0) == name.startswith("mistaken") for name, count in counts.items()), counts
    assert sum(counts.values()) > 100


@pytest.mark.parametrize("name", [file.stem for file in FILES if file.stem.startswith("correct")])
def test_what_is_declared_rightly_is_taken(name: str) -> None:
    importlib.import_module(f"tests.typing.{name}")


def test_only_an_annotated_context_is_one() -> None:
    """As the type checkers see it: whatever else the first parameter takes, it is the caller's to give."""
    assert [task.name for task in tasks.app.tasks.values() if task.takes_context] == [
        "tests.typing.tasks.import_file",
        "tests.typing.tasks.resize",
        "shop.charge",
        "tests.typing.tasks.thumbnail",
        "tests.typing.tasks.poll",
        "tests.typing.tasks.label",
    ]
