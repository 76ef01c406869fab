"""How do the tests run as an ordinary user on a machine where everything else runs as root?

`python -m tools.ordinary_user ARGUMENTS…` runs this very Python with the arguments, as a user who may write nothing
here and has a home folder of its own. Whoever is an ordinary user already just runs it. A checkout that this user may
not read (below /root, say) is copied first; the system's Python of the same version stands in for one that it may
not run.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
VENV = Path(sys.prefix)
NAME = "nobody"
SKIPPED = (".git", "__pycache__", ".pulse", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis")


def is_open_to_all(path: Path) -> bool:
    """Tell whether everybody may read a file or folder, and every folder above it."""
    found = path.resolve()
    return is_readable(found) and all(each.stat().st_mode & 0o001 for each in found.parents)


def is_readable(path: Path) -> bool:
    """Tell whether everybody may read a file, or enter a folder and list it."""
    needed = 0o005 if path.is_dir() else 0o004
    return path.stat().st_mode & needed == needed


def is_tree_open_to_all(folder: Path) -> bool:
    """Tell whether everybody may read a folder and all that is in it: a umask of 077 closes each file."""
    return is_open_to_all(folder) and all(is_readable(each) for each in walk(folder))


def walk(folder: Path) -> Iterator[Path]:
    """Yield the files and folders below a folder that tests may need; no links, which lead elsewhere."""
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in SKIPPED]
        yield from (each for name in (*folders, *files) if not (each := Path(place, name)).is_symlink())


def find_python() -> Path | None:
    """Return a Python of this version that everybody may run: packages with compiled parts are for one version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [Path(sys.executable).resolve(), *(Path(folder, version) for folder in ("/usr/bin", "/usr/local/bin"))]
    return next((each for each in found if each.exists() and is_open_to_all(each)), None)


def copy_checkout(target: Path) -> Path:
    """Copy the checkout and its packages to where everybody may read them; return the folder of the packages."""
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*SKIPPED, VENV.name))
    packages = target / VENV.name / "lib"
    shutil.copytree(VENV / "lib", packages, symlinks=True, copy_function=link_or_copy)
    for each in (target, *walk(target)):
        if not is_readable(each):
            each.chmod(each.stat().st_mode | (0o055 if os.access(each, os.X_OK) else 0o044))
    for path in packages.glob("*/site-packages/*.pth"):  # which say where an editable package is
        content = path.read_bytes()
        path.unlink()  # it may be a link to ours
        path.write_bytes(content.replace(bytes(ROOT), bytes(target)))
    return packages


def link_or_copy(source: str, target: str) -> None:
    """Link a file that everybody may read: a gigabyte of packages takes a minute to copy. Copy any other."""
    if is_readable(Path(source)):
        with suppress(OSError):  # on another disk, for example
            os.link(source, target)
            return
    shutil.copy2(source, target)


def make_environment(target: Path, packages: Path, python: Path) -> Path:
    """Make a virtual environment of these packages for another Python; return the program to run."""
    programs = target / "bin"
    programs.mkdir(parents=True)
    (target / "lib").symlink_to(packages)
    (target / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    for each in VENV.joinpath("bin").iterdir():
        own = programs / each.name
        if each.name.startswith("python"):
            own.symlink_to(python)
        else:  # a script names the Python that it is for
            own.write_bytes(each.read_bytes().replace(bytes(VENV), bytes(target), 1))
            own.chmod(0o755)
    return programs / "python"


def compile_ahead(python: Path, *folders: Path) -> None:
    """Compile what the user could only compile in memory, in each of hundreds of processes anew."""
    subprocess.run([python, "-m", "compileall", "-qq", *folders], check=False)


def make_environ(home: Path) -> dict[str, str]:
    """Return this process's environment without what is root's own, and with places that the user may write to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "SUDO_"))}
    # A program that is nowhere is "not found"; with a closed folder on the way it would be "permission denied".
    folders = [each for each in os.get_exec_path() if Path(each).is_dir() and is_open_to_all(Path(each))]
    return kept | {
        "HOME": str(home),
        "USER": NAME,
        "LOGNAME": NAME,
        "PATH": os.pathsep.join(folders),
        "TMPDIR": str(home),
        "PYTEST_DEBUG_TEMPROOT": str(home),
        "PULSE_SCREENSHOTS": str(home / "screenshots"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(home / "hypothesis"),
    }


def main(arguments: list[str]) -> int:
    if os.geteuid() != 0:
        return subprocess.call([sys.executable, *arguments])
    python = find_python()
    if python is None:
        print(f"SKIPPED: user {NAME!r} may run no Python {sys.version_info.major}.{sys.version_info.minor} here")
        return 0
    user = pwd.getpwnam(NAME)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # lest a copy be left behind
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as scratch:  # short: paths of sockets begin with it
        Path(scratch).chmod(0o755)  # the user must get to what is in it
        place, packages = ROOT, VENV / "lib"
        if not is_tree_open_to_all(ROOT) or not is_tree_open_to_all(VENV):
            place = Path(scratch, "checkout")
            packages = copy_checkout(place)
        compile_ahead(python, place / "src", packages)
        home = Path(scratch, "home")
        home.mkdir()
        os.chown(home, user.pw_uid, user.pw_gid)
        return subprocess.call(
            [make_environment(Path(scratch, "venv"), packages, python), *arguments],
            cwd=place,
            env=make_environ(home),
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            umask=0o022,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
