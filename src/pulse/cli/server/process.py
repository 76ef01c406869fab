"""What happens between the start of a server's process and its end?"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import webbrowser
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pulse.cli.exit_codes import OK, REFUSED, UNAVAILABLE
from pulse.cli.output import say, show_json
from pulse.cli.startup import set_up_logs, wait_for_database
from pulse.cli.systemd import READY, STOPPING, tell_manager
from pulse.cli.worker.banner import name_database, without_password
from pulse.event_loop import new_event_loop, tune_garbage_collector
from pulse.model.network.server_url import Address
from pulse.server import Server, open_server
from pulse.store.schema import migrate
from pulse.telemetry.health import Health, serve_health

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.cli.session import Session
    from pulse.engine.metrics import Metrics
    from pulse.settings import Settings

log = logging.getLogger("pulse.server")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """What the command line asked of a server."""

    settings: Settings
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    open_dashboard: bool = False
    until_stdin_ends: bool = False  # a child of `pulse dev`
    admit: str | None = None  # the hash of that one's own secret


def run_server(session: Session, plan: ServerPlan) -> int:
    """Be a server until told to stop; answers with the exit code."""
    set_up_logs(plan.log_level, plan.log_format)
    is_ours = plan.settings.database_url is None
    with _ended_by_signals(), session.database(plan.settings, create=True, keep=True) as found:
        process = ServerProcess(replace(plan, settings=found), is_to_migrate=is_ours)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(process.run())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Before the loop can hear them: a Postgres that is just being made is put away before we go."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit(OK)

    before = {number: signal.signal(number, leave) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ServerProcess:
    """One server, the signals it obeys and the health it shows."""

    def __init__(self, plan: ServerPlan, *, is_to_migrate: bool) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._is_to_migrate = is_to_migrate
        self._server: Server | None = None
        self._schema_version = 0
        self._signals = 0
        self._is_told_to_stop = asyncio.Event()
        self._is_in_a_hurry = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._server is not None and self._server.is_ready

    async def run(self) -> int:
        """Answers with the exit code."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._hear, number)
        if self._plan.until_stdin_ends:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._hear_the_end)
        async with AsyncExitStack() as stack:
            health_port = await self._serve_health(stack)
            if has_database := await self._has_database():
                admitted = bytes.fromhex(self._plan.admit) if self._plan.admit else None
                self._server = await stack.enter_async_context(open_server(self._settings, admitted=admitted))
                tune_garbage_collector()
                if self._plan.until_stdin_ends:
                    say("ready")  # to `pulse dev`, which says for itself what runs
                else:
                    introduce(self._plan, self._server, health_port=health_port, schema_version=self._schema_version)
                if self._plan.open_dashboard:
                    await asyncio.to_thread(open_in_browser, describe_http(self._settings, self._server))
                tell_manager(READY)
                await self._is_told_to_stop.wait()
                tell_manager(STOPPING)
                await self._drain(self._server)
        if not has_database:
            return UNAVAILABLE
        return REFUSED if self._signals > 1 else OK

    async def _serve_health(self, stack: AsyncExitStack) -> int | None:
        plan = self._plan
        if plan.health_port is None:
            return None
        health = Health(self, self._ask_database, self._metrics, self._is_open)
        return await stack.enter_async_context(serve_health(health, host=plan.health_host, port=plan.health_port))

    async def _drain(self, server: Server) -> None:
        """Until all have gone, or somebody cannot wait for it."""
        draining, hurrying = asyncio.create_task(server.drain()), asyncio.create_task(self._is_in_a_hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        hurrying.cancel()
        await asyncio.wait([draining, hurrying])
        if not draining.cancelled():
            draining.result()
            log.info("stopped")

    # --- the database

    async def _has_database(self) -> bool:
        return await wait_for_database(
            self._prepare_database,
            where=without_password(str(self._settings.database_url)),
            patience=self._settings.patience,
            told_to_stop=self._is_told_to_stop,
        )

    async def _prepare_database(self) -> None:
        if self._is_to_migrate:
            for applied in await migrate.migrate(self._settings):
                log.info("applied migration %04d_%s", applied.version, applied.name)
        self._schema_version = (await migrate.check(self._settings)).version

    async def _ask_database(self) -> None:
        assert self._server is not None  # whoever is not ready is not asked
        await self._server.ask_database()

    def _metrics(self) -> Metrics | None:
        return self._server.metrics if self._server else None

    def _is_open(self) -> bool:
        """With tokens, metrics beyond this machine are for those who show one, at the HTTP door."""
        return Address(self._plan.health_host, 0).is_loopback or not (self._server and self._server.has_tokens)

    # --- signals

    def _hear_the_end(self) -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._is_told_to_stop.set()

    def _hear(self, number: int) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(REFUSED)
        name = signal.Signals(number).name
        if self._signals == 1:
            log.info("%s: stopping; once more ends calls under way at once", name)
            self._is_told_to_stop.set()
        else:
            log.info("%s again: ending at once", name)
            self._is_in_a_hurry.set()


def introduce(plan: ServerPlan, server: Server, *, health_port: int | None, schema_version: int) -> None:
    """On stderr; with --json on stdout as well, as a document; among JSON log lines as one of them."""
    facts = find_facts(plan, server, health_port, schema_version)
    if plan.as_json:
        show_json(facts)
    if plan.log_format == "json":
        log.info("server starts: %s", ", ".join(f"{name} {value}" for name, value in facts.items()))
    else:
        schema = f"{facts['schema']}, version {schema_version}"
        shown = facts | {"database": name_database(plan.settings), "schema": schema}
        lines = [f"  {name:<9} {value}" for name, value in shown.items() if name not in ("pid", "version")]
        say("\n".join([f"Pulse server, pid {os.getpid()}", *lines]), to_stderr=True)
    if server.is_exposed and plan.settings.tls_cert is None:
        log.warning("tokens and payloads travel in clear text: set PULSE_TLS_CERT and PULSE_TLS_KEY, or use a tunnel")


def find_facts(plan: ServerPlan, server: Server, health_port: int | None, schema_version: int) -> dict[str, Any]:
    settings = plan.settings
    scheme = "grpc" if settings.tls_cert is None else "grpcs"
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "address": f"{scheme}://{server.address}",
        "http": describe_http(settings, server),
        "database": without_password(str(settings.database_url)),
        "schema": settings.schema,
        "version": schema_version,
        "tokens": "on" if server.has_tokens else "off",
        "tls": describe_tls(settings),
    }
    if health_port is not None:
        host = plan.health_host
        facts["health"] = f"http://{f'[{host}]' if ':' in host else host}:{health_port}/readyz"
    return facts


def open_in_browser(url: str) -> None:
    """Open the dashboard, where there is one and a browser to show it; the banner has told its address anyway."""
    if not url.startswith("http"):
        log.warning("there is no dashboard to open: HTTP is %s", url)
    elif not webbrowser.open(url):
        log.warning("found no browser to open the dashboard with: open %s yourself", url)


def describe_http(settings: Settings, server: Server) -> str:
    if server.http_address is not None:
        return f"http{'' if settings.tls_cert is None else 's'}://{server.http_address}"
    return "off: pip install 'pulse-postgres[http]'" if settings.http_listen else "off"


def describe_tls(settings: Settings) -> str:
    if settings.tls_cert is None:
        return "off"
    return "on" if settings.tls_client_ca is None else "on, clients show certificates"
