"""What happens between the start of a worker's process and its end?"""

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
from pulse.cli.output import plural, say
from pulse.cli.session import Session
from pulse.cli.startup import set_up_logs, wait_for_database
from pulse.cli.systemd import READY, STOPPING, tell_manager
from pulse.cli.worker.banner import introduce, without_password
from pulse.cli.worker.schedules import see_to_schedules
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
    from pulse.cli.worker.plan import Plan
    from pulse.engine.metrics import Metrics
    from pulse.links.link import Link
    from pulse.sdk.app import Pulse
    from pulse.settings import Settings

log = logging.getLogger("pulse.worker")

RELOAD_GRACE = timedelta(seconds=2)  # whoever saves a file wants to see it run
LAST_TASKS = 2.0  # seconds for what the application left on the loop
LAST_WORDS = 2.0  # seconds for logs and streams that somebody may hold
SHARED = ("database_url", "schema", "state_dir", "server_url", "token", "tls_ca", "tls_cert", "tls_key", "redact")
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def work(plan: Plan) -> NoReturn:
    """Be a worker until told to stop, and end the process."""
    app = load_app(plan.app)
    set_up_logs(plan.log_level, plan.log_format)
    session = Session(as_json=plan.as_json)
    try:
        with reach(session, choose_settings(plan, app)) as found:
            share_settings(app, found)
            # Never closed, which would wait for threads that may be stuck.
            code = asyncio.Runner(loop_factory=new_event_loop).run(WorkerProcess(plan, app).run())
    except PulseError as error:
        code = session.refuse(error)
    except Exception:
        log.exception("the worker failed")
        code = REFUSED
    leave(code)


def reach(session: Session, settings: Settings) -> AbstractContextManager[Settings]:
    """Settings with a way to the jobs in them: a server that was named, else a database."""
    return nullcontext(settings) if settings.server_url else session.database(settings, keep=True)


def choose_settings(plan: Plan, app: Pulse) -> Settings:
    """The application's own, which are the code's and then the environment's; but a flag wins over both."""
    if not app.tasks:
        raise InvalidApp(f"{plan.app} has no tasks: is the module that declares them imported by the one you named?")
    settings = replace(app.settings, **plan.overrides)
    if "database_url" in plan.overrides and "server_url" not in plan.overrides:
        settings = replace(settings, server_url=None)  # a flag wins over the environment
    if plan.is_child:
        settings = replace(settings, grace=min(settings.grace, RELOAD_GRACE))
    return _at_dev(plan, settings)


def _at_dev(plan: Plan, settings: Settings) -> Settings:
    """With the database and the server of `pulse dev` for what the application does not name, and its key to them."""
    is_devs = settings.server_url is None and settings.database_url in (None, plan.dev_url)
    settings = replace(settings, database_url=settings.database_url or plan.dev_url)
    if not is_devs or plan.dev_server is None:
        return settings
    return replace(settings, server_url=plan.dev_server, token=settings.token or plan.dev_token)


def share_settings(app: Pulse, settings: Settings) -> None:
    """What handlers enqueue goes where their jobs come from: here, and in the processes they start."""
    app.settings = settings
    for name in SHARED:
        if (value := getattr(settings, name)) is not None:
            os.environ[f"PULSE_{name.upper()}"] = str(value)


def leave(code: int) -> NoReturn:
    """End at once: a handler's thread that nobody can end would keep the process for ever."""

    def flush() -> None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()

    flushing = threading.Thread(target=flush, daemon=True)  # such a thread may hold one of their locks, too
    flushing.start()
    flushing.join(LAST_WORDS)
    os._exit(code)


