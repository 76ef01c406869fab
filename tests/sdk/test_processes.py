"""Handlers in processes of their own, on a real worker: what they return, how they die, and who notices."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.model.errors import InvalidApp
from pulse.model.jobs import FINISHED, Job, JobStatus, NewJob
from pulse.sdk.context import Context, placeholder_context
from pulse.sdk.task import Call
from pulse.sdk.worker.process_handle import Process
from pulse.sdk.worker.process_pool import ProcessPool
from pulse.sdk.worker.run import EndReason, Run
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from tests.sdk.apps import in_processes, split_app, split_tasks, with_middlewares
from tests.waiting import until

SCRIPT = str(Path(__file__).parent / "apps" / "script.py")
# Stopping takes as long as the heart's pause, and cancelling as long as a heartbeat.
QUICK: dict[str, Any] = {
    "processes": 2,
    "grace": timedelta(),
    "lease": timedelta(seconds=3),
    "heartbeat": timedelta(seconds=0.3),
    "tick": timedelta(seconds=0.05),
}


@asynccontextmanager
async def working(settings: Settings, app: Pulse = in_processes.app, **changes: Any) -> AsyncIterator[Worker]:
    worker = Worker(app, settings=replace(settings, **QUICK | changes))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 15)


async def submit(engine: Engine, *calls: Call[Any] | NewJob) -> list[UUID]:
    jobs = [call if isinstance(call, NewJob) else call.job for call in calls]
    return [submitted.id for submitted in await engine.jobs.submit(jobs)]


async def finished(engine: Engine, job_id: UUID) -> Job:
    async with asyncio.timeout(10):
        while (job := await engine.jobs.get(job_id)).status not in FINISHED:
            await asyncio.sleep(0.01)
    return job


async def run(engine: Engine, call: Call[Any]) -> Job:
    [job_id] = await submit(engine, call)
    return await finished(engine, job_id)


async def result_of(engine: Engine, call: Call[Any]) -> Any:
    job = await run(engine, call)
    assert job.status is JobStatus.COMPLETED, job.last_error
    return msgspec.json.decode(job.result or "null")


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(5):
        while not (text := text_in(path)):
            await asyncio.sleep(0.01)
    return int(text.split()[0])


def text_in(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def state_of(pid: int) -> str:
    """As ps has it: empty once nothing is left of it, Z for one that nobody has taken off the list."""
    return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


async def gone(pid: int, seconds: float = 1.0, *, orphan: bool = False) -> None:
    """Orphans are the system's to take off the list, which it does when it likes."""
    ends = ("", "Z") if orphan else ("",)
    async with asyncio.timeout(seconds):
        while state_of(pid)[:1] not in ends:
            await asyncio.sleep(0.02)


def attempts_of(job: Job) -> int:
    return job.attempt - job.refunded


# --- work


async def test_a_retry_needs_no_raise_in_front_in_a_process_either(engine: Engine, settings: Settings) -> None:
    async with working(settings):
        assert await result_of(engine, in_processes.retry_without_raise.call()) == 2


async def test_a_handler_in_a_process_may_enqueue_and_blocks_no_loop(engine: Engine, settings: Settings) -> None:
    async with working(settings):
        call = in_processes.enqueue_without_a_warning.call(str(settings.database_url))
        job = await engine.jobs.get(UUID(await result_of(engine, call)))

    assert job.task == "shop.greet"


async def test_its_result_comes_back_from_another_process_which_stays_for_the_next(
    settings: Settings, engine: Engine
) -> None:
    async with working(settings):
        pids = [await result_of(engine, in_processes.own_pid.call()) for _ in range(3)]

    assert len(set(pids)) == 1
    assert pids[0] != os.getpid()
    assert state_of(pids[0]) == ""


async def test_its_arguments_are_what_its_annotations_say(settings: Settings, engine: Engine) -> None:
    call = in_processes.due_in.call(in_processes.Invoice(1, date(2026, 2, 1)), today=date(2026, 1, 1))

    async with working(settings):
        assert await result_of(engine, call) == 31


