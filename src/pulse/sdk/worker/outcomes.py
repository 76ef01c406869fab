"""What becomes of a job when its handler ends? Everything a handler returns or raises becomes one report."""

from __future__ import annotations

import traceback as tracebacks
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidArguments, InvalidInput, InvalidResult
from pulse.model.explain.facts import unknown_task_error
from pulse.model.jobs import Claim, Outcome, Report
from pulse.sdk.context import Discard, RetryIn, Snooze

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.sdk.task import Task

_SDK_FOLDER = str(Path(__file__).parents[1])  # tracebacks leave its frames out: they do not help to find a mistake


def report_result(task: Task[..., Any, Any], claim: Claim, value: object) -> Report:
    """Report what the handler returned. A result that cannot be stored makes the job a dead letter instead of a retry,
    because its work was done."""
    try:
        text = task.result.pack(value)
        return Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.COMPLETE, result=text)
    except (InvalidResult, InvalidInput) as error:
        return _report(claim, Outcome.DISCARD, error=f"the handler finished, but {error}")


def report_error(task: Task[..., Any, Any], claim: Claim, error: BaseException) -> Report:
    """Report what the handler raised. This never raises: a failure that is not reported would run again for ever."""
    try:
        return _report_error(task, claim, error)
    except BaseException as second:  # the code of the handler's exception may raise, too
        return _report(claim, Outcome.FAIL, error=f"{describe(error)} (and while reporting it, {describe(second)})")


def _report_error(task: Task[..., Any, Any], claim: Claim, error: BaseException) -> Report:
    match error:
        case Snooze():
            return _report(claim, Outcome.SNOOZE, delay=error.delay)
        case RetryIn():
            return _report(claim, Outcome.FAIL, error=describe(error), delay=error.delay)
        case Discard():
            return _report(claim, Outcome.DISCARD, error=str(error))
        case InvalidArguments():  # raised before the handler was called; a newer worker may know better
            return _report(claim, Outcome.FAIL, error=describe(error))
    retry = task.options.retry
    outcome = Outcome.FAIL if retry is None or isinstance(error, retry.on) else Outcome.DISCARD
    return _report(claim, outcome, error=describe(error), traceback=format_traceback(error))


def report_timeout(claim: Claim) -> Report:
    seconds = claim.timeout.total_seconds() if claim.timeout else 0
    return _report(claim, Outcome.FAIL, error=f"timed out after {seconds:g} s")


def report_unknown(claim: Claim, delay: timedelta) -> Report:
    """Snooze a job whose task is unknown here: it waits, without being charged, for a worker that knows the task."""
    return _report(claim, Outcome.SNOOZE, error=unknown_task_error(claim.task), delay=delay)


def report_refused(report: Report, error: Exception) -> Report:
    """Return the report to send instead of one that was refused. If the work was done, the job becomes a dead letter
    instead of being retried."""
    is_done = report.outcome is Outcome.COMPLETE
    outcome = Outcome.DISCARD if is_done or report.outcome is Outcome.DISCARD else Outcome.FAIL
    end = "the handler finished, but its result" if is_done else "the handler ended, but its report"
    text = f"{end} was refused: {describe(error)}"
    return Report(id=report.id, lease_id=report.lease_id, outcome=outcome, error=text)


def report_crash(claim: Claim, error: str) -> Report:
    return _report(claim, Outcome.FAIL, error=error)


def describe(error: BaseException) -> str:
    """Return the class and the message of an error, even if its `__str__` fails."""
    name = type(error).__name__
    try:
        text = str.__str__(str(error))  # a plain string, even if `__str__` returns a subclass of str
    except BaseException as second:
        text = f"(its message could not be read: {type(second).__name__})"
    return f"{name}: {text}" if text else name


def format_traceback(error: BaseException) -> str | None:
    """Return the traceback from the handler's first line on, without the frames of the SDK that called it."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_SDK_FOLDER):
            trace = trace.tb_next
        return "".join(tracebacks.format_exception(type(error), error, trace or error.__traceback__, limit=-50))
    except BaseException:
        return None


def _report(
    claim: Claim,
    outcome: Outcome,
    *,
    error: str = "",
    traceback: str | None = None,
    delay: timedelta | None = None,
) -> Report:
    return Report(id=claim.id, lease_id=claim.lease_id, outcome=outcome, error=error, traceback=traceback, delay=delay)
