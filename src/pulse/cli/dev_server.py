"""How does `pulse dev` run the server that production will have?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pulse.cli.output import say
from pulse.doors.http import is_installed
from pulse.model.errors import ServerUnreachable
from pulse.model.server_url import HTTP_PORT, Address, parse_listen
from pulse.model.tokens import hash_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings

START_PATIENCE = 20.0  # seconds
END_PATIENCE = 5.0


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
    address = _free_address(parse_listen(settings.listen).port)
    http = _http_address(settings)
    process = _start(settings, address, http, secret)
    try:
        _wait_for(process, address)
        say(f"  server    grpc://{address}", to_stderr=True)
        if http is not None:
            say(f"  dashboard http://{http}/", to_stderr=True)
        yield f"grpc://{address}"
    finally:
        assert process.stdin is not None
        process.stdin.close()  # which is how it knows; if we are killed, that closes too
        try:
            process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _http_address(settings: Settings) -> Address | None:
    """None where nobody wants it, or it is not installed."""
    if not settings.http_listen or not is_installed():
        return None
    return _free_address(parse_listen(settings.http_listen, HTTP_PORT).port)


def _free_address(wanted: int) -> Address:
    """With the usual port, or another if somebody has it."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return Address("127.0.0.1", probe.getsockname()[1])
    raise ServerUnreachable("no port is free on 127.0.0.1")


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
        start_new_session=True,
    )


def _wait_for(process: subprocess.Popen[bytes], address: Address) -> None:
    give_up_at = time.monotonic() + START_PATIENCE
    while time.monotonic() < give_up_at:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex((address.host, address.port)) == 0:
                return
        time.sleep(0.05)
    raise ServerUnreachable(f"the server at {address} did not start; what it said is above")
