"""How does systemd learn that a process is ready, or about to end? By a word on the socket it names (`Type=notify`)."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger("pulse.start")

READY = "READY=1"
STOPPING = "STOPPING=1"


def tell_manager(word: str) -> None:
    """Whoever was not started by a service manager tells nobody; one that does not listen is no reason to fail."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # Linux: a name without a file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)  # it must not keep the event loop
            sending.sendto(word.encode(), address)
    except OSError as error:
        log.warning("the service manager was not told %s: %s", word, error)
