"""What happens inside a process of the pool? It loads the app and runs the jobs that its worker sends.

Its stdout and stderr belong to the handler; messages to the worker go over a socket that nothing else writes to. It
ends when its worker ends it, and never outlives its worker.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import inspect
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.engine.masks import mask_report
from pulse.model.errors import InvalidApp
from pulse.model.jobs import Claim, Progress, Report
from pulse.model.redaction import NO_REDACTION, Redaction, read_redaction
from pulse.model.text import clean_error
from pulse.sdk.context import Context, use_context
from pulse.sdk.locate import load_app, load_module
from pulse.sdk.logs import configure_logging
from pulse.sdk.worker.outcomes import describe, format_traceback, report_crash, report_error, report_result
from pulse.sdk.worker.process_messages import (
    PREFIX,
    Done,
    FromProcess,
    Hello,
    ProgressNote,
    Ready,
    StartFailed,
    Work,
    frame,
    to_process,
)
from pulse.telemetry.tracing import carried

if TYPE_CHECKING:
    from pulse.sdk.app import Pulse
    from pulse.sdk.task import Task

log = logging.getLogger("pulse.worker")

PARENT_CHECK_EVERY = 0.2  # seconds, where the kernel does not signal the death of the parent
PR_SET_PDEATHSIG = 1
UNKNOWN_TASK = (
    "its process does not know task {!r} after importing the app: declare it at the top level of a module, "
    "not inside a function or under a condition"
)


def main() -> None:
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    end_with_parent(parent)
    ignore_stop_signals()
    faulthandler.enable()  # a segfault writes the line it came from to stderr, which becomes part of the job's error
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a process that is killed loses what it has not yet flushed
    with Channel(fd) as channel:
        serve(channel)


def serve(channel: Channel) -> None:
    """Load the app, then run jobs until the worker closes its end of the socket."""
    hello = channel.receive()
    if not isinstance(hello, Hello):
        return
    with asyncio.Runner() as runner:
        try:
            app = _start(hello, runner)
        except BaseException as error:
            channel.send(StartFailed(_describe_start_failure(error)))
            return
        channel.send(Ready())
        job_runner = JobRunner(app, runner, channel, read_redaction(hello.redact))
        while isinstance(work := channel.receive(), Work):
            channel.send(Done(job_runner.run(work)))
        _finish(app, runner)


class Channel:
    """The process's end of the socket to its worker."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)  # programs that a handler starts must not use it
        self._incoming = self._socket.makefile("rb")
        self._send_lock = threading.Lock()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._incoming.close()
        self._socket.close()

    def send(self, message: FromProcess) -> None:
        with self._send_lock:
            self._socket.sendall(frame(message))

    def receive(self) -> Hello | Work | None:
        """Return the next message, or None if the worker has closed its end."""
        prefix = self._incoming.read(PREFIX)
        size = int.from_bytes(prefix, "big")
        body = self._incoming.read(size)
        return to_process.decode(body) if size and len(body) == size else None


class JobRunner:
    """Runs handlers. Async ones share one event loop, so that connections which a startup hook opened stay usable."""

    def __init__(
        self, app: Pulse, runner: asyncio.Runner, channel: Channel, redaction: Redaction = NO_REDACTION
    ) -> None:
        self._app = app
        self._runner = runner
        self._channel = channel
        self._redaction = redaction
        self._pid = os.getpid()

    def run(self, work: Work) -> Report:
        claim = work.claim
        task = self._app.find_task(claim.task)
        if task is None:
            return report_crash(claim, UNKNOWN_TASK.format(claim.task))
        context = Context(claim, schema=work.schema)
        context.on_progress(lambda value: self._send_progress(claim, value))
        if task.is_async or self._app.middlewares:
            report = self._runner.run(self._run_on_loop(task, work, context))
        else:
            report = self._run_here(task, work, context)
        if os.getpid() != self._pid:  # the handler forked and returned: this copy of the process must report nothing
            os._exit(0)
        _flush_output()
        return _shorten(mask_report(self._redaction, report, claim.payload))

    def _run_here(self, task: Task[..., Any, Any], work: Work, context: Context) -> Report:
        claim = work.claim
        with use_context(context), carried(work.trace):
            try:
                return report_result(task, claim, _bind(task, claim, context)())
            except BaseException as error:
                return report_error(task, claim, error)

    async def _run_on_loop(self, task: Task[..., Any, Any], work: Work, context: Context) -> Report:
        """Run the handler inside the middlewares, the first one declared outermost."""
        claim = work.claim
        with use_context(context), carried(work.trace):
            try:
                call = _awaitable(task, _bind(task, claim, context))
                for middleware in reversed(self._app.middlewares):
                    call = partial(middleware, context, call)
                return report_result(task, claim, await call())
            except BaseException as error:
                return report_error(task, claim, error)

    def _send_progress(self, claim: Claim, value: str) -> None:
        Progress(id=claim.id, lease_id=claim.lease_id, value=value)  # raises here, in the handler, if it is refused
        self._channel.send(ProgressNote(claim.id, value))


