"""What does a command that goes on do when its embedded Postgres is stopped under it? It starts it again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pulse.cli.output import say
from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulse.store.embedded.server import EmbeddedPostgres

LOOK_EVERY = 0.2  # seconds: others who need one should find ours, rather than start theirs
TRY_EVERY = 5.0  # seconds, where it does not start


@contextmanager
def keeping(server: EmbeddedPostgres, start: Callable[[], EmbeddedPostgres]) -> Iterator[None]:
    """As long as the block lasts, there is a server, and closing `server` closes the one there is."""
    is_over = threading.Event()
    watch = threading.Thread(target=_keep, args=(server, start, is_over), name="pulse postgres watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


def _keep(server: EmbeddedPostgres, start: Callable[[], EmbeddedPostgres], is_over: threading.Event) -> None:
    pause = LOOK_EVERY
    while not is_over.wait(pause):
        if server.is_running:
            continue
        try:
            found = start()
        except EmbeddedPostgresFailed as error:
            if pause == LOOK_EVERY:
                say(f"Postgres was stopped, and cannot be started again yet: {error}", to_stderr=True)
            pause = TRY_EVERY
            continue
        pause = LOOK_EVERY
        _tell(server, found)
        server.follow(found)


def _tell(before: EmbeddedPostgres, found: EmbeddedPostgres) -> None:
    if found.dsn != before.dsn:  # its socket had to be elsewhere, and what runs here knows only where it was
        say(
            "Postgres was stopped, and is back at another address: end this command and start it again.", to_stderr=True
        )
    elif found.owned:
        say("Postgres was stopped: started it again. It ends with this command.", to_stderr=True)
