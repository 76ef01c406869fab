"""How does a command run as an ordinary user on a machine where everything else runs as root?

`python -m tools.ordinary_user COMMAND…` gives up root for good, with a home folder of its own, and becomes the command.
Whoever is an ordinary user already just runs it.
"""

from __future__ import annotations

import os
import pwd
import sys
import tempfile

NAME = "nobody"


def become_ordinary() -> None:
    """Give up root, in a new home folder that belongs to the ordinary user."""
    user = pwd.getpwnam(NAME)
    home = tempfile.mkdtemp(prefix="pulse-user-", dir="/tmp")  # short: sockets lie in it
    os.chown(home, user.pw_uid, user.pw_gid)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=home, USER=NAME, LOGNAME=NAME, PYTHONDONTWRITEBYTECODE="1")


def main(command: list[str]) -> None:
    if os.geteuid() == 0:
        become_ordinary()
    try:
        os.execvp(command[0], command)  # noqa: S606  no shell is wanted
    except PermissionError:
        sys.exit(
            f"user {NAME!r} may not read {command[0]}: put the checkout and its Python where every user can read them"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
