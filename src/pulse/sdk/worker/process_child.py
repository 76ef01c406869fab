"""What happens inside a process of the pool? It loads the app and runs one job after the other, as it is told.

Its standard output and errors are the handler's own; what it says to its worker goes over a socket that nothing else
writes to. It lives no longer than its worker, and dies only when the worker says so.
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
from pulse.sdk.context import Context, during
from pulse.sdk.locate import load_app, load_module
from pulse.sdk.logs import write_logs
from pulse.sdk.worker.outcomes import describe, format_traceback, report_crash, report_error, report_result
from pulse.sdk.worker.process_messages import (
    PREFIX,
    Done,
    FromProcess,
    Hello,
    Note,
    Ready,
    Unfit,
    Work,
    frame,
    to_process,
)
from pulse.telemetry.tracing import carried

if TYPE_CHECKING:
    from pulse.sdk.app import Pulse
    from pulse.sdk.task import Task

log = logging.getLogger("pulse.worker")

LOOK_EVERY = 0.2  # seconds between two looks at the parent, where the kernel does not tell of its death
PR_SET_PDEATHSIG = 1
NOT_THERE = (
    "its process does not know task {!r} after importing the app: declare it at the top level of a module, "
    "not inside a function or under a condition"
)


def main() -> None:
    fd, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with(parent)
    outlast_signals()
    faulthandler.enable()  # a segfault leaves the line it came from on stderr, and so on the job
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a process that is killed prints nothing any more
    with Channel(fd) as channel:
        serve(channel)


def serve(channel: Channel) -> None:
    """Load the app, then work until the worker closes its end."""
    hello = channel.receive()
    if not isinstance(hello, Hello):
        return
    with asyncio.Runner() as runner:
        try:
            app = _start(hello, runner)
        except BaseException as error:
            channel.send(Unfit(_why_unfit(error)))
            return
        channel.send(Ready())
        bench = Bench(app, runner, channel, read_redaction(hello.redact))
        while isinstance(work := channel.receive(), Work):
            channel.send(Done(bench.run(work)))
        _finish(app, runner)


class Channel:
    """This end of the socket to the worker."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)  # programs that a handler starts have no business with it
        self._incoming = self._socket.makefile("rb")
        self._turn = threading.Lock()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self._incoming.close()
        self._socket.close()

    def send(self, message: FromProcess) -> None:
        with self._turn:
            self._socket.sendall(frame(message))

    def receive(self) -> Hello | Work | None:
        """None: the worker wants nothing more."""
        prefix = self._incoming.read(PREFIX)
        size = int.from_bytes(prefix, "big")
        body = self._incoming.read(size)
        return to_process.decode(body) if size and len(body) == size else None


class Bench:
    """Where the handlers run. Async ones share one event loop, so what a startup hook opened there stays usable."""

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
            return report_crash(claim, NOT_THERE.format(claim.task))
        context = Context(claim, schema=work.schema)
        context.on_progress(lambda value: self._note(claim, value))
        if task.is_async or self._app.middlewares:
            report = self._runner.run(self._run_on_loop(task, work, context))
        else:
            report = self._run_here(task, work, context)
        if os.getpid() != self._pid:  # a copy of us, made by a handler that forked and came back: it has no voice
            os._exit(0)
        _flush_output()
        return _shortened(mask_report(self._redaction, report, claim.payload))

    def _run_here(self, task: Task[..., Any, Any], work: Work, context: Context) -> Report:
        claim = work.claim
        with during(context), carried(work.trace):
            try:
                return report_result(task, claim, _bound(task, claim, context)())
            except BaseException as error:
                return report_error(task, claim, error)

    async def _run_on_loop(self, task: Task[..., Any, Any], work: Work, context: Context) -> Report:
        """The handler inside the middlewares, the first one declared outermost."""
        claim = work.claim
        with during(context), carried(work.trace):
            try:
                call = _awaitable(task, _bound(task, claim, context))
                for middleware in reversed(self._app.middlewares):
                    call = partial(middleware, context, call)
                return report_result(task, claim, await call())
            except BaseException as error:
                return report_error(task, claim, error)

    def _note(self, claim: Claim, value: str) -> None:
        Progress(id=claim.id, lease_id=claim.lease_id, value=value)  # what is refused is refused here, in the handler
        self._channel.send(Note(claim.id, value))


# --- one handler


def _bound(task: Task[..., Any, Any], claim: Claim, context: Context) -> Callable[[], Any]:
    args, kwargs = task.arguments.unpack(claim.payload)
    return partial(task.function, *((context, *args) if task.takes_context else args), **kwargs)


def _awaitable(task: Task[..., Any, Any], call: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    """A sync handler inside middlewares gets a thread, so that it may use an event loop of its own."""
    return call if task.is_async else partial(asyncio.to_thread, _without_stop_iteration, call)


def _without_stop_iteration(call: Callable[[], Any]) -> Any:  # noqa: ANN401
    try:
        return call()
    except StopIteration as error:  # a future refuses to carry it
        raise RuntimeError("the handler raised StopIteration") from error


def _shortened(report: Report) -> Report:
    """Errors as they will be stored, so that one of a gigabyte stays here. Masked before: values must not be cut."""
    if not report.error and not report.traceback:
        return report
    return msgspec.structs.replace(report, error=clean_error(report.error), traceback=report.clean_traceback)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or a handler has closed it
            stream.flush()


# --- beginning and end


def _start(hello: Hello, runner: asyncio.Runner) -> Pulse:
    sys.path[:] = hello.sys_path
    sys.argv[:] = hello.argv
    for module in hello.modules:
        load_module(module)
    app = load_app(hello.app)
    if hello.logs is not None:  # before the hooks, as in the worker: what they log is read there, too
        write_logs(hello.logs)
    for hook in app.startup_hooks:
        _call_hook(hook, runner)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")  # unless somebody has set up their own
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


def _why_unfit(error: BaseException) -> str:
    if isinstance(error, InvalidApp):  # its text has the lines that matter
        return f"its process could not load the app: {error}"
    return clean_error(f"its process could not start: {describe(error)}\n{format_traceback(error)}")


# --- living as long as the worker, no longer and no less


def outlast_signals() -> None:
    """Ctrl-C and a service manager reach us too, but the worker lets its handlers finish first.

    Not SIG_IGN: programs that a handler starts would inherit it, and could not be terminated by it.
    """
    ours = {signal.SIGINT, signal.SIGTERM}
    for number in ours:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)  # the worker held them back until now


def die_with(parent: int) -> None:
    """Nothing may run that no worker knows of, so the kernel kills us with the worker, or we look for ourselves."""
    if not _ask_kernel():
        threading.Thread(target=look_after, args=(parent,), name="pulse parent watch", daemon=True).start()
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _ask_kernel() -> bool:
    """Linux only. It kills even while a handler holds the interpreter, which no thread of ours could."""
    if sys.platform != "linux":
        return False
    try:
        return int(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def look_after(parent: int) -> None:
    """Whoever our parent is now: unlike the socket, that cannot be held open by a third process."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    main()
