"""How does the process of a worker run, from its start to its end?"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from pulse.cli.exit_codes import OK, REFUSED, UNAVAILABLE
from pulse.cli.output import plural, print_text
from pulse.cli.session import Session
from pulse.cli.startup import set_up_logs, wait_for_database
from pulse.cli.systemd import READY, STOPPING, notify_systemd
from pulse.cli.worker.banner import print_banner, without_password
from pulse.cli.worker.schedules import sync_or_check_schedules
from pulse.event_loop import new_event_loop, tune_garbage_collector
from pulse.links.opening import open_link
from pulse.model.errors import InvalidApp, PulseError
from pulse.sdk.locate import load_app
from pulse.sdk.worker.run import EndReason, Run
from pulse.sdk.worker.run_log import RunLog
from pulse.sdk.worker.worker import Worker
from pulse.store.schema import migrate
from pulse.telemetry.health import Health, serve_health

if TYPE_CHECKING:
    from pulse.cli.worker.worker_options import WorkerOptions
    from pulse.engine.metrics import Metrics
    from pulse.links.link import Link
    from pulse.sdk.app import Pulse
    from pulse.settings import Settings

log = logging.getLogger("pulse.worker")

RELOAD_GRACE = timedelta(seconds=2)  # short, so that changed code runs soon
TASKS_PATIENCE = 2.0  # seconds for tasks that the application left on the loop
FLUSH_PATIENCE = 2.0  # seconds to flush logs and streams, whose locks a stuck thread may hold
SHARED_SETTINGS = (
    "database_url",
    "schema",
    "state_dir",
    "server_url",
    "token",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "redact",
)
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_worker(options: WorkerOptions) -> NoReturn:
    """Run a worker until a signal comes, and end the process."""
    app = load_app(options.app)
    set_up_logs(options.log_level, options.log_format)
    session = Session(as_json=options.as_json)
    try:
        with reachable_settings(session, choose_settings(options, app)) as found:
            share_settings(app, found)
            # The runner is never closed: that would wait for threads, which may be stuck.
            code = asyncio.Runner(loop_factory=new_event_loop).run(WorkerProcess(options, app).run())
    except PulseError as error:
        code = session.refuse(error)
    except Exception:
        log.exception("the worker failed")
        code = REFUSED
    exit_process(code)


def reachable_settings(session: Session, settings: Settings) -> AbstractContextManager[Settings]:
    """Return settings that name a server, or a database that is running."""
    return nullcontext(settings) if settings.server_url else session.database(settings, keep=True)


def choose_settings(options: WorkerOptions, app: Pulse) -> Settings:
    """Return the settings of the application, from its code and the environment, with flags winning over both."""
    if not app.tasks:
        raise InvalidApp(f"{options.app} has no tasks: does its module import the one that declares them?")
    settings = replace(app.settings, **options.overrides)
    if "database_url" in options.overrides and "server_url" not in options.overrides:
        settings = replace(settings, server_url=None)  # a flag wins over the environment
    if options.is_child:
        settings = replace(settings, grace=min(settings.grace, RELOAD_GRACE))
    return _use_dev_server(options, settings)


def _use_dev_server(options: WorkerOptions, settings: Settings) -> Settings:
    """Use the database, server and token of `pulse dev`, unless the application names its own."""
    uses_dev = settings.server_url is None and settings.database_url in (None, options.dev_url)
    settings = replace(settings, database_url=settings.database_url or options.dev_url)
    if not uses_dev or options.dev_server is None:
        return settings
    return replace(settings, server_url=options.dev_server, token=settings.token or options.dev_token)


def share_settings(app: Pulse, settings: Settings) -> None:
    """Make handlers, and the processes they start, enqueue where this worker's jobs come from."""
    app.settings = settings
    for name in SHARED_SETTINGS:
        if (value := getattr(settings, name)) is not None:
            os.environ[f"PULSE_{name.upper()}"] = str(value)


def exit_process(code: int) -> NoReturn:
    """End the process at once: a handler's thread that is stuck would otherwise keep it alive for ever."""

    def flush() -> None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    flushing = threading.Thread(target=flush, daemon=True)  # a stuck thread may hold one of their locks
    flushing.start()
    flushing.join(FLUSH_PATIENCE)
    os._exit(code)


