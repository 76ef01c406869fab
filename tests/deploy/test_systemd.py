"""Does systemd read our units without a word, and do their commands start, say so, and end when told?"""

from __future__ import annotations

import re
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from pulse.server import CALLS_GRACE, STREAMS_GRACE
from pulse.settings import Settings
from tests.deploy.programs import BIN, DEPLOY, find_program, needs, run_program, running
from tests.doors.worker_processes import TASKS

UNITS = DEPLOY / "systemd"
SERVER, WORKER = UNITS / "pulse-server.service", UNITS / "pulse-worker@.service"
EXPOSURE = 20  # tenths; of 100, which is a service that may do everything
needs_systemd = needs("systemd-analyze", "Debian's systemd")


class Unit:
    """What a unit says, as far as a test has to do what systemd would."""

    def __init__(self, file: Path, instance: str = "") -> None:
        text = file.read_text().replace("%i", instance)
        self._lines = re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)

    def all(self, key: str) -> list[str]:
        return [value for name, value in self._lines if name == key]

    def __getitem__(self, key: str) -> str:
        [value] = self.all(key)
        return value

    def environment(self, example: str) -> dict[str, str]:
        """Of the unit, and of the file that it names: here, of the example for that."""
        pairs = [pair for line in self.all("Environment") for pair in shlex.split(line)]
        pairs += re.findall(r"^\w+=.*$", (UNITS / example).read_text(), re.MULTILINE)
        return dict(pair.split("=", 1) for pair in pairs)

    def command(self, env: dict[str, str]) -> list[str]:
        return [re.sub(r"\$\{(\w+)\}", lambda name: env[name[1]], word) for word in self["ExecStart"].split()]


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """The other end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        listening.settimeout(60)
        yield listening


def hear(listening: socket.socket) -> str:
    return listening.recv(1024).decode()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(TASKS)
    return tmp_path


# --- what systemd says of them


@needs_systemd
@pytest.mark.parametrize(("unit", "name"), [(SERVER, SERVER.name), (WORKER, "pulse-worker@shop.service")])
def test_systemd_has_nothing_to_say_about_a_unit(unit: Path, name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(re.sub(r"^ExecStart=\S+/bin/", f"ExecStart={BIN}/", unit.read_text(), flags=re.MULTILINE))

    assert run_program("systemd-analyze", "verify", "--man=no", file) == ""


@needs_systemd
@pytest.mark.parametrize("unit", [SERVER, WORKER], ids=lambda unit: unit.name)
def test_a_service_may_do_little_beyond_its_work(unit: Path, tmp_path: Path) -> None:
    file = tmp_path / unit.name.replace("@", "@shop")
    file.write_text(unit.read_text())

    run_program("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE}", "--no-pager", file)


@needs_systemd
def test_systemd_is_heard_when_a_unit_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "wrong.service"
    file.write_text(f"[Service]\nExecStart={find_program('pulse')}\nKillMode=banana\n")

    assert "banana" in run_program("systemd-analyze", "verify", "--man=no", file)


# --- what they promise


def test_a_stop_takes_longer_than_the_grace() -> None:
    grace = Settings.from_env(Unit(WORKER, "shop").environment("worker.env.example")).grace

    assert float(Unit(SERVER)["TimeoutStopSec"]) >= STREAMS_GRACE + CALLS_GRACE + 10
    assert timedelta(seconds=float(Unit(WORKER)["TimeoutStopSec"])) >= grace + timedelta(seconds=10)


@pytest.mark.parametrize("unit", [SERVER, WORKER], ids=lambda unit: unit.name)
def test_a_service_comes_back_however_often_it_fails(unit: Path) -> None:
    assert (Unit(unit)["Restart"], Unit(unit)["StartLimitIntervalSec"], Unit(unit)["Type"]) == ("always", "0", "notify")


# --- their commands, started


def test_the_server_starts_says_so_and_ends_when_told(settings: Settings, tmp_path: Path) -> None:
    unit, address = Unit(SERVER), str(tmp_path / "notify")
    free = {"PULSE_LISTEN": "127.0.0.1:0", "PULSE_HTTP_LISTEN": "127.0.0.1:0", "PULSE_SERVER_HEALTH_PORT": "0"}
    env = unit.environment("server.env.example")
    assert env.keys() >= free.keys()
    env |= free | {"PULSE_DATABASE_URL": str(settings.database_url), "NOTIFY_SOCKET": address}

    with manager(address) as listening, running(unit.command(env), tmp_path, env) as server:
        assert hear(listening) == "READY=1"
        told_at = time.monotonic()
        server.process.send_signal(getattr(signal, unit["KillSignal"]))
        assert hear(listening) == "STOPPING=1"
        assert server.exit_code() == 0, server.text
        assert time.monotonic() - told_at < float(unit["TimeoutStopSec"])


def test_the_worker_starts_says_so_and_ends_when_told(settings: Settings, shop: Path) -> None:
    unit, address = Unit(WORKER, "shop"), f"@pulse-{shop}"
    env = unit.environment("worker.env.example")
    env |= {"PULSE_DATABASE_URL": str(settings.database_url), "NOTIFY_SOCKET": address, "PULSE_WORKER_HEALTH_PORT": "0"}

    with manager(address) as listening, running(unit.command(env), shop, env) as worker:
        assert hear(listening) == "READY=1"
        told_at = time.monotonic()
        worker.process.send_signal(getattr(signal, unit["KillSignal"]))
        assert hear(listening) == "STOPPING=1"
        assert worker.exit_code() == 0, worker.text
        assert time.monotonic() - told_at < float(unit["TimeoutStopSec"])


def test_a_manager_that_does_not_listen_is_no_reason_to_fail(settings: Settings, shop: Path) -> None:
    unit = Unit(WORKER, "shop")
    env = unit.environment("worker.env.example") | {
        "PULSE_DATABASE_URL": str(settings.database_url),
        "PULSE_WORKER_HEALTH_PORT": "0",
        "NOTIFY_SOCKET": str(shop / "nobody"),
    }

    with running(unit.command(env), shop, env) as worker:
        worker.expect("READY=1 could not be sent to the service manager: ")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0, worker.text
