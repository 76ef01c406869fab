"""How does `pulse dev` run the server that production will have?"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pulse.cli.output import say
from pulse.doors.http import is_installed
from pulse.model.errors import ServerUnreachable
from pulse.model.network.server_url import HTTP_PORT, Address, parse_listen
from pulse.model.tokens import hash_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings

START_PATIENCE = 20.0  # seconds
END_PATIENCE = 5.0
TRIES = 3  # at finding ports that nobody takes meanwhile


@contextmanager
def dev_server(settings: Settings, secret: str) -> Iterator[str | None]:
    """A server for this database as long as the block lasts: its URL. None where gRPC is not installed.

    It lets in whoever has the secret, whatever tokens there are.
    """
    if find_spec("grpc") is None:
        say(
            "  server    none: the worker is straight on the database (pip install 'pulse-postgres[grpc]')",
            to_stderr=True,
        )
        yield None
        return
    address, http, process = _start_on_free_ports(settings, secret)
    try:
        say(f"  server    grpc://{address}", to_stderr=True)
        if http is not None:
            say(f"  dashboard http://{http}/", to_stderr=True)
        yield f"grpc://{address}"
    finally:
        _end(process)


def _start_on_free_ports(settings: Settings, secret: str) -> tuple[Address, Address | None, subprocess.Popen[bytes]]:
    """Somebody may take a port between our look and the server's, another `pulse dev` most likely: then look again."""
    for _ in range(TRIES):
        address, http = _free_address(parse_listen(settings.listen).port), _http_address(settings)
        process = _start(settings, address, http, secret)
        is_ready = False
        try:
            is_ready = _gets_ready(process)
        finally:
            if not is_ready:
                _end(process)
        if is_ready:
            return address, http, process
        if all(each is None or _is_free(each.port) for each in (address, http)):
            break
        say("  server    somebody else has taken the port: starting it on another", to_stderr=True)
    raise ServerUnreachable(f"the server at {address} did not start; what it said is above")


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()  # which is how it knows; if we are killed, that closes too
    try:
        process.wait(END_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _http_address(settings: Settings) -> Address | None:
    """None where nobody wants it, or it is not installed."""
    if not settings.http_listen or not is_installed():
        return None
    return _free_address(parse_listen(settings.http_listen, HTTP_PORT).port)


def _free_address(wanted: int) -> Address:
    """With the usual port, or another if somebody has it."""
    found = _bindable(wanted) or _bindable(0)
    if found is None:
        raise ServerUnreachable("no port is free on 127.0.0.1")
    return Address("127.0.0.1", found)


def _is_free(port: int) -> bool:
    return _bindable(port) is not None


def _bindable(port: int) -> int | None:
    """The port, or for 0 one that the system chose; none if somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def _start(settings: Settings, address: Address, http: Address | None, secret: str) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C must not end it before the worker, which has results to report."""
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
    return subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "pulse.cli.main", "server", "--until-stdin-ends"),
            *("--listen", str(address), "--http-listen", str(http or ""), "--log-level", "warning"),
            *("--admit", hash_of(secret).hex()),  # everybody may read this line, and nobody can guess what it is of
        ],
        env=os.environ | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,  # where it says that it is ready
        start_new_session=True,
    )


def _gets_ready(process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server itself says that it is ready: another one, of another database, may answer at its port."""
    assert process.stdout is not None
    told, _, _ = select.select([process.stdout], [], [], START_PATIENCE)
    return bool(told) and process.stdout.readline() != b""
