"""Do `pulse worker` and `pulse dev` take what they are given, and refuse in a sentence what cannot be run?"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulse import Pulse
from pulse.cli.dev.command import find_app, print_banner
from pulse.cli.session import Session, run_with_engine
from pulse.cli.worker import process as worker_run
from pulse.cli.worker import reload
from pulse.cli.worker.banner import enqueue_line, without_password
from pulse.cli.worker.process import choose_settings
from pulse.cli.worker.reload import Files, source_folders
from pulse.cli.worker.worker_options import WorkerOptions
from pulse.model.errors import InvalidApp
from tests.doors.command_line import call
from tests.doors.worker_processes import TASKS, run_in, started
from tests.served import Served

if TYPE_CHECKING:
    from pulse.settings import Settings

UNREACHABLE = "postgresql://me:secret@127.0.0.1:1/pulse"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "bare.py").write_text("from pulse import Pulse\napp = Pulse()\n")
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found\n")
    return tmp_path


def test_a_topic_of_no_task_is_told(caplog: pytest.LogCaptureFixture) -> None:
    app = Pulse()
    app.task(name="send", topic="mail")(print_nothing)

    worker_run.warn_of_unknown_topics(WorkerOptions(app="tasks:app", topics=("mail", "nosuch")), app)

    assert caplog.messages == ["no task of this app has the topic 'nosuch': it has mail"]


def print_nothing() -> None: ...


# What is refused


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_the_commands_explain_themselves(command: str) -> None:
    result = call(command, "--help")

    assert result.exit_code == 0
    assert "MODULE:APP" in result.output


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("tasks:nothing", "tasks has no 'nothing'; it has tasks:app"),
        ("tasks:hello", "is of type Task but must be a Pulse"),
        ("missing.py", "there is no file missing.py"),
        ("bare", "bare has no tasks"),
        ("broken", "No module named 'nowhere_to_be_found'"),
    ],
)
def test_an_app_that_cannot_be_run_is_refused(folder: Path, app: str, said: str) -> None:
    result = run_in(folder, "worker", app, PULSE_DATABASE_URL=UNREACHABLE)

    assert result.returncode == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_refusal_is_a_document_too(folder: Path) -> None:
    result = run_in(folder, "worker", "nowhere:app", "--json")

    assert json.loads(result.stdout)["error"]["code"] == "invalid_app"


def test_a_database_that_stays_away_ends_it_after_its_patience(folder: Path) -> None:
    result = run_in(folder, "worker", "tasks", PULSE_DATABASE_URL=UNREACHABLE, PULSE_PATIENCE="300ms")

    assert result.returncode == 5
    assert "is the address right? Trying for 300ms." in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: cannot reach the database pulse at 127.0.0.1:1: ")
    assert "postgresql://me@127.0.0.1:1/pulse" in result.stderr
    assert "secret" not in result.stderr


def test_no_database_at_all_is_said_with_the_ways_to_have_one(folder: Path) -> None:
    result = run_in(folder, "worker", "tasks")

    assert result.returncode == 5
    assert "`pulse db start`" in result.stderr


def test_a_schema_that_is_not_there_is_said_with_what_to_do(folder: Path, settings: Settings) -> None:
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": "not_there"}
    result = run_in(folder, "worker", "tasks", **env)

    assert result.returncode == 5
    assert "run `pulse migrate`" in result.stderr


HOOKED = TASKS + "\n@app.on_startup\ndef begin() -> None:\n    print('the hook ran')\n"


@pytest.mark.parametrize(
    ("scopes", "said"),
    [
        (None, "this token is not known here"),
        (["submit"], "token 'web' lacks the scope work, which working needs; it has submit"),
    ],
)
def test_a_token_that_is_refused_ends_it_at_once_and_before_its_hooks(
    folder: Path, settings: Settings, scopes: list[str] | None, said: str
) -> None:
    (folder / "hooked.py").write_text(HOOKED)
    run_with_engine(
        settings, lambda engine: engine.tokens.create("admin", ["admin"])
    )  # from now on the server asks for one
    secret = (
        run_with_engine(settings, lambda engine: engine.tokens.create("web", scopes))[1]
        if scopes
        else "pulse_unheard_of"
    )
    served = Served(settings, count=1)
    try:
        url = str(served.start().server_url)
        result = run_in(folder, "worker", "hooked", PULSE_SERVER_URL=url, PULSE_TOKEN=secret)
    finally:
        served.stop()

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"Error: {said}"
    assert "Traceback" not in result.stderr
    assert "the hook ran" not in result.stdout


TWO_TOPICS = """
from pulse import Pulse

app = Pulse()

@app.task(topic="greetings")
def greet() -> None: ...

@app.task(topic="mail")
def send() -> None: ...

@app.on_startup
def begin() -> None:
    print("the hook ran")
