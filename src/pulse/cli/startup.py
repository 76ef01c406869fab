"""What do all long-running commands do first? They set up their logs, and wait for their database."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from pulse.model.errors import DatabaseUnreachable, ServerUnreachable
from pulse.sdk.logs import LogSettings, configure_logging, install_job_fields, stderr_has_colour
from pulse.timing.backoff import Backoff
from pulse.timing.duration import format_duration

log = logging.getLogger("pulse.start")

NOTICE_AFTER = 1.5  # seconds without an answer before that is logged
STOP_PATIENCE = 0.5  # seconds for a try that is under way when the command is stopped


def set_up_logs(level: str | None, form: str | None) -> None:
    """Add the fields of jobs to log records, and write them to stderr unless the application set up logging itself."""
    install_job_fields()
    if logging.getLogger().handlers and level is None and form is None:
        return
    configure_logging(
        LogSettings(form or "text", logging.getLevelNamesMapping()[(level or "info").upper()], stderr_has_colour())
    )


async def wait_for_database(
    prepare: Callable[[], Coroutine[Any, Any, object]],
    *,
    where: str,
    patience: timedelta | None,
    stop_requested: asyncio.Event,
) -> bool:
    """Wait for a database that may start later than this process. Return False if a stop was requested meanwhile.

    It raises after `patience`, or waits for ever without one. `where` is the address to show.
    """
    trying = "until it answers" if patience is None else f"for {format_duration(patience)}"
    loop, backoff, failures = asyncio.get_running_loop(), Backoff(), 0
    give_up_at = loop.time() + (math.inf if patience is None else patience.total_seconds())
    while not stop_requested.is_set():
        try:
            no_answer = None if failures else f"no answer from {where} yet; trying {trying}"
            if not await _is_prepared(prepare, stop_requested, no_answer):
                return False
        except (DatabaseUnreachable, ServerUnreachable) as error:
            failures += 1
            left = give_up_at - loop.time()
            if left <= 0:
                raise
            if failures == 1:
                log.warning("%s Trying %s.", _sentence(str(error)), trying)
            await _sleep(min(left, backoff.delay(failures).total_seconds()), stop_requested)  # one last try at the end
        else:
            return True
    return False


async def _is_prepared(
    prepare: Callable[[], Coroutine[Any, Any, object]], stop_requested: asyncio.Event, no_answer: str | None
) -> bool:
    """Try once. A try without an answer may take long, so `no_answer`, if given, is logged after a while.

    Return False if a stop was requested and the try did not end shortly after that.
    """
    trying, stopping = asyncio.create_task(prepare()), asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait([trying, stopping], timeout=NOTICE_AFTER, return_when=asyncio.FIRST_COMPLETED)
        if not trying.done() and not stopping.done():
            if no_answer:
                log.warning(no_answer)
            await asyncio.wait([trying, stopping], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([trying], timeout=STOP_PATIENCE)
        if not trying.done():
            return False
        trying.result()
        return True
    finally:
        for task in (trying, stopping):
            task.cancel()
        await asyncio.gather(trying, stopping, return_exceptions=True)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


async def _sleep(seconds: float, stop_requested: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop_requested.wait()
    except TimeoutError:
        pass
