"""What does a worker know of one process of its pool, and how does it start, use and end it?

The process leads a process group of its own, so that what a handler starts can be killed with it. A thread waits for
its end, because its socket does not always tell: a program that the handler forked may hold it open.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pulse.sdk.worker.outcomes import report_crash
from pulse.sdk.worker.process_messages import (
    LONGEST,
    PREFIX,
    Done,
    FromProcess,
    FromWorker,
    Hello,
    Note,
    Ready,
    Unfit,
    Work,
    frame,
    to_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.model.jobs import Report

TAIL = 2_048  # bytes of its last errors that are kept for the job it dies with
LAST_WORDS = 0.2  # seconds for what it had said before its end
HANG_UP_PATIENCE = 1.0  # seconds from the end of its socket to its own
END_PATIENCE = 5.0  # seconds for its shutdown hooks
HELD_BACK = {signal.SIGINT, signal.SIGTERM}


class Unusable(Exception):
    """It could not be started. The text is for the job that needed it."""


class Process:
    """One process of the pool. Everything but the wait for its end happens on the loop it was made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _spawn(theirs)
        except OSError:  # the machine has no room for another
            self._ours.close()
            raise
        assert self._process.stderr is not None
        self._errors = self._process.stderr
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tail = b""
        os.set_blocking(self._errors.fileno(), False)
        self._loop.add_reader(self._errors.fileno(), self._pass_on_errors)
        self._writer: asyncio.StreamWriter | None = None
        self.is_asked_to_end = False
        self._is_killed = False
        self._has_ended = asyncio.Event()
        self.jobs = 0  # it has run, or was given
        threading.Thread(target=self._await_end, name=f"pulse process {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        return not (self._is_killed or self.is_asked_to_end or self._has_ended.is_set())

    # --- its work

    async def greet(self, hello: Hello) -> None:
        """Return once it has loaded the app."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._ours)
        await self._say(hello)
        match await self._hear():
            case Ready():
                return
            case Unfit(error):
                raise Unusable(error)
        await self._until_ended()
        raise Unusable(self._how_it_ended())

    async def execute(self, work: Work, note: Callable[[str], None]) -> Report:
        """What the end of the handler, or of the process, means for the job. Cancelled, it kills the process."""
        self.jobs += 1
        self._tail = b""
        try:
            await self._say(work)
            if report := await self._listen(work, note):
                return report
            await self._until_ended()
        except BaseException:
            self.kill()
            await self.wait()
            raise
        return report_crash(work.claim, self._how_it_ended())

    async def _listen(self, work: Work, note: Callable[[str], None]) -> Report | None:
        claim = work.claim
        while (message := await self._hear()) is not None:
            match message:
                case Note(job_id, value) if job_id == claim.id:
                    note(value)
                case Done(report) if (report.id, report.lease_id) == (claim.id, claim.lease_id):
                    return report
        return None

    async def _say(self, message: FromWorker) -> None:
        assert self._writer is not None
        with suppress(OSError):  # it has died, which listening to it will tell
            self._writer.write(frame(message))
            await self._writer.drain()

    async def _hear(self) -> FromProcess | None:
        """None: it has hung up, or says what we do not understand."""
        try:
            size = int.from_bytes(await self._reader.readexactly(PREFIX), "big")
            return to_worker.decode(await self._reader.readexactly(size)) if size <= LONGEST else None
        except (EOFError, OSError, msgspec.DecodeError):
            return None

    # --- its errors

    def _pass_on_errors(self) -> None:
        """To the worker's own stderr, and the last of them to the job, should it be the last."""
        chunk = self._errors.read(65_536)
        if chunk == b"":
            self._loop.remove_reader(self._errors.fileno())
        if chunk:
            self._tail = (self._tail + chunk)[-TAIL:]
            with suppress(AttributeError, OSError, ValueError):  # the worker has none, or it is closed
                sys.stderr.write(self._decoder.decode(chunk))
                sys.stderr.flush()

    def _how_it_ended(self) -> str:
        last_errors = self._tail.decode(errors="replace").strip()
        return f"its process died: {self._cause()}\n{last_errors}".rstrip()

    def _cause(self) -> str:
        if self._is_killed:
            return "it had closed the connection to its worker, and was killed"
        code = self._process.returncode
        if code >= 0:
            return f"exited with code {code}"
        if -code == signal.SIGKILL:
            return "SIGKILL (when nobody sent it, memory ran out)"
        return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"

    # --- its end

    def kill(self) -> None:
        """At once, with whatever it has started."""
        self._is_killed = True
        self._kill_group()

    def ask_to_end(self) -> None:
        """It then runs its shutdown hooks."""
        self.is_asked_to_end = True
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write_eof()

    async def wait_or_kill(self) -> None:
        """After it was asked to end: its shutdown hooks may take a while, not forever."""
        try:
            async with asyncio.timeout(END_PATIENCE):
                await self._has_ended.wait()
        except TimeoutError:
            self.kill()
        await self.wait()

    async def wait(self) -> None:
        """Return once nothing is left of it."""
        await self._has_ended.wait()
        self._hang_up()
        if self._writer is not None:
            with suppress(OSError):
                await self._writer.wait_closed()

    async def _until_ended(self) -> None:
        """It hung up. Usually it is dead, but a handler may have closed what was not its own, and go on unseen."""
        try:
            async with asyncio.timeout(HANG_UP_PATIENCE):
                await self._has_ended.wait()
        except TimeoutError:
            self.kill()
        await self.wait()

    def _await_end(self) -> None:
        """On a thread. Only the loop takes the process off the kernel's list, so its id is its own until then."""
        with suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._see_end)
        except RuntimeError:  # the loop is closed
            self._process.wait()

    def _see_end(self) -> None:
        if not self.is_asked_to_end:
            self._kill_group()  # what its handler had started
        self._process.wait()
        self._read_last_errors()
        self._has_ended.set()
        self._loop.call_later(LAST_WORDS, self._hang_up)

    def _read_last_errors(self) -> None:
        self._pass_on_errors()
        self._loop.remove_reader(self._errors.fileno())
        self._errors.close()

    def _kill_group(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):  # macOS, if all of it are dead
                os.killpg(self.pid, signal.SIGKILL)

    def _hang_up(self) -> None:
        if self._writer is None:
            self._ours.close()
        else:
            self._writer.transport.abort()


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Python anew, never a fork: threads and open connections do not survive one.

    Must be called on the thread of the loop: on Linux the process is killed when the thread that started it ends.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    command = [
        sys.executable,
        *flags,
        "-P",
        "-m",
        "pulse.sdk.worker.process_child",
        str(theirs.fileno()),
        str(os.getpid()),
    ]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)  # until it has its own way with them
    try:
        return subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