"""


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (
            "work:other",
            "token 'web' lacks the scope work:greetings, which working on topic 'greetings' needs; it has work:other",
        ),
        (
            "work:mail",
            (
                "token 'web' may not work on topic 'greetings', only on mail: give it that scope, or start the "
                "worker with --topics mail"
            ),
        ),
    ],
)
def test_a_token_that_lacks_a_topic_ends_it_at_once_and_says_which(
    folder: Path, settings: Settings, scope: str, said: str
) -> None:
    (folder / "two.py").write_text(TWO_TOPICS)
    run_with_engine(settings, lambda engine: engine.tokens.create("admin", ["admin"]))
    _, secret = run_with_engine(settings, lambda engine: engine.tokens.create("web", [scope]))
    served = Served(settings, count=1)
    try:
        url = str(served.start().server_url)
        result = run_in(folder, "worker", "two", PULSE_SERVER_URL=url, PULSE_TOKEN=secret)
    finally:
        served.stop()

    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"Error: {said}"
    assert "the hook ran" not in result.stdout


def test_a_role_that_the_database_refuses_ends_it_at_once_and_before_its_hooks(
    folder: Path, settings: Settings
) -> None:
    (folder / "hooked.py").write_text(HOOKED)
    url = str(settings.database_url).replace("//pulse@", "//nobody_we_know@")

    result = run_in(folder, "worker", "hooked", PULSE_DATABASE_URL=url, PULSE_PATIENCE="1h")

    assert result.returncode == 1
    assert 'Error: the database refused the connection: role "nobody_we_know" does not exist' in result.stderr
    assert "the hook ran" not in result.stdout


def test_a_server_that_does_not_answer_is_told_and_a_signal_meanwhile_is_obeyed(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # which takes connections, and says nothing
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with started(folder, "worker", "tasks", PULSE_SERVER_URL=url) as worker:
            worker.expect(f"no answer from {url} yet; trying until it answers$")
            worker.process.terminate()
            worker.expect("SIGTERM: stopping")
            said = len(worker.said)
            assert worker.exit_code() == 5

    assert worker.said[said:] == []


def test_a_startup_hook_that_fails_ends_it(folder: Path, settings: Settings) -> None:
    hook = "\n@app.on_startup\ndef connect() -> None:\n    raise RuntimeError('no cache')\n"
    (folder / "hooked.py").write_text(TASKS + hook)

    result = run_in(folder, "worker", "hooked", PULSE_DATABASE_URL=str(settings.database_url))

    assert result.returncode == 1
    assert "RuntimeError: no cache" in result.stderr


def test_a_port_that_is_taken_is_said(folder: Path, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_WORKER_HEALTH_PORT": str(port)}
        result = run_in(folder, "worker", "tasks", **env)

    assert result.returncode == 1
    assert f"127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize(
    "flags", [["--concurrency", "0"], ["--grace", "soon"], ["--log-level", "loud"], ["--health-port", "70000"]]
)
def test_a_flag_that_makes_no_sense_is_wrong_usage(flags: list[str]) -> None:
    assert call("worker", "tasks:app", *flags).exit_code == 2


def test_the_app_has_to_be_named() -> None:
    assert call("worker").exit_code == 2


# What is taken


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """What a worker would be told, instead of a worker."""
    plans: list[WorkerOptions] = []
    monkeypatch.setattr(worker_run, "run_worker", plans.append)
    monkeypatch.setattr(reload, "watch", plans.append)
    return plans


def test_flags_have_twins_in_the_environment(plans: list[WorkerOptions]) -> None:
    flags = ["--topics", "mail, late", "--health-port", "0", "--log-level", "DEBUG", "--log-format", "json"]
    twins = {"TOPICS": "mail,late", "HEALTH_PORT": "0", "LOG_LEVEL": "debug", "LOG_FORMAT": "json"}

    call("worker", "tasks:app", *flags)
    call("worker", "tasks:app", **{f"PULSE_WORKER_{name}": value for name, value in twins.items()})
    call("worker", "tasks:app", "--topics", "mail", "--topics", "late", PULSE_WORKER_RELOAD="1")

    by_flag, by_env, repeated = plans
    assert (
        by_flag
        == by_env
        == WorkerOptions(app="tasks:app", topics=("mail", "late"), health_port=0, log_level="debug", log_format="json")
    )
    assert repeated.topics == ("mail", "late")


def test_a_flag_wins_over_the_code_and_the_code_over_the_environment(
    plans: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSE_CONCURRENCY", "9")
    monkeypatch.setenv("PULSE_THREADS", "9")
    monkeypatch.setenv("PULSE_SCHEMA", "environment")
    app = Pulse("postgresql://code", concurrency=7)
    app.task(call)

    call("worker", "tasks:app")
    call("worker", "tasks:app", "--concurrency", 3, "--grace", "1m", "--schema", "flag")

    by_code, by_flag = (choose_settings(plan, app) for plan in plans)
    assert (by_code.concurrency, by_code.threads, by_code.schema) == (7, 9, "environment")
    assert (by_flag.concurrency, by_flag.threads, by_flag.schema) == (3, 9, "flag")
    assert by_flag.grace == timedelta(minutes=1)
    assert by_flag.database_url == "postgresql://code"


def test_while_files_are_watched_the_grace_is_short() -> None:
    app = Pulse("postgresql://code")
    app.task(call)

    assert choose_settings(WorkerOptions(app="tasks:app", is_child=True), app).grace == timedelta(seconds=2)


def test_the_database_of_dev_is_for_those_who_named_none() -> None:
    named, unnamed = Pulse("postgresql://code"), Pulse(settings=replace(Pulse().settings, database_url=None))
    plan = WorkerOptions(app="tasks:app", dev_url="postgresql://dev")
    for app in (named, unnamed):
        app.task(call)

    assert choose_settings(plan, named).database_url == "postgresql://code"
    assert choose_settings(plan, unnamed).database_url == "postgresql://dev"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s%40fe@db:5432/app?sslmode=require", "postgresql://me@db:5432/app?sslmode=require"),
        ("postgresql://me:safe@a,b/app?user=me&password=safe", "postgresql://me@a,b/app?user=me"),
        ("postgresql://pulse@/pulse?host=/tmp/x&port=5432", "postgresql://pulse@/pulse?host=/tmp/x&port=5432"),
        ("postgresql://[broken", "an address that cannot be read"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_dev_repeats_its_flags_but_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    print_banner(Session(flags={"database_url": UNREACHABLE, "schema": "mine"}))

    said = capsys.readouterr().err
    assert "pulse --database-url … --schema mine jobs list" in said
    assert "secret" not in said


def test_the_line_to_enqueue_by_names_what_has_to_be_given() -> None:
    from pulse.cli.dev.demo_shop import app

    line = enqueue_line(app)

    assert line
    assert "from pulse.cli.dev.demo_shop import send_receipt; send_receipt.enqueue(order=...)" in line


def test_an_app_without_a_task_to_import_has_no_such_line() -> None:
    app = Pulse()
    app.task(name="nameless")(lambda: None)

    assert enqueue_line(app) is None


# Which app dev runs


def test_dev_finds_the_app_in_pyproject_before_the_usual_files(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("from pulse import Pulse\nqueue = Pulse()\n")
    (tmp_path / "tasks.py").write_text("print('nothing to see')\n")
    assert find_app(tmp_path) == "main.py"

    (tmp_path / "app.py").write_text("import pulse\nqueue = pulse.Pulse()\n")
    assert find_app(tmp_path) == "app.py"

    (tmp_path / "pyproject.toml").write_text('[tool.pulse]\napp = "shop.tasks:app"\n')
    assert find_app(tmp_path) == "shop.tasks:app"


@pytest.mark.parametrize("text", ["[tool.pulse\n", "[tool.pulse]\napp = 3\n", "tool = 3\n"])
def test_a_pyproject_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(InvalidApp, match=r"pyproject\.toml"):
        find_app(tmp_path)


@pytest.mark.parametrize(
    ("app", "said"),
    [("nosuch.py", "there is no file nosuch.py in"), ("nosuch.tasks:app", "there is no module 'nosuch.tasks' in")],
)
def test_dev_refuses_at_once_what_is_not_there(folder: Path, app: str, said: str) -> None:
    result = run_in(folder, "dev", app)

    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: {said}")
    assert not (folder / ".pulse").exists()


def test_dev_says_what_to_do_where_it_finds_none(tmp_path: Path) -> None:
    result = run_in(tmp_path, "dev")

    assert result.returncode == 1
    assert "[tool.pulse]" in result.stderr
    assert "`pulse dev shop.tasks:app`" in result.stderr
    assert list(tmp_path.iterdir()) == []


# Which files are watched


def test_python_files_that_come_go_or_change_are_found(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "package/b.py",
        "package/deep/c.py",
        "notes.txt",
        ".hidden/d.py",
        "env/e.py",
        "env/pyvenv.cfg",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    files = Files([tmp_path])
    assert files.find_changes() == []

    (tmp_path / "a.py").unlink()
    (tmp_path / "package/deep/c.py").write_text("changed = True")
    (tmp_path / "package/new.py").write_text("")
    for name in ("notes.txt", ".hidden/d.py", "env/e.py"):
        (tmp_path / name).write_text("changed = True")

    assert files.find_changes() == [tmp_path / name for name in ("a.py", "package/deep/c.py", "package/new.py")]
    assert files.find_changes() == []


def test_an_app_elsewhere_has_its_own_folder_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for place in (here / "near", elsewhere / "shop_elsewhere"):
        place.mkdir(parents=True)
        (place / "__init__.py").write_text("raise AssertionError('nobody asked to import this')")
    (elsewhere / "single_elsewhere.py").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(elsewhere)

    assert source_folders("near.tasks:app") == [here]
    assert source_folders("shop_elsewhere.tasks:app") == [here, elsewhere / "shop_elsewhere"]
    assert source_folders("single_elsewhere:app") == [here, elsewhere / "single_elsewhere.py"]
    assert source_folders(f"{elsewhere}/shop_elsewhere/tasks.py:app") == [here, elsewhere / "shop_elsewhere"]
    assert source_folders("nowhere:app") == [here]
