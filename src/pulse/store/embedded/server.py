"""How does a project that was given no database get a Postgres, and what starts and stops it?

Everything is kept in `<state folder>/postgres`, called home below:

    data/          the cluster; made as data.new/ and then renamed, so it is whole or not there
    server.json    the server that runs, or that ended without removing this file
    server.log     its log
    start.lock     held while somebody starts or stops the server
    server.lock    held by the server itself, until its last process ends
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from pulse.model.errors import EmbeddedPostgresFailed
from pulse.store.embedded.binaries import choose_binaries
from pulse.store.embedded.launch import make_launch
from pulse.store.embedded.record import (
    Record,
    is_alive,
    is_held,
    is_ready,
    locked,
    postmaster,
    read_record,
    this_place,
    write_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from threading import Thread

    from pulse.store.embedded.binaries import Binaries
    from pulse.store.embedded.launch import Launch

START_PATIENCE = 60.0  # seconds; after a crash, recovery comes first
ENDINGS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 10.0))  # a fast shutdown; if that hangs, an abrupt one
END_PATIENCE = 10.0
ENDS_WITH_OWNER = sys.platform == "linux"  # elsewhere the server outlives a killed owner, and the next start adopts it

SOCKET_PORT = 5432  # without TCP it is only a part of the name of the socket file
LONGEST_SOCKET_PATH = 103  # bytes, on macOS; Linux takes 107
SETTINGS = MappingProxyType({"max_connections": "100", "shared_buffers": "128MB", "fsync": "on"})
# The socket's folder is closed to other users. Loopback is open to all of them, so it asks for a password.
CLIENT_RULES = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
LOCALES = ("C.UTF-8", "C")  # not every system has the first
PASSWORD = "data/pulse.password"  # noqa: S105  (where it is kept)


@dataclass(slots=True)
class EmbeddedPostgres:
    """A running server, and a context manager. Closing it stops the server if this process owns it."""

    dsn: str = field(repr=False)  # over TCP, with the password, if the server listens there
    owned: bool
    major: int
    pid: int
    home: Path
    keeper: Thread | None = field(default=None, repr=False)

    def close(self) -> None:
        if not self.owned:
            return
        self.owned = False
        with _explained(self.home), locked(self.home / "start.lock"):
            record = read_record(self.home)
            # In a forked copy of the owner, or once another server has taken over, there is nothing to stop.
            if record and (record.pid, record.owner) == (self.pid, os.getpid()):
                _end(self.home, record)
        if self.keeper:
            self.keeper.join(END_PATIENCE)

    @property
    def is_running(self) -> bool:
        """Return whether a server of this folder is ready: this one, or one that came after it."""
        return running(self.home.parent) is not None

    def follow(self, other: EmbeddedPostgres) -> None:
        """Stand for the newer server that runs in this folder now."""
        self.owned, self.pid, self.keeper = other.owned, other.pid, other.keeper

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    state_dir: Path, *, postgres: str = "auto", port: int | None = None, settings: Mapping[str, str] = {}
) -> EmbeddedPostgres:
    """Attach to the server of this folder, or start one. May be called from any thread.

    With a `port` (0: any free one) the server also listens on loopback. `settings` are added to SETTINGS, for a server
    that is started here; one that runs already keeps its own.
    """
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(exist_ok=True)
        home.chmod(0o700)
        with locked(home / "start.lock"):
            if record := _settled(home):
                return _attached(home, record, port)
            _forget(home)
            return _started(home, choose_binaries(home, postgres), port, settings)


def running(state_dir: Path) -> EmbeddedPostgres | None:
    """Attach to the server of this folder if one is ready; start nothing, wait for nothing."""
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        record = read_record(home)
        return _server(home, record, owned=False) if record and is_ready(home, record) else None


def stop(state_dir: Path) -> bool:
    """Stop the server of this folder, whoever owns it; False if none was running."""
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        if not (home / "server.json").exists():
            return False
        with locked(home / "start.lock"):
            record, was_running = read_record(home), is_held(home)
            if record:
                _end(home, record)
            return record is not None and was_running


# --- starting and stopping


def _settled(home: Path) -> Record | None:
    """Return the record of a server that stays, or None once nothing of an earlier one is left.

    A server whose owner was killed is about to end, so wait for that. If it stays all the same, it is used.
    """

    def stays() -> bool:
        record = read_record(home)
        return bool(record and is_ready(home, record) and (is_alive(record.owner) or not ENDS_WITH_OWNER))

    _wait_for(lambda: stays() or not is_held(home), END_PATIENCE)
    if not is_held(home):
        return None
    record = read_record(home)
    if record and is_ready(home, record):
        return record
    raise EmbeddedPostgresFailed(
        f"an earlier server in {home} still runs but cannot be used from here, perhaps because it belongs to another "
        "container: stop it, choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
    )


def _attached(home: Path, record: Record, port: int | None) -> EmbeddedPostgres:
    if port is not None and (record.port is None or port not in (0, record.port)):
        listens = f"listens on port {record.port}" if record.port else "does not listen on TCP"
        raise EmbeddedPostgresFailed(f"the server in {home} (pid {record.pid}) {listens}; stop it to have port {port}")
    if is_alive(record.owner):
        return _server(home, record, owned=False)
    adopted = replace(record, owner=os.getpid())
    write_record(home, adopted)
    return _server(home, adopted, owned=True)


def _started(home: Path, binaries: Binaries, port: int | None, settings: Mapping[str, str]) -> EmbeddedPostgres:
    port = _free_port() if port == 0 else port
    socket_dir = _socket_folder(home, port or SOCKET_PORT)
    with locked(home / "server.lock") as lock:
        launch = make_launch(home, binaries, lock, socket_dir)
        if not (home / "data").exists():
            _make_data(launch)
        pid, keeper = launch.keep("postgres", *_server_arguments(home, socket_dir, port, settings))
    record = Record(str(home), this_place(), os.getpid(), pid, binaries.major, str(socket_dir), port)
    try:
        write_record(home, record)
        _await_ready(home, record, keeper)
    except BaseException:
        _end(home, record)
        raise
    return _server(home, record, owned=True, keeper=keeper)


def _await_ready(home: Path, record: Record, keeper: Thread) -> None:
    _wait_for(lambda: is_ready(home, record) or not keeper.is_alive(), START_PATIENCE)
    if not is_ready(home, record):
        lines = (home / "server.log").read_text(errors="replace").splitlines()
        raise EmbeddedPostgresFailed("\n".join([f"Postgres did not start in {home}; it said:", *lines[-10:]]))


def _make_data(launch: Launch) -> None:
    new = launch.home / "data.new"
    refusal = ""
    for locale in LOCALES:
        if new.exists():
            shutil.rmtree(new)
        choices = ("--username=pulse", "--auth=trust", "--encoding=UTF8", f"--locale={locale}")
        refusal = launch.run("initdb", "-D", str(new), *choices)
        if "invalid locale" not in refusal:
            break
    password = secrets.token_urlsafe(24)
    orders = f"create database pulse\nalter role pulse password '{password}'\n"
    single = ("postgres", "--single", "-D", str(new), "-c", "exit_on_error=on", "postgres")
    if refusal := refusal or launch.run(*single, stdin=orders):
        raise EmbeddedPostgresFailed(f"no database could be made in {launch.home}:\n{refusal}")
    (new / "pg_hba.conf").write_text(CLIENT_RULES)
    kept = new / Path(PASSWORD).name
    kept.touch(mode=0o600)
    kept.write_text(password)
    new.rename(launch.home / "data")


def _server_arguments(home: Path, socket_dir: Path, port: int | None, settings: Mapping[str, str]) -> list[str]:
    addresses = "" if port is None else "127.0.0.1"
    chosen = {**SETTINGS, "listen_addresses": addresses, "port": str(port or SOCKET_PORT), **settings}
    options = [f"--{name}={value}" for name, value in chosen.items()]
    return ["-D", str(home / "data"), "-k", str(socket_dir), *options]


def _socket_folder(home: Path, port: int) -> Path:
    path = str(home / f".s.PGSQL.{port}")
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH and "," not in path:  # a comma separates two hosts in a dsn
        return home
    return Path(tempfile.mkdtemp(prefix="pulse-"))  # only this user may enter it


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _end(home: Path, record: Record) -> None:
    """Stop the server and wait until it has ended."""
    for ending, patience in ENDINGS:
        if is_held(home) and record.place == this_place():
            with suppress(ProcessLookupError):
                os.kill(record.pid, ending)
        if _wait_for(lambda: not is_held(home), patience):
            return _forget(home)
    raise EmbeddedPostgresFailed(f"the server in {home} (pid {record.pid}) does not stop")


def _forget(home: Path) -> None:
    """Remove what an ended server has left. If its pid is reused, Postgres would think that it still runs."""
    record = read_record(home)
    if record is None:
        return
    if postmaster(home)[0] == record.pid:
        (home / "data" / "postmaster.pid").unlink(missing_ok=True)
    for left in Path(record.socket_dir).glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)
    if Path(record.socket_dir) != home:
        with suppress(OSError):
            Path(record.socket_dir).rmdir()
    (home / "server.json").unlink(missing_ok=True)


def _server(home: Path, record: Record, *, owned: bool, keeper: Thread | None = None) -> EmbeddedPostgres:
    if record.port is None:
        dsn = f"postgresql://pulse@/pulse?host={quote(record.socket_dir)}&port={SOCKET_PORT}"
    else:
        dsn = f"postgresql://pulse:{(home / PASSWORD).read_text()}@127.0.0.1:{record.port}/pulse"
    return EmbeddedPostgres(dsn, owned, record.major, record.pid, home, keeper)


@contextmanager
def _explained(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedPostgresFailed(
            f"{home} cannot be used ({error}): choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
        ) from error


def _wait_for(condition: Callable[[], bool], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met
