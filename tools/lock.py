"""Which version of each package is installed, and what are the sums of its files? Writes requirements/ anew.

One resolution for all sets, so that a package has one version; on every platform, so that nobody's machine decides. The
files name no package index.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
BUILD = ("hatchling>=1.27", "editables>=0.5")  # what builds Pulse itself, so that nothing is fetched for that
SERVER = ("fast", "grpc", "http")
SETS = {  # by file: which extras of pyproject are in it. The largest comes first: it decides for the others
    "development": ("dev", "embedded", "fast", "grpc", "http", "mcp"),
    "demo": ("embedded", *SERVER),
    "server": SERVER,
}


def compile_set(name: str, extras: tuple[str, ...], build: Path, decided: Path | None) -> Path:
    """Write the file of one set, with the versions that were decided already."""
    target = FOLDER / f"{name}.txt"
    wanted = [part for extra in extras for part in ("--extra", extra)]
    pinned = ["--constraints", str(decided)] if decided else []
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", *wanted, *pinned, "pyproject.toml", str(build), "-o", str(target)]
    target.unlink(missing_ok=True)  # or what it says would be kept
    subprocess.run([sys.executable, "-m", *command], check=True, cwd=ROOT)
    target.write_text("# Made by `make lock`.\n" + target.read_text())
    return target


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        build = Path(scratch, "build.in")
        build.write_text("\n".join(BUILD))
        decided: Path | None = None
        for name, extras in SETS.items():
            written = compile_set(name, extras, build, decided)
            decided = decided or written
            print(f"{written.relative_to(ROOT)}: {written.read_text().count('==')} packages")


if __name__ == "__main__":
    main()
