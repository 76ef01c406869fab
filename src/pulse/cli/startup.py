"""What do all long-running commands do before they begin: how they log, and how they wait for their database?"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from pulse.model.errors import DatabaseUnreachable, ServerUnreachable
from pulse.sdk.logs import Logs, install_job_fields, stderr_has_colour, write_logs
from pulse.timing.backoff import Backoff
from pulse.timing.duration import format_duration

log = logging.getLogger("pulse.start")

SILENCE = 1.5  # seconds without an answer before that is told
LAST_MOMENT = 0.5  # seconds for a try that is under way when we are told to stop


def set_up_logs(level: str | None, form: str | None) -> None:
    """Records learn of their jobs. How they are written is ours to say only if the application has not."""
    install_job_fields()
    if logging.getLogger().handlers and level is None and form is None:
        return
    write_logs(Logs(form or "text", logging.getLevelNamesMapping()[(level or "info").upper()], stderr_has_colour()))


async def wait_for_database(
    prepare: Callable[[], Coroutine[Any, Any, object]],
    *,
    where: str,
    patience: timedelta | None,
    told_to_stop: asyncio.Event,
) -> bool:
    """It may come up after us, so it has some patience, or all of it. False if we were told to stop meanwhile.

    `where` is its address, for people.
    """
    trying = "until it answers" if patience is None else f"for {format_duration(patience)}"
    loop, backoff, failures = asyncio.get_running_loop(), Backoff(), 0
    give_up_at = loop.time() + (math.inf if patience is None else patience.total_seconds())
    while not told_to_stop.is_set():
        try:
            no_answer = None if failures else f"no answer from {where} yet; trying {trying}"
            if not await _is_prepared(prepare, told_to_stop, no_answer):
                return False
        except (DatabaseUnreachable, ServerUnreachable) as error:
            failures += 1
            left = give_up_at - loop.time()
            if left <= 0:
                raise
            if failures == 1:
                log.warning("%s Trying %s.", _sentence(str(error)), trying)
            await _sleep(min(left, backoff.delay(failures).total_seconds()), told_to_stop)  # a last try at its end
        else:
            return True
    return False


async def _is_prepared(
    prepare: Callable[[], Coroutine[Any, Any, object]], told_to_stop: asyncio.Event, no_answer: str | None
) -> bool:
    """One try. It may take long where nobody answers: that is told soon, and whoever is to stop does not wait for it.

    `no_answer` is what is told; none where a reason was told before. False if we are to stop and it did not come to
    its end in the moment that it has for that.
    """
    trying, told = asyncio.create_task(prepare()), asyncio.create_task(told_to_stop.wait())
    try:
        await asyncio.wait([trying, told], timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED)
        if not trying.done() and not told.done():
            if no_answer:
                log.warning(no_answer)
            await asyncio.wait([trying, told], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([trying], timeout=LAST_MOMENT)
        if not trying.done():
            return False
        trying.result()
        return True
    finally:
        for task in (trying, told):
            task.cancel()
        await asyncio.gather(trying, told, return_exceptions=True)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


async def _sleep(seconds: float, told_to_stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await told_to_stop.wait()
    except TimeoutError:
        pass
