"""Where are the peers installed? In a virtual environment: `python -m benchmarks.peers.environment [FOLDER]`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "peers-venv"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


class PeersUnavailable(Exception):
    """The peers could not be installed. The message says what to do."""


def ensure(folder: Path = FOLDER) -> Path:
    """Return the peers' Python. It is installed if it is missing or has other versions, which takes half a minute."""
    python = folder / "bin" / "python"
    installed = folder / "requirements.txt"  # a copy, written last, so that an incomplete environment is made anew
    wanted = REQUIREMENTS.read_text()
    if python.exists() and installed.exists() and installed.read_text() == wanted:
        return python
    if folder.exists() and not (folder / "pyvenv.cfg").exists():
        raise PeersUnavailable(f"{folder} exists and is not a virtual environment, so it is left alone")
    print(f"making the peers' environment in {folder} (once)…", file=sys.stderr)
    run(sys.executable, "-m", "venv", "--clear", str(folder))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1")
    run(*pip, "--requirement", str(REQUIREMENTS))
    installed.write_text(wanted)
    return python


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    output = "\n".join(f"  {line}" for line in (done.stderr or done.stdout).strip().splitlines()[-5:])
    raise PeersUnavailable(
        f"the peers could not be installed:\n{output}\n"
        "pip needs a package index: go online, or point PIP_INDEX_URL or PIP_FIND_LINKS at one you can reach"
    )


def main() -> None:
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else FOLDER
    try:
        print(ensure(folder))
    except PeersUnavailable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