class WorkerProcess:
    """A worker with its signal handlers and its health endpoints."""

    def __init__(self, options: WorkerOptions, app: Pulse) -> None:
        self._options = options
        self._app = app
        self._settings = app.settings
        self._worker = Worker(
            app,
            topics=options.topics or None,
            open_link=self._open_link,
            on_ready=lambda: notify_systemd(READY),
            run_log=RunLog(
                self._settings.redaction,
                level=logging.INFO if options.is_dev else logging.DEBUG,
                is_detailed=options.is_dev,
            ),
        )
        self._health = Health(self._worker, self._ask_database, self._metrics)
        self._link: Link | None = None
        self._signals = 0
        self._stop_requested = asyncio.Event()
        self._running_at_stop: list[Run] = []

    async def run(self) -> int:
        """Run until a signal comes, and return the exit code."""
        self._handle_signals()
        async with AsyncExitStack() as stack:
            port = self._options.health_port
            if port is not None:
                port = await stack.enter_async_context(
                    serve_health(self._health, host=self._options.health_host, port=port)
                )
            print_banner(self._options, self._app, self._worker, health_port=port)
            warn_of_unknown_topics(self._options, self._app)
            if has_database := await self._has_database():
                tune_garbage_collector()
                await self._worker.run()
        await _end_other_tasks()
        return self._exit_code() if has_database else UNAVAILABLE

    def _exit_code(self) -> int:
        unfinished = sum(run.end_reason is EndReason.STOPPING for run in self._running_at_stop)
        if unfinished and self._options.is_dev:
            print_text(f"{plural(unfinished, 'job')} given back, to run again.", to_stderr=True)
        elif unfinished:
            log.warning("%s did not finish in time; their jobs were given back", plural(unfinished, "handler"))
        return REFUSED if unfinished or self._worker.unreported or self._signals > 1 else OK

    # --- the database

    async def _has_database(self) -> bool:
        # A server may be deployed after this worker, so the worker waits for it without limit.
        patience = None if self._settings.server_url else self._settings.patience
        return await wait_for_database(
            self._prepare_database,
            where=without_password(self._settings.server_url or str(self._settings.database_url)),
            patience=patience,
            stop_requested=self._stop_requested,
        )

    async def _prepare_database(self) -> None:
        if self._settings.server_url:  # a server checks its database itself
            async with open_link(self._settings) as link:
                await link.check_access(self._worker.name, self._worker.topics)
            return
        if self._options.is_dev:
            for applied in await migrate.migrate(self._settings):
                log.info("applied migration %04d_%s", applied.version, applied.name)
        await migrate.check(self._settings)

    @asynccontextmanager
    async def _open_link(self, settings: Settings) -> AsyncIterator[Link]:
        async with open_link(settings) as link:
            self._link = link
            await sync_or_check_schedules(self._options, self._app, link)
            yield link

    async def _ask_database(self) -> None:
        assert self._link is not None  # called only once the worker is ready
        await self._link.check()

    def _metrics(self) -> Metrics | None:
        return self._link.metrics if self._link else None

    # --- signals

    def _handle_signals(self) -> None:
        """Handle signals without the event loop, which a handler may block."""
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        for number in SIGNALS:
            signal.signal(number, self._on_signal)
        if self._options.is_child:  # Ctrl-C reaches the parent as well, which then sends SIGTERM
            signal.signal(signal.SIGINT, lambda *_: None)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(REFUSED)
        react = self._stop if self._signals == 1 else self._hurry
        # In the context of this method: a signal may interrupt a handler, whose context must not be used.
        self._loop.call_soon_threadsafe(react, signal.Signals(number).name, context=self._context)

    def _stop(self, name: str) -> None:
        self._running_at_stop = self._worker.running  # no more jobs are started after this
        self._worker.stop()
        self._stop_requested.set()
        notify_systemd(STOPPING)
        if not self._options.is_child:
            log.info("%s: stopping; a second signal gives back jobs that still run", name)

    def _hurry(self, name: str) -> None:
        self._worker.stop_now()
        log.info("%s again: giving back jobs that still run", name)


def warn_of_unknown_topics(options: WorkerOptions, app: Pulse) -> None:
    """Warn of topics that no task of the app has. The worker serves them all the same: a job may have any topic."""
    for topic in options.topics:
        if topic not in app.topics:
            log.warning("no task of this app has the topic %r: it has %s", topic, ", ".join(app.topics))


async def _end_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=TASKS_PATIENCE)
