"""The documents say what the code does: each list in them is checked against its source."""

from __future__ import annotations

import hashlib
import inspect
import re
import tomllib
from dataclasses import fields
from itertools import pairwise
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


ARCHITECTURE = (DOCS / "explanation" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "pulse"
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}


def draw_layers() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [contract for contract in project["contracts"] if contract["type"] == "layers"]
    names = [layer.replace("pulse.", "").replace(" | ", " · ") for layer in contract["layers"]]
    nodes = [f'layer{number}["{name}"]' for number, name in enumerate(names)]
    return "\n".join(["flowchart TB", *(f"    {upper} --> {lower}" for upper, lower in pairwise(nodes))])


def test_the_layers_are_drawn_as_the_import_checker_has_them() -> None:
    assert f"```mermaid\n{draw_layers()}\n```" in ARCHITECTURE


def test_the_map_of_the_architecture_has_every_package() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", ARCHITECTURE, re.MULTILINE)

    assert all((SOURCE / name).exists() for name in listed)
    assert set(listed) >= PACKAGES


def test_the_walks_name_files_that_exist() -> None:
    names = re.findall(r"(?<![\w/])((?:\w+/)+\w+\.(?:py|sql))", ARCHITECTURE)
    folders = {path for path in re.findall(r"participant \w+ as (\S+)", ARCHITECTURE) if "/" in path}
    missing = [name for name in {*names, *folders} if not (SOURCE / name).exists() and not name.startswith("tests/")]

    assert len(names) >= 40
    assert not missing


def test_the_map_for_contributors_is_that_of_the_tree() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`.*?/`) \|", text, re.MULTILINE)
    folders = {folder for row in rows for folder in re.findall(r"`([\w/]+)/`", row)}
    tests = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"}

    assert not [folder for folder in folders if not (ROOT / folder).is_dir()]
    assert {f"src/pulse/{name}" for name in PACKAGES} <= folders
    assert tests <= folders


def test_the_targets_for_contributors_are_in_the_makefile() -> None:
    named = set(re.findall(r"`make ([\w-]+)`", (ROOT / "CONTRIBUTING.md").read_text()))
    targets = set(re.findall(r"^([\w-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert "check" in named
    assert named - {"help"} <= targets


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
    lines = (DOCS / "explanation" / "guarantees.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| Guarantee", "| ---"))]

    assert len(rows) >= 43
    for row in rows:
        names = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert names, f"no test named: {row}"
        assert all((ROOT / name).exists() for name in names), row


PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of a page's headings: small letters, hyphens for spaces, no other signs."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            found = page.parent / name if name else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


def test_every_page_is_in_the_index() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index.read_text())}
    pages = {page for page in DOCS.rglob("*.md") if page != index and not re.match(r"\d{4}-", page.name)}

    assert pages - linked == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_prose_is_wrapped(page: Path) -> None:
    """Tables, code and quotations stay as they are; a word without spaces may be as long as it is."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    prose = [line for line in text.splitlines() if not line.startswith(("|", ">", "<!--", "!["))]

    assert [line for line in prose if len(line) > 120 and " " in line.strip()] == []


def test_no_word_of_the_glossary_is_explained_twice() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert len(words) == len(set(words)) > 20


DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
SUFFIXES = {".md", ".proto", ".py", ".sql", ".toml", ".yaml", ".yml"}
SOURCES = ("src", "tests", "docs", "proto", "deploy", "examples", "benchmarks", "tools")
TEXTS = [
    *ROOT.glob("*.md"),
    *(path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES),
]


def test_the_numbers_of_decisions_have_no_hole() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]

    assert numbers == list(range(1, len(DECISIONS) + 1))


def test_decisions_are_listed_under_their_own_numbers_and_titles() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", index, re.MULTILINE)
    titles = [page.read_text().partition("\n")[0] for page in DECISIONS]

    assert [name for _, name, _ in listed] == [page.name for page in DECISIONS]
    assert [f"# {number}: {title}" for number, _, title in listed] == titles


def test_every_decision_that_is_referred_to_exists() -> None:
    numbers = {page.name[:4] for page in DECISIONS}
    referred = {
        (str(path.relative_to(ROOT)), number)
        for path in TEXTS
        for number in re.findall(r"decisions/(\d{4})", path.read_text())
    }

    assert len(referred) >= 20
    assert not [(path, number) for path, number in referred if number not in numbers]


def test_links_to_decisions_show_the_number_they_lead_to() -> None:
    for path in TEXTS:
        for shown, target in re.findall(r"\[(\d{4})\]\((?:[\w./-]*/)?(\d{4})-[^)]*\)", path.read_text()):
            assert shown == target, path


def test_what_others_wrote_is_as_they_wrote_it() -> None:
    page = (DOCS / "decisions/0034-a-dashboard.md").read_text()
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
