"""Be the first process of a container, as far as that goes without one: python contained.py COMMAND…

Started by `unshare --pid --net`, so that it is process 1 and all ports are its own. Only loopback has to be turned on.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1


def turn_on_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


if __name__ == "__main__":
    assert os.getpid() == 1, "start me by unshare --pid --fork"
    turn_on_loopback()
    os.execv(sys.argv[1], sys.argv[1:])
