"""How does the process of a server run, from its start to its end?"""

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
from pulse.cli.output import print_text, show_json
from pulse.cli.startup import set_up_logs, wait_for_database
from pulse.cli.systemd import READY, STOPPING, notify_systemd
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
class ServerOptions:
    """The flags of `pulse server`."""

    settings: Settings
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    as_json: bool = False
    open_dashboard: bool = False
    until_stdin_ends: bool = False  # set by `pulse dev`, whose child it is
    admit: str | None = None  # the hash of the secret of `pulse dev`


def run_server(session: Session, options: ServerOptions) -> int:
    """Run a server until a signal comes, and return the exit code."""
    set_up_logs(options.log_level, options.log_format)
    is_embedded = options.settings.database_url is None
    with _exit_on_signals(), session.database(options.settings, create=True, keep=True) as found:
        process = ServerProcess(replace(options, settings=found), migrates=is_embedded)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(process.run())


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Exit on signals that come before the event loop handles them. A Postgres that is being started is stopped."""

    def exit_now(_number: int, _frame: object) -> None:
        raise SystemExit(OK)

    before = {number: signal.signal(number, exit_now) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ServerProcess:
    """A server with its signal handlers and its health endpoints."""

    def __init__(self, options: ServerOptions, *, migrates: bool) -> None:
        self._options = options
        self._settings = options.settings
        self._migrates = migrates
        self._server: Server | None = None
        self._schema_version = 0
        self._signals = 0
        self._stop_requested = asyncio.Event()
        self._end_requested = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        return self._server is not None and self._server.is_ready

    async def run(self) -> int:
        """Run until a signal comes, and return the exit code."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        if self._options.until_stdin_ends:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_stdin)
        async with AsyncExitStack() as stack:
            health_port = await self._serve_health(stack)
            if has_database := await self._has_database():
                admitted = bytes.fromhex(self._options.admit) if self._options.admit else None
                self._server = await stack.enter_async_context(open_server(self._settings, admitted=admitted))
                tune_garbage_collector()
                if self._options.until_stdin_ends:
                    print_text("ready")  # read by `pulse dev`, which prints its own banner
                else:
                    print_banner(
                        self._options, self._server, health_port=health_port, schema_version=self._schema_version
                    )
                if self._options.open_dashboard:
                    await asyncio.to_thread(open_in_browser, describe_http(self._settings, self._server))
                notify_systemd(READY)
                await self._stop_requested.wait()
                notify_systemd(STOPPING)
                await self._drain(self._server)
        if not has_database:
            return UNAVAILABLE
        return REFUSED if self._signals > 1 else OK

    async def _serve_health(self, stack: AsyncExitStack) -> int | None:
        options = self._options
        if options.health_port is None:
            return None
        health = Health(self, self._ask_database, self._metrics, self._is_open)
        return await stack.enter_async_context(serve_health(health, host=options.health_host, port=options.health_port))

    async def _drain(self, server: Server) -> None:
        """Drain the server, or end at once when a second signal comes."""
        draining, ending = asyncio.create_task(server.drain()), asyncio.create_task(self._end_requested.wait())
        await asyncio.wait([draining, ending], return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        ending.cancel()
        await asyncio.wait([draining, ending])
        if not draining.cancelled():
            draining.result()
            log.info("stopped")

    # --- the database

    async def _has_database(self) -> bool:
        return await wait_for_database(
            self._prepare_database,
            where=without_password(str(self._settings.database_url)),
            patience=self._settings.patience,
            stop_requested=self._stop_requested,
        )

    async def _prepare_database(self) -> None:
        if self._migrates:
            for applied in await migrate.migrate(self._settings):
                log.info("applied migration %04d_%s", applied.version, applied.name)
        self._schema_version = (await migrate.check(self._settings)).version

    async def _ask_database(self) -> None:
        assert self._server is not None  # called only once the server is ready
        await self._server.ask_database()

    def _metrics(self) -> Metrics | None:
        return self._server.metrics if self._server else None

    def _is_open(self) -> bool:
        """Tell whether anybody may read metrics here. With tokens, other machines must use the HTTP port for that."""
        return Address(self._options.health_host, 0).is_loopback or not (self._server and self._server.has_tokens)

    # --- signals

    def _on_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._stop_requested.set()

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals > 2:
            os._exit(REFUSED)
        name = signal.Signals(number).name
        if self._signals == 1:
            log.info("%s: stopping; a second signal ends calls under way at once", name)
            self._stop_requested.set()
        else:
            log.info("%s again: ending at once", name)
            self._end_requested.set()


def print_banner(options: ServerOptions, server: Server, *, health_port: int | None, schema_version: int) -> None:
    """Print what runs on stderr, and with --json as a document on stdout; if logs are JSON, log it as a line."""
    facts = collect_facts(options, server, health_port, schema_version)
    if options.as_json:
        show_json(facts)
    if options.log_format == "json":
        log.info("server starts: %s", ", ".join(f"{name} {value}" for name, value in facts.items()))
    else:
        schema = f"{facts['schema']}, version {schema_version}"
        shown = facts | {"database": name_database(options.settings), "schema": schema}
        lines = [f"  {name:<9} {value}" for name, value in shown.items() if name not in ("pid", "version")]
        print_text("\n".join([f"Pulse server, pid {os.getpid()}", *lines]), to_stderr=True)
    if server.is_exposed and options.settings.tls_cert is None:
        log.warning("tokens and payloads are sent in clear text: set PULSE_TLS_CERT and PULSE_TLS_KEY, or use a tunnel")


def collect_facts(
    options: ServerOptions, server: Server, health_port: int | None, schema_version: int
) -> dict[str, Any]:
    settings = options.settings
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
        host = options.health_host
        facts["health"] = f"http://{f'[{host}]' if ':' in host else host}:{health_port}/readyz"
    return facts


def open_in_browser(url: str) -> None:
    """Open the dashboard in a browser, if there is a dashboard and a browser. The banner shows its address, too."""
    if not url.startswith("http"):
        log.warning("there is no dashboard to open: HTTP is %s", url)
    elif not webbrowser.open(url):
        log.warning("no browser was found to open the dashboard: open %s yourself", url)


def describe_http(settings: Settings, server: Server) -> str:
    if server.http_address is not None:
        return f"http{'' if settings.tls_cert is None else 's'}://{server.http_address}"
    return "off: pip install 'pulse-postgres[http]'" if settings.http_listen else "off"


def describe_tls(settings: Settings) -> str:
    if settings.tls_cert is None:
        return "off"
    return "on" if settings.tls_client_ca is None else "on, clients need certificates"
