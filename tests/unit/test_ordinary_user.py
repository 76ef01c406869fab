"""May an ordinary user read, run and write what the tests need, wherever the checkout is?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import ordinary_user
from tools.ordinary_user import compile_ahead, copy_checkout, is_tree_open_to_all, make_environ, make_environment


@pytest.fixture
def open_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that counts as open to all although those above it, which are pytest's, are not."""
    monkeypatch.setattr(ordinary_user, "is_open_to_all", lambda path: ordinary_user.is_readable(path.resolve()))
    tmp_path.chmod(0o755)
    yield tmp_path


@pytest.fixture
def checkout(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout with an editable package."""
    root = open_path / "ours"
    packages = root / ".venv/lib/python3/site-packages"
    for folder in (packages, root / ".venv/bin", root / "src", root / ".git"):
        folder.mkdir(parents=True)
    (root / "src/shop.py").write_text("PRICE = 3\n")
    (packages / "shop.pth").write_text(f"{root}/src\n")
    (packages / "secret.py").touch(0o600)
    (root / ".git/config").touch(0o600)
    (root / ".venv/bin/python").symlink_to(sys.executable)
    (root / ".venv/bin/sell").write_text(f"#!{root}/.venv/bin/python\nprint('sold')\n")
    monkeypatch.setattr(ordinary_user, "ROOT", root)
    monkeypatch.setattr(ordinary_user, "VENV", root / ".venv")
    return root


def test_one_closed_file_closes_the_checkout(checkout: Path) -> None:
    (checkout / ".venv/lib/python3/site-packages/secret.py").chmod(0o644)
    assert is_tree_open_to_all(checkout)

    (checkout / "src/shop.py").chmod(0o600)

    assert not is_tree_open_to_all(checkout)


def test_a_copy_is_open_although_the_checkout_is_not(checkout: Path, open_path: Path) -> None:
    for folder in (checkout, checkout / "src"):
        folder.chmod(0o700)
    (checkout / "src/shop.py").chmod(0o600)
    copy = open_path / "copy"

    packages = copy_checkout(copy)

    assert is_tree_open_to_all(copy)
    assert (packages / "python3/site-packages/shop.pth").read_text() == f"{copy}/src\n"
    assert (checkout / ".venv/lib/python3/site-packages/shop.pth").read_text() == f"{checkout}/src\n"
    assert not (copy / ".git").exists()
    for closed in ("src/shop.py", ".venv/lib/python3/site-packages/secret.py"):
        assert (checkout / closed).stat().st_mode & 0o777 == 0o600, "the checkout stays as closed as it was"


def test_scripts_run_the_python_that_stands_in(checkout: Path, open_path: Path) -> None:
    program = make_environment(open_path / "venv", checkout / ".venv/lib", Path(sys.executable).resolve())

    assert program.resolve() == Path(sys.executable).resolve()
    assert subprocess.check_output([open_path / "venv/bin/sell"], text=True) == "sold\n"


def test_what_the_user_may_not_compile_is_compiled(checkout: Path) -> None:
    compile_ahead(Path(sys.executable), checkout / "src")

    assert list((checkout / "src/__pycache__").glob("shop.*.pyc"))


def test_nothing_of_roots_is_left_in_the_environment(open_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (open_path / "closed").mkdir(mode=0o700)
    (open_path / "open").mkdir(mode=0o755)
    monkeypatch.setenv("PATH", os.pathsep.join(str(open_path / name) for name in ("closed", "open", "missing")))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/0")
    home = open_path / "home"

    environ = make_environ(home)

    assert environ["PATH"] == str(open_path / "open")
    assert "XDG_RUNTIME_DIR" not in environ
    places = ("HOME", "TMPDIR", "PYTEST_DEBUG_TEMPROOT", "PULSE_SCREENSHOTS", "HYPOTHESIS_STORAGE_DIRECTORY")
    assert all(Path(environ[name]).is_relative_to(home) for name in places)
