"""The command line as a test calls it: in this process for its texts, as a real one for the rest."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from select import select
from typing import Any, NamedTuple

from click.testing import CliRunner, Result

from pulse.cli.main import cli

PROGRAM = (sys.executable, "-m", "pulse.cli.main")
PATIENCE = 60  # seconds


class Ended(NamedTuple):
    exit_code: int
    output: str  # as the terminal got it

    @property
    def text(self) -> str:
        """Without the colours."""
        return re.sub("\x1b\\[[0-9;]*m", "", self.output)


def call(*args: object, **env: str | None) -> Result:
    """In this process; `env` adds to the environment, and None takes away from it."""
    return CliRunner().invoke(cli, [str(arg) for arg in args], env=env)


def call_json(*args: object, **env: str | None) -> Any:
    result = call("--json", *args, **env)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def environment(**env: str) -> dict[str, str]:
    """Ours without the settings of Pulse, but for which Postgres to start; and no HTTP, whose port is one for all."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("PULSE_") or name.endswith("_POSTGRES")
    }
    kept.pop("DATABASE_URL", None)
    return kept | {"PULSE_HTTP_LISTEN": ""} | env


def start_process(*args: object, **env: str) -> subprocess.Popen[str]:
    command = [*PROGRAM, *map(str, args)]
    return subprocess.Popen(
        command,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def run_process(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    with start_process(*args, **env) as process:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run_on_terminal(*args: object, typed: str = "", columns: int = 80, env: dict[str, str]) -> Ended:
    """As a person would: on a terminal of that width, typing `typed`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [*PROGRAM, *map(str, args)]
    with subprocess.Popen(
        command,
        env=environment(TERM="xterm", **env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        output = _read_to_end(ours)
    os.close(ours)
    return Ended(process.returncode, output)


def _read_to_end(terminal: int) -> str:
    output, give_up_at = b"", time.monotonic() + PATIENCE
    while time.monotonic() < give_up_at:
        if not select([terminal], [], [], 1)[0]:
            continue
        try:
            read = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody writes there any more
            break
        output += read
        if not read:
            break
    return output.decode(errors="replace")
