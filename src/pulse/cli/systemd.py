"""How is systemd notified that a process is ready or stopping? By a message on its socket (`Type=notify`)."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger("pulse.start")

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify_systemd(state: str) -> None:
    """Send a state to the service manager that started this process, if any. A failure is only logged."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket of Linux, which has no file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)  # it must not block the event loop
            sending.sendto(state.encode(), address)
    except OSError as error:
        log.warning("%s could not be sent to the service manager: %s", state, error)
