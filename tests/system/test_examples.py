"""The examples work as their READMEs say: real processes, started by those very commands."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pulse.delivery.signing import owner_secret
from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.conftest import recreate_database
from tests.waiting import connected

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 60.0  # seconds, on a machine that has much else to do
LAMP = {"item": "lamp", "email": "ada@example.com"}


class Example:
    """A copy of one, and a database for it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.more_env: dict[str, str] = {}
        commands = re.findall(r"^\$ ([^#\n]+)", (folder / "README.md").read_text(), re.MULTILINE)
        self._commands = [shlex.split(command.strip().rstrip("& ")) for command in commands]

    def command(self, *beginning: str) -> list[str]:
        """The command of the README that begins so, with our Python's programs."""
        [found] = [words for words in self._commands if words[: len(beginning)] == list(beginning)]
        program = sys.executable if found[0] == "python" else str(Path(sys.executable).with_name(found[0]))
        return [program, *found[1:]]

    @property
    def env(self) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "PYTEST_"))}
        return outside | {"DATABASE_URL": self.url, "PYTHONUNBUFFERED": "1"} | self.more_env

    def run(self, *beginning: str) -> str:
        done = subprocess.run(
            self.command(*beginning), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, *beginning: str, more: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
        command = [*self.command(*beginning), *more]
        with (
            (self.folder / f"{beginning[0]}.log").open("ab") as log,
            subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()

    def logs(self) -> str:
        return "\n".join(log.read_text() for log in self.folder.glob("*.log"))

    def query(self, sql: str) -> Any:
        async def ask() -> Any:
            async with connected(self.url) as conn:
                return await conn.fetchval(sql)

        return asyncio.run(ask())


@pytest.fixture
def example(request: pytest.FixtureRequest, worker_id: str, tmp_path: Path) -> Example:
    name = request.param
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".pulse"))
    url = asyncio.run(recreate_database(f"example_{worker_id}"))
    asyncio.run(migrate(Settings(database_url=url)))
    return Example(folder, url)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(condition: Callable[[], Any], example: Example) -> Any:
    give_up_at = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up_at, example.logs()
        time.sleep(0.02)
    return found


def answer(client: httpx.Client, path: str) -> dict[str, Any]:
    try:
        got = client.get(path)
    except httpx.ConnectError:
        return {}
    return got.json() if got.headers["content-type"] == "application/json" else {"detail": got.text}


def visit_the_shop(example: Example, port: int) -> None:
    """What both shops promise: the receipt of an order that was placed, and nothing of one that was not."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
        until(lambda: answer(client, "/orders/1"), example)

        placed = client.post("/orders", json={**LAMP, "quantity": 2})
        assert placed.status_code == 201, placed.text
        order = placed.json()["order"]
        receipt = until(lambda: answer(client, f"/orders/{order}").get("receipt"), example)
        refused = client.post("/orders", json={**LAMP, "quantity": 9})

    assert receipt == "ada@example.com: 2 × lamp"
    assert refused.status_code == 409
    assert example.query("select count(*) from pulse.jobs") == 1
    assert example.query("select status from pulse.jobs") == "COMPLETED"
    assert example.query("select id::text from pulse.jobs") == placed.json()["job"]


@pytest.mark.slow
@pytest.mark.parametrize("example", ["fastapi_app"], indirect=True)
def test_fastapi(example: Example) -> None:
    port = free_port()
    with example.running("uvicorn", more=("--port", str(port))), example.running("pulse", "worker") as worker:
        visit_the_shop(example, port)

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0, example.logs()


@pytest.mark.slow
@pytest.mark.parametrize("example", ["django_app"], indirect=True)
def test_django(example: Example) -> None:
    example.run("python", "manage.py", "migrate")
    port = free_port()
    web = example.running("python", "manage.py", "runserver", more=(str(port), "--noreload"))
    with web, example.running("pulse", "worker") as worker:
        visit_the_shop(example, port)

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0, example.logs()


@pytest.mark.slow
@pytest.mark.parametrize("example", ["script"], indirect=True)
def test_script(example: Example) -> None:
    with example.running("pulse", "dev"):
        said = example.run("python", "receipts.py")

    assert said.splitlines() == [
        "enqueued 3 receipts",
        *(f"wrote receipts/{number}.txt" for number in (1, 2, 3)),
    ]
    assert (example.folder / "receipts" / "2.txt").read_text() == "Thank you, grace@example.com! You paid 5.00.\n"


@pytest.mark.slow
@pytest.mark.parametrize("example", ["sleeping_agent"], indirect=True)
def test_sleeping_agent(example: Example) -> None:
    root = example.query("select secret from pulse.wake_secrets where expires_at is null")
    example.more_env = {"AGENT_PORT": str(free_port()), "WAKE_SECRET": owner_secret(root, "local")}
    diary = example.folder / "diary.txt"
    delivered = "select count(*) from pulse.deliveries where outcome = 'delivered'"
    completed = "select count(*) from pulse.jobs where status = 'COMPLETED'"
    with example.running("pulse", "dev"), example.running("python", "agent.py"):
        until(lambda: diary.exists() and "done" in diary.read_text(), example)
        # The agent may write its last line before its job and the answer to the call that woke it are on record.
        until(lambda: example.query(delivered) == 2 and example.query(completed) == 3, example)

    assert diary.read_text().splitlines() == [
        "turn 1: 50 °C, so sleep",
        "turn 2: 80 °C, so sleep",
        "turn 3: 110 °C, so done",
    ]
    assert (example.query(delivered), example.query(completed)) == (2, 3)


@pytest.mark.parametrize("readme", sorted(EXAMPLES.rglob("README.md")), ids=lambda path: path.parent.name)
def test_links_lead_somewhere(readme: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", readme.read_text()):
        assert (readme.parent / target).exists(), target


def test_each_example_is_listed() -> None:
    listed = re.findall(r"^- \[`(\w+)/`\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(folder.name for folder in EXAMPLES.iterdir() if (folder / "README.md").exists())
