"""The documents say what the code does: each list in them is checked against its source."""

from __future__ import annotations

import hashlib
import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from pulse.cli.exit_codes import exit_code_of
from pulse.doors.status_codes import status_of
from pulse.model import errors
from pulse.model.explain.facts import Reason
from pulse.model.jobs import TRANSITIONS
from pulse.settings import Settings
from pulse.store.schema.migrate import newest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def draw() -> str:
    lines = ["stateDiagram-v2", "    [*] --> PENDING: submit", "    [*] --> SCHEDULED: submit for later"]
    lines += [f"    {start} --> {end}: {event.lower()}" for (start, event), end in TRANSITIONS.items()]
    return "\n".join(lines)


def test_the_diagram_is_the_table() -> None:
    text = (DOCS / "explanation" / "life-of-a-job.md").read_text()

    assert f"```mermaid\n{draw()}\n```" in text


def test_every_setting_is_explained_with_its_name() -> None:
    text = (DOCS / "reference" / "settings.md").read_text()

    assert re.findall(r"`PULSE_(\w+)` \|", text) == [field.name.upper() for field in fields(Settings)]


def test_every_reason_that_explain_gives_is_listed() -> None:
    table = re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "how-to" / "diagnose.md").read_text(), re.MULTILINE)
    proto = (ROOT / "proto" / "pulse" / "v1" / "pulse.proto").read_text()
    [comment] = re.findall(r"// For programs: (COMPLETED.*?) a later release", proto, re.DOTALL)
    wanted = [reason.value for reason in Reason if reason is not Reason.OTHER]

    assert table == wanted
    assert re.findall(r"[A-Z_]{2,}", comment) == wanted


def test_what_commands_show_of_the_schema_is_its_newest_version() -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    shown = [found for page in pages for found in re.findall(r"schema +pulse, version (\d+)|is at version (\d+)", page)]

    assert len(shown) >= 2
    assert {one or other for one, other in shown} == {str(newest())}


def test_every_error_is_listed_with_its_codes() -> None:
    text = (DOCS / "reference" / "errors.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d) \|", text, re.MULTILINE)
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    kinds = [kind for kind in found if issubclass(kind, errors.PulseError) and kind is not errors.PulseError]

    assert sorted(listed) == sorted((kind.__name__, kind.code, str(exit_code_of(kind.__new__(kind)))) for kind in kinds)


def test_every_error_is_listed_with_its_status() -> None:
    text = (DOCS / "reference" / "grpc.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| ([A-Z_]+) \|$", text, re.MULTILINE)
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    kinds = [kind for kind in found if issubclass(kind, errors.PulseError) and kind is not errors.PulseError]

    wanted = [(kind.code, status_of(kind.__new__(kind)).name) for kind in kinds]
    assert sorted(listed) == sorted([*wanted, ("internal", status_of(errors.PulseError()).name)])


def test_every_guarantee_names_tests_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    table = text[text.index("| Guarantee") : text.index("Delivery is")]
    rows = table.strip().splitlines()[2:]

    assert rows
    for row in rows:
        names = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert names, f"no test named: {row}"
        assert all((ROOT / name).exists() for name in names), row


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_no_word_of_the_glossary_is_explained_twice() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert len(words) == len(set(words)) > 20


def test_what_others_wrote_is_as_they_wrote_it() -> None:
    page = (DOCS / "decisions/0035-a-dashboard.md").read_text()
    recorded = dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", page, re.MULTILINE))
    static = ROOT / "src/pulse/doors/dashboard/static"
    theirs = {path.name for path in static.iterdir() if path.stem != "pulse"}

    assert recorded.keys() == theirs
    assert {name: hashlib.sha256((static / name).read_bytes()).hexdigest() for name in recorded} == recorded


def extras() -> dict[str, list[str]]:
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return {name: packages for name, packages in found.items() if name != "dev"}


def test_the_page_lists_the_extras_there_are() -> None:
    page = (DOCS / "reference/install.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) ?\|$", page, re.MULTILINE))

    assert listed.keys() == extras().keys()
    for name, packages in extras().items():
        named = [re.split(r"[<>=;\[]", package)[0] for package in packages]
        assert listed[name] == ("" if name == "all" else ", ".join(named))


GUIDES = [path for path in DOCS.rglob("*.md") if path.parent.name != "decisions"]


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *GUIDES, *(ROOT / "examples").rglob("*.md")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_a_page_tells_to_install_can_be_installed_from_a_clone(page: Path) -> None:
    """There is no package of this name on an index yet; whoever has it installed can name it, as one page says."""
    commands = re.findall(r"pip install '?([^'\s`]*pulse[^'\s`]*|\.\.[^'\s`]*)", page.read_text())

    for command in commands:
        place, _, named = command.rstrip("]").partition("[")
        assert place in ("/path/to/pulse", "../..") or page.name == "install.md"
        assert set(filter(None, named.split(","))) <= extras().keys()
