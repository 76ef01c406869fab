"""What does a long-running command do when another process stops its embedded Postgres? It starts it again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulse.cli.output import print_text
from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulse.store.embedded.server import EmbeddedPostgres

CHECK_EVERY = 0.2  # seconds; short, so that other commands find this server rather than start another
TRY_EVERY = 5.0  # seconds, if the server does not start


@contextmanager
def keep_running(server: EmbeddedPostgres, start: Callable[[], EmbeddedPostgres]) -> Iterator[None]:
    """Start the server again whenever it is stopped, as long as the block runs. Closing `server` closes the new one."""
    is_over = threading.Event()
    watch = threading.Thread(target=_keep, args=(server, start, is_over), name="pulse postgres watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


def _keep(server: EmbeddedPostgres, start: Callable[[], EmbeddedPostgres], is_over: threading.Event) -> None:
    pause = CHECK_EVERY
    while not is_over.wait(pause):
        if server.is_running:
            continue
        try:
            found = start()
        except EmbeddedPostgresFailed as error:
            if pause == CHECK_EVERY:
                print_text(f"Postgres was stopped and cannot be started again yet: {error}", to_stderr=True)
            pause = TRY_EVERY
            continue
        pause = CHECK_EVERY
        _print_restart(server, found)
        server.follow(found)


def _print_restart(before: EmbeddedPostgres, found: EmbeddedPostgres) -> None:
    if found.dsn != before.dsn:  # the socket had to be elsewhere, and the connections here use the old address
        print_text(
            "Postgres was stopped and is back at another address: end this command and start it again.", to_stderr=True
        )
    elif found.owned:
        print_text("Postgres was stopped and has been started again. It ends with this command.", to_stderr=True)
