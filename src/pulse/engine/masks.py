"""What of a row may leave the engine? Everything but the payload's marked fields, and errors that quote them.

Whatever is asked for through a use case comes out of here, so that no door can forget it. What is not masked is what
does the work: a claim on its way to its worker, a wake on its way to its URL, and the rows that are compared.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pulse.delivery.wake import Delivered
    from pulse.model.alarms import Alarm, Delivery
    from pulse.model.jobs import Attempt, Job, Report
    from pulse.model.redaction import Redaction
    from pulse.model.schedules import Schedule

T = TypeVar("T", "Job", "Alarm")
Row = TypeVar("Row")
Masked = TypeVar("Masked")


async def mask_each(mask: Callable[[Row], Masked], rows: Iterable[Row]) -> list[Masked]:
    """Many of them. A large payload takes a while, so everybody else has a turn between one and the next."""
    masked = []
    for row in rows:
        masked.append(mask(row))
        await asyncio.sleep(0)
    return masked


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
    return [
        msgspec.structs.replace(
            each,
            error=redaction.text(each.error, payload),
            traceback=each.traceback and redaction.text(each.traceback, payload),
        )
        for each in attempts
    ]


def mask_deliveries(redaction: Redaction, deliveries: Iterable[Delivery], payload: str) -> list[Delivery]:
    return [
        msgspec.structs.replace(
            each,
            error=each.error and redaction.text(each.error, payload),
            answer=redaction.text(each.answer, payload),
        )
        for each in deliveries
    ]


def mask_report(redaction: Redaction, report: Report, payload: str) -> Report:
    """What goes into the log of attempts. Workers have done it before, if they know the setting."""
    error = redaction.text(report.error, payload)
    traceback = report.traceback and redaction.text(report.traceback, payload)
    if (error, traceback) == (report.error, report.traceback):
        return report
    return msgspec.structs.replace(report, error=error, traceback=traceback)


def mask_delivered(redaction: Redaction, delivered: Delivered, payload: str) -> Delivered:
    """An endpoint may answer with what it was sent."""
    if not redaction:
        return delivered
    return msgspec.structs.replace(
        delivered,
        error=delivered.error and redaction.text(delivered.error, payload),
        answer=redaction.text(delivered.answer, payload),
    )
