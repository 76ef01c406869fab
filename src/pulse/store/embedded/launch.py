"""As which user do the Postgres programs run, and what do they inherit? (launch_postgres.py becomes each of them.)"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING

from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from pulse.store.embedded.binaries import Binaries

LAUNCHER = Path(__file__).with_name("launch_postgres.py")
# Postgres refuses to run as root, so root tries these in turn. A namespace needs no rights on the folders above, but
# many containers forbid it.
WAYS_FROM_ROOT = ("namespace", "user")


@dataclass(frozen=True, slots=True)
class Launch:
    """Runs Postgres programs on one home."""

    home: Path
    folder: Path
    identity: str
    lock: IO[str]

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """Run a program to its end. Return what it printed if it failed, and otherwise nothing."""
        with self._start(program, *arguments, stdin=subprocess.PIPE, output=subprocess.PIPE) as process:
            said, _ = process.communicate(stdin)
        return (said.strip() or f"{program} failed and printed nothing") if process.returncode else ""

    def keep(self, program: str, *arguments: str) -> tuple[int, Thread]:
        """Start a program from a thread that lives as long as this process. Return its pid and that thread.

        The kernel ends a program when the thread that started it ends, so it cannot be the caller's thread.
        """
        pid: Future[int] = Future()

        def start_and_wait() -> None:
            try:
                with (self.home / "server.log").open("a") as log:
                    process = self._start(program, *arguments, stdin=subprocess.DEVNULL, output=log)
            except BaseException as error:
                pid.set_exception(error)
            else:
                pid.set_result(process.pid)
                process.wait()

        keeper = Thread(target=start_and_wait, name="pulse-postgres", daemon=True)
        keeper.start()
        return pid.result(), keeper

    def _start(self, program: str, *arguments: str, stdin: int, output: int | IO[str]) -> subprocess.Popen[str]:
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), self.identity, str(self.home)]
        # Variables that begin with PG are meant for clients, and Postgres would obey some. With LC_ALL it prints
        # messages that we can read, and macOS needs it.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.Popen(
            [*launcher, str(self.folder / program), *arguments],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            errors="replace",
            env={**environment, "LC_ALL": "C"},
            pass_fds=[self.lock.fileno()],
            start_new_session=True,  # a Ctrl-C in the terminal is for us; we stop the server
        )


def make_launch(home: Path, binaries: Binaries, lock: IO[str], socket_dir: Path) -> Launch:
    if os.geteuid() != 0:
        return Launch(home, binaries.folder, "self", lock)
    user = _ordinary_user()
    refusal = ""
    for way in WAYS_FROM_ROOT:
        launch = Launch(home, binaries.folder, f"{way}:{user.pw_uid}:{user.pw_gid}", lock)
        _give(home, socket_dir, user if way == "user" else pwd.getpwuid(0))
        refusal = launch.run("postgres", "--version")
        if not refusal:
            return launch
    raise EmbeddedPostgresFailed(
        f"Postgres will not run as root, and {user.pw_name} may not enter {home} or {binaries.folder} ({refusal}): "
        "choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
    )


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedPostgresFailed(
        "Postgres will not run as root, and there is no user postgres or nobody: set PULSE_DATABASE_URL"
    )


def _give(home: Path, socket_dir: Path, user: pwd.struct_passwd) -> None:
    """Give this user the folders of the server, and let it pass through the state folder without listing it."""
    paths, data = [home, socket_dir], home / "data"
    if data.exists() and data.stat().st_uid != user.pw_uid:
        paths += [*data.rglob("*"), data]  # the folder itself last, so that an interrupted change is taken up again
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    if user.pw_uid != 0:
        home.parent.chmod(stat.S_IMODE(home.parent.stat().st_mode) | 0o011)