async def test_an_async_handler_runs_on_the_loop_of_the_startup_hooks(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        answers = [await result_of(engine, in_processes.on_the_loop_of_the_startup_hook.call()) for _ in range(2)]

    assert answers == [[True], [True]]


async def test_middlewares_are_around_it_the_first_one_outermost(settings: Settings, engine: Engine) -> None:
    async with working(settings, with_middlewares.app):
        awaited = await result_of(engine, with_middlewares.awaited.call())
        sync = await result_of(engine, with_middlewares.with_a_loop_of_its_own.call())

    assert awaited == ["before awaited", "then inner", "after inner", "after outer"]
    assert sync[-4:] == ["before with_a_loop_of_its_own", "then inner", "after inner", "after outer"]


async def test_progress_is_seen_while_it_runs(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    async def is_noted() -> bool:
        return (await engine.jobs.get(job_id)).progress is not None

    async with working(settings):
        [job_id] = await submit(engine, in_processes.say_how_far.call(str(tmp_path / "go")))
        await until(is_noted)
        seen = await engine.jobs.get(job_id)
        (tmp_path / "go").touch()
        await finished(engine, job_id)

    assert seen.status is JobStatus.RUNNING
    assert msgspec.json.decode(seen.progress or "") == {"done": 7}


async def test_a_thread_left_behind_does_not_speak_for_the_next_job(
    settings: Settings, engine: Engine, tmp_path: Path
) -> None:
    async with working(settings, processes=1):
        await run(engine, in_processes.leave_a_thread_that_notes.call(str(tmp_path / "go")))
        [job_id] = await submit(engine, in_processes.wait_for.call(str(tmp_path / "go.noted")))
        (tmp_path / "go").touch()
        job = await finished(engine, job_id)

    assert (job.result, job.progress) == ("true", None)


async def test_what_it_prints_does_no_harm_and_its_warnings_are_passed_on(
    settings: Settings, engine: Engine, capfd: pytest.CaptureFixture[str]
) -> None:
    async with working(settings):
        assert await result_of(engine, in_processes.chatter.call()) == "heard"

    printed = capfd.readouterr()
    assert "x" * 100_000 in printed.out
    assert "y" * 200_000 in printed.err
    assert "WARNING shop: mind the step" in printed.err
    assert "nothing to see" not in printed.err


async def test_it_is_replaced_after_so_many_jobs(
    settings: Settings, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessPool, "jobs_per_process", 2)
    monkeypatch.setenv("SHUTDOWN_LOG", str(tmp_path / "ended"))

    async with working(settings):
        pids = [await result_of(engine, in_processes.own_pid.call()) for _ in range(3)]

    assert pids[0] == pids[1] != pids[2]
    ended = {int(line) for line in (tmp_path / "ended").read_text().split()}
    assert ended == {*pids, os.getpid()}  # each has run its shutdown hook, and the worker its own


async def test_tasks_are_found_in_modules_other_than_the_app_s(settings: Settings, engine: Engine) -> None:
    async with working(settings, split_app.app):
        assert await result_of(engine, split_tasks.elsewhere.call()) == "found"


async def test_a_program_it_starts_can_be_terminated(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        assert await result_of(engine, in_processes.terminate_a_program.call()) == -signal.SIGTERM


# --- failures


async def test_an_exception_fails_the_job_with_the_handler_s_own_traceback(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        job = await run(engine, in_processes.fail.call())

    [attempt] = await engine.jobs.attempts(job.id)
    assert (job.status, job.last_error) == (JobStatus.DEAD_LETTERED, "ZeroDivisionError: on purpose")
    lines = (attempt.traceback or "").splitlines()
    assert "in_processes.py" in lines[1]
    assert lines[1].endswith("in fail")
    assert lines[-1] == "ZeroDivisionError: on purpose"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (in_processes.discard.call(), "no use"),
        (in_processes.leave.call(), "SystemExit: enough"),
        (in_processes.leave_when_asked.call(), "Leaving: (its message could not be read: SystemExit)"),
        (in_processes.leave_when_asked_on_the_loop.call(), "Leaving: (its message could not be read: SystemExit)"),
        (in_processes.retry_in.call(-1), "InvalidOption: retry must be a length of time"),
    ],
    ids=["discard", "sys.exit", "sys.exit when asked", "the same on the loop", "a delay that there is not"],
)
async def test_its_last_word_is_kept(settings: Settings, engine: Engine, call: Call[Any], words: str) -> None:
    async with working(settings):
        job = await run(engine, call)
        later = await result_of(engine, in_processes.own_pid.call())

    assert job.status is JobStatus.DEAD_LETTERED
    assert (job.last_error or "").startswith(words)
    assert later


async def test_what_waited_for_a_process_until_its_lease_had_ended_is_given_back(
    settings: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker stood still meanwhile, say: by now others may run the job."""
    looks = count(1)  # the second of a first claim is the one that comes too late
    monkeypatch.setattr(Run, "may_begin", property(lambda run: run.claim.attempt > 1 or next(looks) < 2))
    async with working(settings):
        job = await run(engine, in_processes.own_pid.call())

    assert (job.status, job.attempt, job.refunded) == (JobStatus.COMPLETED, 2, 1)


async def test_an_app_that_does_not_import_there_fails_the_job_clearly(
    settings: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAK_THE_IMPORT", "1")

    async with working(settings):
        job = await run(engine, in_processes.fail.call())

    assert (job.status, attempts_of(job)) == (JobStatus.DEAD_LETTERED, 1)
    assert "cannot be imported: RuntimeError: the configuration is missing" in (job.last_error or "")
    assert 'raise RuntimeError("the configuration is missing")' in (job.last_error or "")


async def test_a_task_that_an_import_does_not_declare_says_so(settings: Settings, engine: Engine) -> None:
    def hidden() -> None: ...

    task = in_processes.app.task(name="hidden", executor="process", retry=1)(hidden)
    try:
        async with working(settings):
            job = await run(engine, task.call())
    finally:
        del in_processes.app.tasks["hidden"]

    assert job.status is JobStatus.DEAD_LETTERED
    assert "does not know task 'hidden' after importing the app" in (job.last_error or "")


async def test_an_app_that_is_no_variable_of_a_module_is_refused_at_the_start(settings: Settings) -> None:
    app = Pulse()
    app.task(name="nowhere", executor="process", retry=1)(in_processes.own_pid.function)

    with pytest.raises(InvalidApp, match="module-level variable"):
        await Worker(app, settings=settings).run()


# --- deaths


async def test_a_segfault_is_a_dead_letter_in_the_end_and_its_neighbours_do_not_notice(
    settings: Settings, engine: Engine, tmp_path: Path
) -> None:
    path = str(tmp_path / "go")
    neighbours: list[Call[Any]] = [
        in_processes.neighbour_on_the_loop.call(path),
        in_processes.neighbour_on_a_thread.call(path),
        in_processes.wait_for.call(path),
    ]

    async with working(settings):
        ids = await submit(engine, *neighbours)
        crashed = await run(engine, in_processes.segfault.call())
        (tmp_path / "go").touch()
        others = [await finished(engine, job_id) for job_id in ids]

    assert (crashed.status, attempts_of(crashed)) == (JobStatus.DEAD_LETTERED, 2)
    assert (crashed.last_error or "").startswith("its process died: SIGSEGV\n")
    assert {(job.status, attempts_of(job)) for job in others} == {(JobStatus.COMPLETED, 1)}
    assert [job.result for job in others] == ['"loop"', '"thread"', "true"]


async def test_the_line_that_crashed_is_on_the_job(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        job = await run(engine, in_processes.read_address_zero.call())

    assert (job.last_error or "").startswith("its process died: SIGSEGV\n")
    assert "in read_address_zero" in (job.last_error or "")


async def test_an_exit_code_and_last_words_are_on_the_job(
    settings: Settings, engine: Engine, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    async with working(settings):
        job = await run(engine, in_processes.exit_at_once.call())
        later = await result_of(engine, in_processes.own_pid.call())

    assert job.status is JobStatus.DEAD_LETTERED
    assert job.last_error == "its process died: exited with code 3\nthese are my last words"
    printed = capfd.readouterr()
    assert ("these are on stdout" in printed.out, "these are my last words" in printed.err) == (True, True)
    assert later


async def test_a_kill_by_the_kernel_says_what_it_may_mean(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        job = await run(engine, in_processes.run_out_of_memory.call())

    assert job.last_error == "its process died: SIGKILL (if nobody sent it, the machine ran out of memory)"


async def test_a_death_is_noticed_even_if_somebody_holds_the_socket_open(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        job = await run(engine, in_processes.fork_and_die.call())

    assert job.last_error == "its process died: exited with code 4"


async def test_what_it_had_started_dies_with_it(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    async with working(settings):
        job = await run(engine, in_processes.start_a_program_and_die.call(str(tmp_path / "pid")))
        await gone(await pid_in(tmp_path / "pid"), orphan=True)

    assert job.last_error == "its process died: exited with code 5"


async def test_one_that_closes_its_socket_does_not_go_on_unseen(
    settings: Settings, engine: Engine, tmp_path: Path
) -> None:
    async with working(settings):
        job = await run(engine, in_processes.close_everything.call(str(tmp_path / "pid")))

        assert "closed the connection" in (job.last_error or "")
        await gone(await pid_in(tmp_path / "pid"))


async def test_a_copy_that_a_handler_forked_has_no_voice(settings: Settings, engine: Engine) -> None:
    async with working(settings):
        pid = await result_of(engine, in_processes.fork_and_return.call())
        later = [await result_of(engine, in_processes.own_pid.call()) for _ in range(3)]

    assert later == [pid] * 3


# --- being ended


async def test_a_timeout_kills_it_and_what_it_started(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    async with working(settings) as worker:
        warm = await result_of(engine, in_processes.own_pid.call())
        job = await run(engine, in_processes.start_a_program.using(timeout=0.3).call(str(tmp_path / "pid")))
        program = await pid_in(tmp_path / "pid")
        await gone(warm)
        await gone(program, orphan=True)
        later = await result_of(engine, in_processes.own_pid.call())

    assert (job.status, job.last_error) == (JobStatus.DEAD_LETTERED, "timed out after 0.3 s")
    assert later != warm
    assert worker._slots.free["process"] == 2


async def test_a_cancelled_job_s_process_is_killed(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    async with working(settings):
        [job_id] = await submit(engine, in_processes.stay.call(str(tmp_path / "pid")))
        pid = await pid_in(tmp_path / "pid")

        await engine.jobs.cancel(job_id, reason="not needed")

        await gone(pid, 2)
        assert (await engine.jobs.get(job_id)).status is JobStatus.CANCELLED
        assert await result_of(engine, in_processes.own_pid.call()) != pid


async def test_a_stopping_worker_gives_it_back_uncharged(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    async with working(settings, grace=timedelta(seconds=0.3)) as worker:
        [job_id] = await submit(engine, in_processes.stay.call(str(tmp_path / "pid")))
        pid = await pid_in(tmp_path / "pid")
        worker.stop()
        await asyncio.sleep(0.1)
        during_grace = state_of(pid)

    job = await engine.jobs.get(job_id)
    assert during_grace != ""
    assert state_of(pid) == ""
    assert (job.status, attempts_of(job)) == (JobStatus.PENDING, 0)


async def test_signals_to_everyone_leave_its_end_to_the_worker(
    settings: Settings, engine: Engine, tmp_path: Path
) -> None:
    async with working(settings):
        [job_id] = await submit(engine, in_processes.withstand.call(str(tmp_path / "pid"), str(tmp_path / "go")))
        pid = await pid_in(tmp_path / "pid")
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        await asyncio.sleep(0.1)
        (tmp_path / "go").touch()
        job = await finished(engine, job_id)

    assert (job.result, attempts_of(job)) == ('"finished"', 1)


# --- the pool itself


def a_run(call: Call[Any]) -> Run:
    claim = msgspec.structs.replace(placeholder_context(call.job.task)._claim, payload=call.job.payload)
    return Run(claim, call.task, Context(claim, schema="pulse"), math.inf)


def open_files() -> set[str]:
    return {path.name for path in Path("/dev/fd").iterdir()}


def ignore(_: str) -> None: ...


async def pid_of_one(pool: ProcessPool) -> int:
    report = await pool.execute(a_run(in_processes.own_pid.call()), ignore)
    assert report is not None
    return int(report.result or report.error)


async def test_closing_leaves_nothing_open_and_nobody_alive(tmp_path: Path) -> None:
    before = open_files()
    pool = ProcessPool(in_processes.app, 2)
    crashed = await pool.execute(a_run(in_processes.segfault.call()), ignore)
    busy = asyncio.create_task(pool.execute(a_run(in_processes.stay.call(str(tmp_path / "busy"))), ignore))
    pids = [await pid_in(tmp_path / "busy"), await pid_of_one(pool)]

    await pool.close()

    assert crashed is not None
    assert await busy is not None
    assert [state_of(pid) for pid in pids] == ["", ""]
    assert not pool._processes
    assert open_files() <= before, "and what earlier tests left may be closed meanwhile"


@pytest.mark.parametrize("is_patient", [False, True])
async def test_closing_waits_for_the_shutdown_hooks_of_one_just_replaced_and_of_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    monkeypatch.setattr(ProcessPool, "jobs_per_process", 1)
    monkeypatch.setenv("SHUTDOWN_LOG", str(tmp_path / "ended"))
    pool = ProcessPool(in_processes.app, 1)
    pids = {await pid_of_one(pool)}
    if is_patient:
        pids |= {(await starting).pid for starting in pool._starting}

    await pool.close()

    assert {int(line) for line in text_in(tmp_path / "ended").split()} == pids
    assert len(pids) == 1 + is_patient


async def test_ending_a_run_kills_its_process(tmp_path: Path) -> None:
    pool = ProcessPool(in_processes.app, 1)
    ended = a_run(in_processes.stay.call(str(tmp_path / "pid")))
    executing = asyncio.create_task(pool.execute(ended, ignore))
    pid = await pid_in(tmp_path / "pid")

    ended.end(EndReason.TIMEOUT)

    done, _ = await asyncio.wait({executing}, timeout=1)
    assert [task.result() for task in done] == [None]
    assert state_of(pid) == ""
    await pool.close()


async def test_cancelling_kills_its_process_and_gives_its_seat_to_another(tmp_path: Path) -> None:
    pool = ProcessPool(in_processes.app, 1)
    executing = asyncio.create_task(pool.execute(a_run(in_processes.stay.call(str(tmp_path / "pid"))), ignore))
    pid = await pid_in(tmp_path / "pid")

    executing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await executing
    assert state_of(pid) == ""
    assert await pid_of_one(pool) != pid
    await pool.close()


async def test_a_run_ended_while_its_process_starts_leaves_that_to_the_next() -> None:
    """Or a timeout shorter than the import of the app could never be met."""
    pool = ProcessPool(in_processes.app, 1)
    process = await start_and_end(pool)

    assert await pid_of_one(pool) == process.pid
    await pool.close()


async def test_signals_while_it_starts_do_not_end_it_either() -> None:
    pool = ProcessPool(in_processes.app, 1)
    process = await start_and_end(pool)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)

    assert await pid_of_one(pool) == process.pid
    await pool.close()


async def test_closing_ends_a_process_that_starts() -> None:
    pool = ProcessPool(in_processes.app, 1)
    process = await start_and_end(pool)

    await pool.close()

    assert state_of(process.pid) == ""


async def start_and_end(pool: ProcessPool) -> Process:
    starting = a_run(in_processes.own_pid.call())
    executing = asyncio.create_task(pool.execute(starting, ignore))
    while not pool._processes:
        await asyncio.sleep(0.001)
    starting.end(EndReason.TIMEOUT)
    executing.cancel()
    assert await executing is None
    [process] = pool._processes
    return process


async def test_a_process_that_died_while_idle_is_not_given_a_job() -> None:
    pool = ProcessPool(in_processes.app, 1)
    first = await pid_of_one(pool)
    os.kill(first, signal.SIGKILL)
    await gone(first)

    second = await pid_of_one(pool)
    await pool.close()

    assert second != first


# --- a program of its own


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_nothing_outlives_a_worker_that_is_killed(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    """And a script is found by its file: its own process runs it as a module, without the part that starts it."""
    job = NewJob(task="script.stay", payload=msgspec.json.encode({"path": str(tmp_path / "pid")}).decode())

    with python(SCRIPT, str(settings.database_url)) as process:
        await submit(engine, job)
        pid = await pid_in(tmp_path / "pid")
        assert state_of(pid)
        process.kill()

        await gone(pid, 1, orphan=True)

    assert (tmp_path / "pid").read_text() == f"{pid} script"


# One that starts a copy of what it is given, as a worker would start a process.
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
ORPHAN = """
import os, sys, time
from pulse.sdk.worker import process_child
process_child._request_parent_death_signal = lambda: False
process_child.end_with_parent(os.getppid())
print(os.getpid(), flush=True)
time.sleep(60)
"""


async def test_nothing_outlives_it_where_the_kernel_does_not_help_either() -> None:
    with python("-c", PARENT, ORPHAN) as parent:
        assert parent.stdout is not None
        pid = int(await asyncio.to_thread(parent.stdout.readline))
        assert state_of(pid)
        parent.kill()

        await gone(pid, 1, orphan=True)
