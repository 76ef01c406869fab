"""What of a row may leave the engine? Everything but the payload's marked fields, and errors that quote them.

Whatever is asked for through a use case comes out of here, so that no door can forget it. What is not masked is what
does the work: a claim on its way to its worker, a wake on its way to its URL, and the rows that are compared.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pulse.model.redaction import MASK, hide_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pulse.delivery.wake import WakeResult
    from pulse.model.alarms import Alarm, Delivery
    from pulse.model.jobs import Attempt, Job, Report
    from pulse.model.redaction import Redaction
    from pulse.model.schedules import Schedule

T = TypeVar("T", "Job", "Alarm")
Row = TypeVar("Row")
Masked = TypeVar("Masked")


THREADS = ThreadPoolExecutor(2, "pulse-mask")  # of our own: others' look-ups and files need not wait for it


async def mask_each(mask: Callable[[Row], Masked], rows: Iterable[Row]) -> list[Masked]:
    """Mask many of them. A large payload takes a while, so it is done in a thread, and the loop goes on."""
    given = list(rows)
    return await off_loop(lambda: [mask(row) for row in given]) if given else []


async def mask_one(redaction: Redaction, mask: Callable[[Redaction, Row], Row], row: Row) -> Row:
    """Mask one of them, in a thread as well: a payload of a mebibyte may take half a second."""
    return await off_loop(lambda: mask(redaction, row)) if redaction else row


async def refuse_masked_each(redaction: Redaction, payloads: Iterable[str], *, is_edit: bool = False) -> None:
    """Refuse the mask in place of a marked value. Only payloads that have the mask somewhere are gone through."""
    if not redaction:
        return
    for payload in payloads:
        if MASK in payload:
            await off_loop(partial(redaction.refuse_masked, payload, is_edit=is_edit))


async def off_loop(work: Callable[[], Masked]) -> Masked:
    return await asyncio.get_running_loop().run_in_executor(THREADS, work)


def mask_job(redaction: Redaction, job: Job) -> Job:
    return _mask(redaction, job)


def mask_error(redaction: Redaction, row: Job | Alarm) -> str | None:
    return None if row.last_error is None else redaction.text(row.last_error, row.payload)


def mask_alarm(redaction: Redaction, alarm: Alarm) -> Alarm:
    return _mask(redaction, alarm)


def _mask(redaction: Redaction, row: T) -> T:
    if not redaction:
        return row
    return msgspec.structs.replace(row, payload=redaction.json(row.payload), last_error=mask_error(redaction, row))


def mask_schedule(redaction: Redaction, schedule: Schedule) -> Schedule:
    if not redaction:
        return schedule
    job, payload = copy(schedule.job), schedule.job.payload
    msgspec.structs.force_setattr(job, "payload", redaction.json(payload))  # what was checked once is a job still
    error = None if schedule.error is None else redaction.text(schedule.error, payload)
    return msgspec.structs.replace(schedule, job=job, error=error)


def mask_attempts(redaction: Redaction, attempts: Iterable[Attempt], payload: str) -> list[Attempt]:
    mask = redaction.texts_of(payload)
    return [
        msgspec.structs.replace(each, error=mask(each.error), traceback=each.traceback and mask(each.traceback))
        for each in attempts
    ]


def mask_deliveries(redaction: Redaction, deliveries: Iterable[Delivery], payload: str) -> list[Delivery]:
    mask = redaction.texts_of(payload)
    return [
        msgspec.structs.replace(each, error=each.error and mask(each.error), answer=mask(each.answer))
        for each in deliveries
    ]


def mask_report(redaction: Redaction, report: Report, payload: str) -> Report:
    """What goes into the log of attempts. Workers have done it before, if they know the setting."""
    mask = redaction.texts_of(payload)
    error, traceback = mask(report.error), report.traceback and mask(report.traceback)
    if (error, traceback) == (report.error, report.traceback):
        return report
    return msgspec.structs.replace(report, error=error, traceback=traceback)


def mask_delivered(redaction: Redaction, delivered: WakeResult, payload: str) -> WakeResult:
    """An endpoint may answer with what it was sent."""
    return _with_words(delivered, lambda text: redaction.text(text, payload)) if redaction else delivered


def hide_headers(delivered: WakeResult, headers: Mapping[str, str], token: str | None) -> WakeResult:
    """Hide what was sent in headers from the answer: a credential, whatever the header is called."""
    values = [*headers.values(), *filter(None, [token])]
    secrets = [*values, *(value.partition(" ")[2] for value in values)]  # also without its scheme, as in Bearer
    return _with_words(delivered, lambda text: hide_in(text, secrets)) if values else delivered


def _with_words(delivered: WakeResult, change: Callable[[str], str]) -> WakeResult:
    error = delivered.error and change(delivered.error)
    return msgspec.structs.replace(delivered, error=error, answer=change(delivered.answer))
