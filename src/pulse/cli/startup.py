"""What do all long-running commands do before they begin: how they log, and how they wait for their database?"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pulse.model.errors import DatabaseUnreachable, ServerUnreachable
from pulse.sdk.logs import Logs, install_job_fields, stderr_has_colour, write_logs
from pulse.timing.backoff import Backoff
from pulse.timing.duration import format_duration

log = logging.getLogger("pulse.start")


def set_up_logs(level: str | None, form: str | None) -> None:
    """Records learn of their jobs. How they are written is ours to say only if the application has not."""
    install_job_fields()
    if logging.getLogger().handlers and level is None and form is None:
        return
    write_logs(Logs(form or "text", logging.getLevelNamesMapping()[(level or "info").upper()], stderr_has_colour()))


async def wait_for_database(
    prepare: Callable[[], Awaitable[object]], *, patience: timedelta | None, told_to_stop: asyncio.Event
) -> bool:
    """It may come up after us, so it has some patience, or all of it. False if we were told to stop meanwhile."""
    loop, backoff, failures = asyncio.get_running_loop(), Backoff(), 0
    give_up_at = loop.time() + (math.inf if patience is None else patience.total_seconds())
    while not told_to_stop.is_set():
        try:
            await prepare()
        except (DatabaseUnreachable, ServerUnreachable) as error:
            failures += 1
            delay = backoff.delay(failures).total_seconds()
            if loop.time() + delay > give_up_at:
                raise
            if failures == 1:
                log.warning(
                    "%s Trying for %s.",
                    _sentence(str(error)),
                    "ever" if patience is None else format_duration(patience),
                )
            await _sleep(delay, told_to_stop)
        else:
            return True
    return False


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


async def _sleep(seconds: float, told_to_stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await told_to_stop.wait()
    except TimeoutError:
        pass
