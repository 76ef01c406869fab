"""From "module:attribute" or a file to an app, what is said when there is none, and the way back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from pulse import Pulse
from pulse.model.errors import InvalidApp
from pulse.sdk.locate import load_app, modules_of, path_of
from tests.sdk.apps import split_app, split_tasks

Write = Callable[[str, str], None]


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    path, modules = sys.path.copy(), sys.modules.copy()
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Put a file into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the same name with other words would be taken from a cache

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    return write


ONE = "from pulse import Pulse\napp = Pulse()\nalso = app\nnumber = 3\nclass Box:\n    app = app\n"


@pytest.mark.parametrize("path", ["stall:app", "stall:Box.app", "stall", "stall.py:app", "stall.py", "./stall.py"])
def test_an_app_is_found_in_the_current_folder(write: Write, path: str) -> None:
    write("stall.py", ONE)

    assert load_app(path) is sys.modules["stall"].app


@pytest.mark.parametrize("path", ["market.stall:app", "market/stall.py:app"])
def test_an_app_in_a_package_has_its_package_s_name_either_way(write: Write, path: str) -> None:
    write("market/__init__.py", "")
    write("market/stall.py", "from . import prices\n" + ONE)
    write("market/prices.py", "")

    assert load_app(path) is sys.modules["market.stall"].app


def test_a_file_in_another_folder_finds_its_neighbours(write: Write, tmp_path: Path) -> None:
    write("far/away/stall.py", "import away_prices\n" + ONE)
    write("far/away/away_prices.py", "")

    assert load_app(str(tmp_path / "far/away/stall.py")) is sys.modules["stall"].app


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", 'write "module:attribute"'),
        (":app", 'write "module:attribute"'),
        ("nosuch:app", "there is no module 'nosuch' in "),
        ("nosuch.py:app", "there is no file nosuch.py in "),
        ("stall.app", 'if app is an attribute, write "stall:app"'),
        ("stall:ap", "stall has no 'ap'; it has stall:app and stall:also"),
        ("stall:Box.ap", "stall has no 'Box.ap'; it has stall:app and stall:also"),
        ("stall:number", "stall:number is of type int but must be a Pulse; it has stall:app and stall:also"),
        ("two", "two must contain exactly one app; it has two:one and two:other"),
        ("none", "none must contain exactly one app; it has no Pulse: add `app = Pulse"),
        ("notes.txt", "there is no module 'notes'"),
        ("./notes.txt", "its name must end in .py"),
        ("json.py", r"json.py would be module 'json', which is .*/json/__init__.py already: rename one of them"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(write: Write, path: str, words: str) -> None:
    write("stall.py", ONE)
    write("two.py", "from pulse import Pulse\none = Pulse()\nother = Pulse()\n")
    write("none.py", "")
    write("notes.txt", "")
    write("json.py", ONE)

    with pytest.raises(InvalidApp, match=words):
        load_app(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nosuch\n", "stall cannot be imported: ModuleNotFoundError: No module named 'nosuch'\n"),
        ("1 / 0\n", "stall cannot be imported: ZeroDivisionError: division by zero\n"),
        ("x = (\n", "stall cannot be imported: SyntaxError: '(' was never closed (stall.py, line 1)\n"),
        ("raise SystemExit(2)\n", "stall cannot be imported: SystemExit: 2\n"),
    ],
)
def test_a_module_that_does_not_import_shows_the_line(write: Write, tmp_path: Path, text: str, words: str) -> None:
    write("stall.py", text)

    with pytest.raises(InvalidApp) as caught:
        load_app("stall:app")

    lines = str(caught.value).removeprefix(words).splitlines()
    assert str(caught.value).startswith(words)
    assert lines[0].startswith(f'  File "{tmp_path}/stall.py", line 1')
    assert lines[1].strip() == text.strip()


def test_a_mistake_in_a_decorator_shows_the_user_s_lines_only(write: Write, tmp_path: Path) -> None:
    write("stall.py", 'from pulse import Pulse\napp = Pulse()\n@app.task(cron="0 25 * * *")\ndef sell() -> None: ...\n')

    with pytest.raises(InvalidApp) as caught:
        load_app("stall:app")

    frames = [line for line in str(caught.value).splitlines() if line.startswith("  File ")]
    assert frames == [f'  File "{tmp_path}/stall.py", line 3, in <module>']
    assert '@app.task(cron="0 25 * * *")' in str(caught.value)


def test_nothing_starts_processes_while_a_module_is_imported(write: Write) -> None:
    write("stall.py", "from pulse.sdk.worker.process_pool import ProcessPool\n" + ONE + "ProcessPool(app, 1)\n")

    with pytest.raises(InvalidApp, match=r'stall starts a worker .* move that under `if __name__ == "__main__":`'):
        load_app("stall")


def test_an_app_leads_back_to_its_module() -> None:
    assert load_app(path_of(split_app.app)) is split_app.app


def test_the_modules_of_its_tasks_are_known() -> None:
    assert modules_of(split_app.app) == [split_app.__name__, split_tasks.__name__]


def test_an_app_that_is_no_module_level_variable_has_no_path() -> None:
    with pytest.raises(InvalidApp, match="module-level variable"):
        path_of(Pulse())


SCRIPT = """
from pulse import Pulse
from pulse.sdk.locate import modules_of, path_of
app = Pulse()

@app.task
def sell() -> None: ...

if __name__ == "__main__":
    print(path_of(app), modules_of(app))
"""


def test_a_script_is_found_by_its_file_and_a_module_run_as_one_by_its_name(write: Write, tmp_path: Path) -> None:
    write("market/__init__.py", "")
    write("market/stall.py", SCRIPT)

    def told(*args: str) -> str:
        return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True).stdout.strip()

    write("start.py", "from market.stall import app, path_of\nprint(path_of(app))")
    file = tmp_path / "market/stall.py"
    assert told("market/stall.py") == f"{file}:app ['{file}']"
    assert told("-m", "market.stall") == "market.stall:app ['market.stall']"
    assert told("start.py") == "market.stall:app"


def test_an_app_typed_in_has_no_path() -> None:
    text = SCRIPT.replace("print(path_of(app), modules_of(app))", "path_of(app)")
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)

    assert "needs the app and its tasks to be in a file, not typed at a prompt" in told.stderr


def test_a_script_in_a_package_keeps_the_name_it_was_run_by(write: Write, tmp_path: Path) -> None:
    """Run by its file, it has no package; its jobs are named so, and its processes have to find them."""
    write("market/__init__.py", "")
    write("market/stall.py", SCRIPT)
    sys.path.insert(0, str(tmp_path / "market"))  # where Python puts a script's folder

    assert list(load_app(str(tmp_path / "market/stall.py")).tasks) == ["stall.sell"]