# --- one handler


def _bind(task: Task[..., Any, Any], claim: Claim, context: Context) -> Callable[[], Any]:
    args, kwargs = task.arguments.unpack(claim.payload)
    return partial(task.function, *((context, *args) if task.takes_context else args), **kwargs)


def _awaitable(task: Task[..., Any, Any], call: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    """Return the handler as a coroutine. Inside middlewares a sync one runs on a thread, so that it may use an event
    loop of its own."""
    return call if task.is_async else partial(asyncio.to_thread, _convert_stop_iteration, call)


def _convert_stop_iteration(call: Callable[[], Any]) -> Any:  # noqa: ANN401
    try:
        return call()
    except StopIteration as error:  # cannot be set as the exception of a future
        raise RuntimeError("the handler raised StopIteration") from error


def _shorten(report: Report) -> Report:
    """Cut errors to the size that is stored, so that one of a gigabyte is not sent. They must be masked before, because
    a value that was cut could not be found to mask it."""
    if not report.error and not report.traceback:
        return report
    return msgspec.structs.replace(report, error=clean_error(report.error), traceback=report.clean_traceback)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is no such stream, or a handler has closed it
            stream.flush()


# --- starting and ending


def _start(hello: Hello, runner: asyncio.Runner) -> Pulse:
    sys.path[:] = hello.sys_path
    sys.argv[:] = hello.argv
    for module in hello.modules:
        load_module(module)
    app = load_app(hello.app)
    if hello.logs is not None:  # before the hooks, as in the worker, so that their log lines have the same format
        configure_logging(hello.logs)
    for hook in app.startup_hooks:
        _call_hook(hook, runner)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")  # does nothing if logging is set up already
    return app


def _finish(app: Pulse, runner: asyncio.Runner) -> None:
    for hook in reversed(app.shutdown_hooks):
        try:
            _call_hook(hook, runner)
        except Exception:
            log.exception("a shutdown hook failed")
    app.close()


def _call_hook(hook: Callable[[], Any], runner: asyncio.Runner) -> None:
    if inspect.iscoroutinefunction(hook):
        runner.run(hook())
    else:
        hook()


def _describe_start_failure(error: BaseException) -> str:
    if isinstance(error, InvalidApp):  # its message quotes the relevant lines of code
        return f"its process could not load the app: {error}"
    return clean_error(f"its process could not start: {describe(error)}\n{format_traceback(error)}")


# --- living exactly as long as the worker


def ignore_stop_signals() -> None:
    """Ignore SIGINT and SIGTERM, which Ctrl-C and service managers also send to this process: its worker ends it, once
    its handler has finished.

    The handler is a function that does nothing, not SIG_IGN: programs that a handler starts would inherit SIG_IGN and
    could not be terminated.
    """
    ignored = {signal.SIGINT, signal.SIGTERM}
    for number in ignored:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ignored)  # the worker blocked them when it started this process


def end_with_parent(parent: int) -> None:
    """Make this process end with its worker: the kernel kills it on Linux, elsewhere a thread watches the parent.

    No handler may run that no worker knows of.
    """
    if not _request_parent_death_signal():
        threading.Thread(target=watch_parent, args=(parent,), name="pulse parent watch", daemon=True).start()
    if os.getppid() != parent:  # the worker died before the kernel was asked
        os._exit(1)


def _request_parent_death_signal() -> bool:
    """Ask the kernel for SIGKILL when the parent dies, and return whether it agreed. Only Linux can do this. It works
    even while a handler holds the interpreter lock, when no Python thread could run."""
    if sys.platform != "linux":
        return False
    try:
        return int(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def watch_parent(parent: int) -> None:
    """End this process when its parent is another one. Unlike the end of the socket, this cannot be hidden by a third
    process that holds the socket open."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    main()