class WorkerProcess:
    """One worker, the signals it obeys and the health it shows."""

    def __init__(self, plan: Plan, app: Pulse) -> None:
        self._plan = plan
        self._app = app
        self._settings = app.settings
        self._worker = Worker(
            app,
            topics=plan.topics or None,
            open_link=self._open_link,
            on_ready=lambda: tell_manager(READY),
            run_log=RunLog(
                self._settings.redaction, level=logging.INFO if plan.is_dev else logging.DEBUG, is_detailed=plan.is_dev
            ),
        )
        self._health = Health(self._worker, self._ask_database, self._metrics)
        self._link: Link | None = None
        self._signals = 0
        self._is_told_to_stop = asyncio.Event()
        self._left_at_stop: list[Run] = []

    async def run(self) -> int:
        """Answers with the exit code."""
        self._obey_signals()
        async with AsyncExitStack() as stack:
            port = self._plan.health_port
            if port is not None:
                port = await stack.enter_async_context(
                    serve_health(self._health, host=self._plan.health_host, port=port)
                )
            introduce(self._plan, self._app, self._worker, health_port=port)
            tell_of_strange_topics(self._plan, self._app)
            if has_database := await self._has_database():
                tune_garbage_collector()
                await self._worker.run()
        await _end_other_tasks()
        return self._exit_code() if has_database else UNAVAILABLE

    def _exit_code(self) -> int:
        unfinished = sum(run.end_reason is EndReason.STOPPING for run in self._left_at_stop)
        if unfinished and self._plan.is_dev:
            say(f"{plural(unfinished, 'job')} given back, to run again.", to_stderr=True)
        elif unfinished:
            log.warning("%s did not finish in time: given back", plural(unfinished, "handler"))
        return REFUSED if unfinished or self._worker.unreported or self._signals > 1 else OK

    # --- the database

    async def _has_database(self) -> bool:
        # A server may be deployed after us, so it has all the time in the world.
        patience = None if self._settings.server_url else self._settings.patience
        return await wait_for_database(
            self._prepare_database,
            where=without_password(self._settings.server_url or str(self._settings.database_url)),
            patience=patience,
            told_to_stop=self._is_told_to_stop,
        )

    async def _prepare_database(self) -> None:
        if self._settings.server_url:  # which sees to its own
            async with open_link(self._settings) as link:
                await link.check_access(self._worker.name, self._worker.topics)
            return
        if self._plan.is_dev:
            for applied in await migrate.migrate(self._settings):
                log.info("applied migration %04d_%s", applied.version, applied.name)
        await migrate.check(self._settings)

    @asynccontextmanager
    async def _open_link(self, settings: Settings) -> AsyncIterator[Link]:
        async with open_link(settings) as link:
            self._link = link
            await see_to_schedules(self._plan, self._app, link)
            yield link

    async def _ask_database(self) -> None:
        assert self._link is not None  # whoever is not ready is not asked
        await self._link.check()

    def _metrics(self) -> Metrics | None:
        return self._link.metrics if self._link else None

    # --- signals

    def _obey_signals(self) -> None:
        """Not through the loop, which would be too late when a handler keeps it from turning."""
        self._loop, self._context = asyncio.get_running_loop(), copy_context()
        for number in SIGNALS:
            signal.signal(number, self._hear)
        if self._plan.is_child:  # Ctrl-C reaches the parent as well, which tells us by SIGTERM
            signal.signal(signal.SIGINT, lambda *_: None)

    def _hear(self, number: int, _frame: object) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(REFUSED)
        react = self._stop if self._signals == 1 else self._hurry
        # In our own context: a signal may come while a handler runs, which has nothing to do with it.
        self._loop.call_soon_threadsafe(react, signal.Signals(number).name, context=self._context)

    def _stop(self, name: str) -> None:
        self._left_at_stop = self._worker.running  # from here on it starts nothing more
        self._worker.stop()
        self._is_told_to_stop.set()
        tell_manager(STOPPING)
        if not self._plan.is_child:
            log.info("%s: stopping; a second one gives back at once what still runs", name)

    def _hurry(self, name: str) -> None:
        self._worker.stop_now()
        log.info("%s again: giving back what still runs", name)


def tell_of_strange_topics(plan: Plan, app: Pulse) -> None:
    """Warn of topics that no task of the app has. They are served all the same: any job may go to any topic."""
    for topic in plan.topics:
        if topic not in app.topics:
            log.warning("no task of this app has the topic %r: it has %s", topic, ", ".join(app.topics))


async def _end_other_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=LAST_TASKS)
