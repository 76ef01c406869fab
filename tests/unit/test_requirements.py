"""Is everything that gets installed pinned, with the sums of its files, and is it what pyproject.toml asks for?"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.lock import BUILD, FOLDER, ROOT, SETS

Pinned = dict[str, tuple[str, list[str]]]


def read(path: Path) -> Pinned:
    """By name: the version, and the sums of the files."""
    entries = path.read_text().partition("\n")[2].replace("\\\n", " ").splitlines()
    found: Pinned = {}
    for entry in entries:
        match = re.fullmatch(r"([\w.-]+)==(\S+)(?: ; [^-]+)?((?:\s+--hash=sha256:[0-9a-f]{64})+)", entry.strip())
        assert match, f"{path.name} has a line that is not a version with its sums: {entry[:80]}"
        found[canonicalize_name(match[1])] = match[2], match[3].split()
    return found


def asked_for(extras: tuple[str, ...]) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        *project["dependencies"],
        *BUILD,
        *(each for extra in extras for each in project["optional-dependencies"][extra]),
    ]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", SETS)
def test_every_package_is_pinned_to_a_version_that_pyproject_takes(name: str) -> None:
    pinned = read(FOLDER / f"{name}.txt")

    for requirement in asked_for(SETS[name]):
        version, sums = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is pinned to {version}: run `make lock`"
        assert sums


@pytest.mark.parametrize("name", SETS)
def test_a_package_has_the_same_version_in_every_set(name: str) -> None:
    largest = read(FOLDER / f"{next(iter(SETS))}.txt")

    assert read(FOLDER / f"{name}.txt").items() <= largest.items()


@pytest.mark.parametrize("name", SETS)
def test_no_package_index_is_named(name: str) -> None:
    assert "//" not in (FOLDER / f"{name}.txt").read_text()
