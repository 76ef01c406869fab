"""How do the tests run as an ordinary user on a machine where everything else runs as root?

`python -m tools.ordinary_user ARGUMENTS…` runs this very Python with the arguments, as a user who may write nothing
here and has a home folder of its own. Whoever is an ordinary user already just runs it. What that user may not read (a
checkout or a Python below /root, say) is copied first, or taken from the system.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENV = Path(sys.prefix)
NAME = "nobody"
SKIPPED = (".git", "__pycache__", ".pulse", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


def is_open_to_all(path: Path) -> bool:
    """Tell whether everybody may read a file or folder, and every folder above it."""
    found = path.resolve()
    needed = 0o005 if found.is_dir() else 0o004
    return found.stat().st_mode & needed == needed and all(each.stat().st_mode & 0o001 for each in found.parents)


def find_python() -> Path | None:
    """Return a Python of this version that everybody may run: packages with compiled parts are for one version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [Path(sys.executable).resolve(), *(Path(folder, version) for folder in ("/usr/bin", "/usr/local/bin"))]
    return next((each for each in found if each.exists() and is_open_to_all(each)), None)


def copy_checkout(target: Path, python: Path) -> Path:
    """Copy checkout and virtual environment to where everybody may read them; return the environment's Python."""
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*SKIPPED, VENV.name))
    venv = target / VENV.name
    shutil.copytree(VENV, venv, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for link in venv.glob("bin/python*"):
        if link.is_symlink():
            link.unlink()
            link.symlink_to(python)
    for text in (*venv.glob("bin/*"), *venv.glob("lib/*/site-packages/*.pth"), venv / "pyvenv.cfg"):
        if text.is_file() and not text.is_symlink() and b"\0" not in (content := text.read_bytes()):
            content = content.replace(bytes(VENV), bytes(venv)).replace(bytes(ROOT), bytes(target))
            text.write_bytes(
                content.replace(b"home = " + bytes(Path(sys.base_prefix, "bin")), b"home = " + bytes(python.parent))
            )
    return venv / "bin/python"


def main(arguments: list[str]) -> int:
    if os.geteuid() != 0:
        return subprocess.call([sys.executable, *arguments])
    python = find_python()
    if python is None:
        print(f"SKIPPED: user {NAME!r} may run no Python {sys.version_info.major}.{sys.version_info.minor} here")
        return 0
    user = pwd.getpwnam(NAME)
    with tempfile.TemporaryDirectory(prefix="pulse-user-", dir="/tmp") as scratch:  # short: sockets lie in it
        Path(scratch).chmod(0o755)  # the user must get to what is in it
        place, program = ROOT, Path(sys.executable)
        if not is_open_to_all(ROOT) or not is_open_to_all(Path(sys.executable)):
            place = Path(scratch, "checkout")
            program = copy_checkout(place, python)
        home = Path(scratch, "home")
        home.mkdir()
        os.chown(home, user.pw_uid, user.pw_gid)
        own = {"HOME": str(home), "USER": NAME, "LOGNAME": NAME, "PYTHONPYCACHEPREFIX": str(home / "compiled")}
        return subprocess.call(
            [program, *arguments],
            cwd=place,
            env=os.environ | own,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
