"""How can a program run Postgres without being root, and have it end when its owner ends?

launch.py runs this file as `python -I -S launch_postgres.py OWNER IDENTITY FOLDER PROGRAM ARGUMENT...`. It
takes the place of subprocess's preexec_fn, which is not safe in a process with threads, and turns into PROGRAM, so the
pid stays. It knows nothing of Pulse. IDENTITY is one of

    self                 run as the current user
    namespace:UID:GID    look like UID from the inside, and remain the current user on disk
    user:UID:GID         become UID
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1


def main(owner: str, identity: str, folder: str, program: str, *arguments: str) -> None:
    kind, *ids = identity.split(":")
    if kind == "namespace":
        enter_namespace(*ids)
    if kind == "user":
        become(*map(int, ids))
    os.chdir(folder)  # tells whether this user may enter; and Postgres warns about folders it cannot
    if sys.platform == "linux":
        end_with(int(owner))  # last, because a change of user clears it
    os.execv(program, [program, *arguments])  # noqa: S606


def enter_namespace(uid: str, gid: str) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    system_call("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")  # the kernel wants this before a gid_map
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def end_with(owner: int) -> None:
    """Ask for SIGINT, Postgres' fast shutdown, when the thread that started us ends."""
    system_call("prctl", PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != owner:  # it ended before we asked
        sys.exit(f"process {owner} ended before Postgres could start")


def system_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[4]} as {sys.argv[2]} in {sys.argv[3]}: {error}")
