"""Which parts of a row are masked before it leaves the engine? Marked fields of its payload, and errors about them.

The use cases mask everything that they return, so that no door can forget it. Some values are not masked because work
depends on them: a claim on its way to its worker, a wake on its way to its URL, and rows that are compared.
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


THREADS = ThreadPoolExecutor(2, "pulse-mask")  # separate, so that other work in threads does not wait for masking


async def mask_each(mask: Callable[[Row], Masked], rows: Iterable[Row]) -> list[Masked]:
    """Mask many rows, in a thread so that large payloads do not block the event loop."""
    listed = list(rows)
    return await off_loop(lambda: [mask(row) for row in listed]) if listed else []


async def mask_one(redaction: Redaction, mask: Callable[[Redaction, Row], Row], row: Row) -> Row:
    """Mask one row, also in a thread: a payload of a mebibyte may take half a second."""
    return await off_loop(lambda: mask(redaction, row)) if redaction else row


async def refuse_masked_each(redaction: Redaction, payloads: Iterable[str], *, is_edit: bool = False) -> None:
    """Refuse payloads with the mask as a marked value. Only payloads that contain the mask at all are parsed."""
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
    msgspec.structs.force_setattr(job, "payload", redaction.json(payload))  # without checking the job again
    error = None if schedule.error is None else redaction.text(schedule.error, payload)
    return msgspec.structs.replace(schedule, job=job, error=error)


def mask_attempts(redaction: Redaction, attempts: Iterable[Attempt], payload: str) -> list[Attempt]:
    mask = redaction.text_masker(payload)
    return [
        msgspec.structs.replace(each, error=mask(each.error), traceback=each.traceback and mask(each.traceback))
        for each in attempts
    ]


def mask_deliveries(redaction: Redaction, deliveries: Iterable[Delivery], payload: str) -> list[Delivery]:
    mask = redaction.text_masker(payload)
    return [
        msgspec.structs.replace(each, error=each.error and mask(each.error), answer=mask(each.answer))
        for each in deliveries
    ]


def mask_report(redaction: Redaction, report: Report, payload: str) -> Report:
    """Mask the error of a report, for the log of attempts. A worker that has the setting has done so already."""
    mask = redaction.text_masker(payload)
    error, traceback = mask(report.error), report.traceback and mask(report.traceback)
    if (error, traceback) == (report.error, report.traceback):
        return report
    return msgspec.structs.replace(report, error=error, traceback=traceback)


def mask_result(redaction: Redaction, result: WakeResult, payload: str) -> WakeResult:
    """Mask the result of a delivery, since an endpoint may answer with the payload."""
    return _change_texts(result, lambda text: redaction.text(text, payload)) if redaction else result


def hide_headers(result: WakeResult, headers: Mapping[str, str], token: str | None) -> WakeResult:
    """Mask the values of request headers in a result: any of them may be a credential."""
    values = [*headers.values(), *filter(None, [token])]
    secrets = [*values, *(value.partition(" ")[2] for value in values)]  # also without a scheme such as Bearer
    return _change_texts(result, lambda text: hide_in(text, secrets)) if values else result


def _change_texts(result: WakeResult, change: Callable[[str], str]) -> WakeResult:
    error = result.error and change(result.error)
    return msgspec.structs.replace(result, error=error, answer=change(result.answer))
