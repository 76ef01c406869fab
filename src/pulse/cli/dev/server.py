"""How does `pulse dev` run a server like that of production?"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pulse.cli.output import print_text
from pulse.doors.http import is_installed
from pulse.model.errors import ServerUnreachable
from pulse.model.network.server_url import HTTP_PORT, Address, parse_listen
from pulse.model.tokens import hash_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings

START_PATIENCE = 20.0  # seconds
END_PATIENCE = 5.0
MAX_TRIES = 3  # to find ports that no other program takes meanwhile


@contextmanager
def dev_server(settings: Settings, secret: str) -> Iterator[str | None]:
    """Run a server for this database as long as the block runs, and yield its URL, or None if gRPC is not installed.

    It admits callers with the secret, whatever tokens there are.
    """
    if find_spec("grpc") is None:
        print_text(
            "  server    none: the worker uses the database directly (pip install 'pulse-postgres[grpc]')",
            to_stderr=True,
        )
        yield None
        return
    address, http, process = _start_on_free_ports(settings, secret)
    try:
        print_text(f"  server    grpc://{address}", to_stderr=True)
        if http is not None:
            print_text(f"  dashboard http://{http}/", to_stderr=True)
        yield f"grpc://{address}"
    finally:
        _end(process)


def _start_on_free_ports(settings: Settings, secret: str) -> tuple[Address, Address | None, subprocess.Popen[bytes]]:
    """Start the server on free ports. Another program, such as another `pulse dev`, may take a port before the server
    does, so that is tried again."""
    for _ in range(MAX_TRIES):
        address, http = _free_address(parse_listen(settings.listen).port), _http_address(settings)
        process = _start(settings, address, http, secret)
        is_ready = False
        try:
            is_ready = _wait_until_ready(process)
        finally:
            if not is_ready:
                _end(process)
        if is_ready:
            return address, http, process
        if all(each is None or _is_free(each.port) for each in (address, http)):
            break
        print_text("  server    another program has taken the port: starting on another port", to_stderr=True)
    raise ServerUnreachable(f"the server at {address} did not start; its output is above")


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()  # this ends the server; it closes also if this process is killed
    try:
        process.wait(END_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _http_address(settings: Settings) -> Address | None:
    """Return the address for HTTP, or None if it is turned off or not installed."""
    if not settings.http_listen or not is_installed():
        return None
    return _free_address(parse_listen(settings.http_listen, HTTP_PORT).port)


def _free_address(wanted: int) -> Address:
    """Return an address with the wanted port, or with another if it is taken."""
    found = _bindable(wanted) or _bindable(0)
    if found is None:
        raise ServerUnreachable("no port is free on 127.0.0.1")
    return Address("127.0.0.1", found)


def _is_free(port: int) -> bool:
    return _bindable(port) is not None


def _bindable(port: int) -> int | None:
    """Return the port, or for 0 one that the system chose, or None if it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def _start(settings: Settings, address: Address, http: Address | None, secret: str) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own: Ctrl-C must not end it before the worker, which reports results."""
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "pulse.cli.main", "server", "--until-stdin-ends"),
            *("--listen", str(address), "--http-listen", str(http or ""), "--log-level", "warning"),
            *("--admit", hash_of(secret).hex()),  # a hash, because other users can see the command line
        ],
        env=os.environ | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,  # on which it prints that it is ready
        start_new_session=True,
    )


def _wait_until_ready(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server prints that it is ready, and return whether it did. Its port is not tried instead, because
    the server of another database may answer there."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_PATIENCE)
    return bool(readable) and process.stdout.readline() != b""
