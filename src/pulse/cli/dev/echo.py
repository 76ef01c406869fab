"""How does `pulse dev` show alarms as they arrive, before the application has an endpoint for them?"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from pulse.cli.alarms.echo import secrets_of, show_as_line
from pulse.cli.output import print_text
from pulse.doors.echo import HOST, Echo, serve_echo
from pulse.store.embedded.dev_notes import leave_notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings

THIS_MACHINE = "127.0.0.0/8,::1"
END_PATIENCE = 3.0  # seconds


@contextmanager
def dev_echo(settings: Settings, *, is_ours: bool) -> Iterator[None]:
    """Show alarms without a URL on this terminal, unless the user has set a target for them, and let alarms call this
    machine.

    The server and the worker get these settings from the environment, which they inherit. If the Postgres `is_ours`,
    other programs in this folder read them from a file.
    """
    networks = settings.alarm_networks or THIS_MACHINE
    os.environ["PULSE_ALARM_NETWORKS"] = networks
    if settings.alarm_target is not None:
        with _share_settings(settings, settings.alarm_target, networks, is_ours=is_ours):
            yield
        return
    with _Thread(settings) as url, _share_settings(settings, url, networks, is_ours=is_ours):
        os.environ["PULSE_ALARM_TARGET"] = url
        print_text(f"  alarms    shown here as they arrive ({url})", to_stderr=True)
        yield


def _share_settings(settings: Settings, target: str, networks: str, *, is_ours: bool) -> AbstractContextManager[None]:
    """Leave the settings for programs that use the embedded Postgres of this folder, if that is the database."""
    return leave_notes(settings.state_dir, alarm_target=target, alarm_networks=networks) if is_ours else nullcontext()


class _Thread:
    """An echo server on a thread with an event loop of its own, because this process watches files meanwhile."""

    def __init__(self, settings: Settings) -> None:
        show = partial(show_as_line, to_stderr=True)
        self._echo = Echo(show, secrets=secrets_of(settings), redaction=settings.redaction)
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pulse echo", daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        self._is_up.wait()
        if self._error is not None:
            raise self._error
        return f"http://{HOST}:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_PATIENCE)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serve_echo(self._echo, port=0) as self._port:
            self._is_up.set()
            await self._stop.wait()
