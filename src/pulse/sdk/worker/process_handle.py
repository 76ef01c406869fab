"""How does a worker start, use and end one process of its pool?

The process leads a process group of its own, so that programs started by a handler can be killed with it. A thread
waits for its end, because the end of its socket is no sure sign: a program that the handler forked may hold it open.
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
    MESSAGE_LIMIT,
    PREFIX,
    Done,
    FromProcess,
    FromWorker,
    Hello,
    ProgressNote,
    Ready,
    StartFailed,
    Work,
    frame,
    to_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.model.jobs import Report

STDERR_TAIL = 2_048  # bytes of its last output to stderr, kept for the error of a job that ends with it
LAST_READ_PATIENCE = 0.2  # seconds to read the messages that it sent before its end
DISCONNECT_PATIENCE = 1.0  # seconds for the process to end after its socket has closed
END_PATIENCE = 5.0  # seconds for its shutdown hooks
BLOCKED_SIGNALS = {signal.SIGINT, signal.SIGTERM}


class ProcessStartFailed(Exception):
    """The process could not be started. The text becomes the error of the job that needed it."""


class Process:
    """One process of the pool. Everything but the wait for its end happens on the loop that created it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, child_socket = socket.socketpair()
        try:
            with child_socket:
                self._process = _spawn(child_socket)
        except OSError:  # the machine cannot start another process
            self._socket.close()
            raise
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stderr_tail = b""
        os.set_blocking(self._stderr.fileno(), False)
        self._loop.add_reader(self._stderr.fileno(), self._forward_stderr)
        self._writer: asyncio.StreamWriter | None = None
        self.is_ending = False
        self._is_killed = False
        self._has_ended = asyncio.Event()
        self.jobs = 0  # how many it was given
        threading.Thread(target=self._watch_for_end, name=f"pulse process {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        return not (self._is_killed or self.is_ending or self._has_ended.is_set())

    # --- running jobs

    async def initialize(self, hello: Hello) -> None:
        """Return once the process has loaded the app, or raise ProcessStartFailed."""
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        await self._send(hello)
        match await self._receive():
            case Ready():
                return
            case StartFailed(error):
                raise ProcessStartFailed(error)
        await self._wait_after_disconnect()
        raise ProcessStartFailed(self._describe_end())

    async def execute(self, work: Work, note: Callable[[str], None]) -> Report:
        """Run a job and return the report of its handler, or of the crash of the process. Cancelling kills it."""
        self.jobs += 1
        self._stderr_tail = b""
        try:
            await self._send(work)
            if report := await self._wait_for_report(work, note):
                return report
            await self._wait_after_disconnect()
        except BaseException:
            self.kill()
            await self.wait()
            raise
        return report_crash(work.claim, self._describe_end())

    async def _wait_for_report(self, work: Work, note: Callable[[str], None]) -> Report | None:
        claim = work.claim
        while (message := await self._receive()) is not None:
            match message:
                case ProgressNote(job_id, value) if job_id == claim.id:
                    note(value)
                case Done(report) if (report.id, report.lease_id) == (claim.id, claim.lease_id):
                    return report
        return None

    async def _send(self, message: FromWorker) -> None:
        assert self._writer is not None
        with suppress(OSError):  # the process has died, which the next read finds out
            self._writer.write(frame(message))
            await self._writer.drain()

    async def _receive(self) -> FromProcess | None:
        """Return the next message, or None if the socket has closed or the message cannot be read."""
        try:
            size = int.from_bytes(await self._reader.readexactly(PREFIX), "big")
            return to_worker.decode(await self._reader.readexactly(size)) if size <= MESSAGE_LIMIT else None
        except (EOFError, OSError, msgspec.DecodeError):
            return None

    # --- its stderr

    def _forward_stderr(self) -> None:
        """Copy its stderr to the worker's own, and keep the end of it for the error of a job that it may crash with."""
        chunk = self._stderr.read(65_536)
        if chunk == b"":
            self._loop.remove_reader(self._stderr.fileno())
        if chunk:
            self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL:]
            with suppress(AttributeError, OSError, ValueError):  # the worker has no stderr, or has closed it
                sys.stderr.write(self._decoder.decode(chunk))
                sys.stderr.flush()

    def _describe_end(self) -> str:
        last_errors = self._stderr_tail.decode(errors="replace").strip()
        return f"its process died: {self._cause()}\n{last_errors}".rstrip()

    def _cause(self) -> str:
        if self._is_killed:
            return "it had closed the connection to its worker, and was killed"
        code = self._process.returncode
        if code >= 0:
            return f"exited with code {code}"
        if -code == signal.SIGKILL:
            return "SIGKILL (if nobody sent it, the machine ran out of memory)"
        return signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"

    # --- ending

    def kill(self) -> None:
        """Kill the process at once, with all programs that it has started."""
        self._is_killed = True
        self._kill_group()

    def request_end(self) -> None:
        """Ask the process to run its shutdown hooks and end."""
        self.is_ending = True
        if self._writer is not None:
            with suppress(OSError):
                self._writer.write_eof()

    async def wait_or_kill(self) -> None:
        """Wait for the process to end after `request_end`, and kill it if its shutdown hooks take too long."""
        try:
            async with asyncio.timeout(END_PATIENCE):
                await self._has_ended.wait()
        except TimeoutError:
            self.kill()
        await self.wait()

    async def wait(self) -> None:
        """Return once the process has ended and its socket is closed."""
        await self._has_ended.wait()
        self._close_socket()
        if self._writer is not None:
            with suppress(OSError):
                await self._writer.wait_closed()

    async def _wait_after_disconnect(self) -> None:
        """Wait for the process to end after its socket has closed, and kill it if it goes on.

        Usually it is dead already, but a handler may have closed the socket by mistake and still be running.
        """
        try:
            async with asyncio.timeout(DISCONNECT_PATIENCE):
                await self._has_ended.wait()
        except TimeoutError:
            self.kill()
        await self.wait()

    def _watch_for_end(self) -> None:
        """Wait for its end on a thread. WNOWAIT leaves it to the loop to reap the process, so its id stays its own."""
        with suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        try:
            self._loop.call_soon_threadsafe(self._handle_end)
        except RuntimeError:  # the loop is closed
            self._process.wait()

    def _handle_end(self) -> None:
        if not self.is_ending:
            self._kill_group()  # programs that its handler had started
        self._process.wait()
        self._read_last_stderr()
        self._has_ended.set()
        self._loop.call_later(LAST_READ_PATIENCE, self._close_socket)

    def _read_last_stderr(self) -> None:
        self._forward_stderr()
        self._loop.remove_reader(self._stderr.fileno())
        self._stderr.close()

    def _kill_group(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, if the whole group is dead
                os.killpg(self.pid, signal.SIGKILL)

    def _close_socket(self) -> None:
        if self._writer is None:
            self._socket.close()
        else:
            self._writer.transport.abort()


def _spawn(child_socket: socket.socket) -> subprocess.Popen[bytes]:
    """Start a new Python, never a fork: threads and open connections do not survive a fork.

    This must be called on the thread of the loop: on Linux the process is killed when the thread that started it ends.
    """
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    command = [
        sys.executable,
        *flags,
        "-P",
        "-m",
        "pulse.sdk.worker.process_child",
        str(child_socket.fileno()),
        str(os.getpid()),
    ]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)  # until the process has its own handlers
    try:
        return subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[child_socket.fileno()],
            process_group=0,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
