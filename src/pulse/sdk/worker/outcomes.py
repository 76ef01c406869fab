"""What does a handler's end mean for its job? Whatever it returns or raises becomes one report."""

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

_OURS = str(Path(__file__).parents[1])  # the SDK, whose frames tell the author of a handler nothing


def report_result(task: Task[..., Any, Any], claim: Claim, value: object) -> Report:
    """It returned. What cannot be kept makes it a dead letter, not a retry: the work itself was done."""
    try:
        text = task.result.pack(value)
        return Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.COMPLETE, result=text)
    except (InvalidResult, InvalidInput) as error:
        return _report(claim, Outcome.DISCARD, error=f"the handler finished, but {error}")


def report_error(task: Task[..., Any, Any], claim: Claim, error: BaseException) -> Report:
    """It raised. Whatever it raised, this answers: a failure that cannot be reported would run for ever."""
    try:
        return _report_error(task, claim, error)
    except BaseException as second:  # what an exception of the handler's does when looked at is the handler's doing
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
    """No task of that name here. It waits, uncharged, for a worker that knows it, and says so."""
    return _report(claim, Outcome.SNOOZE, error=unknown_task_error(claim.task), delay=delay)


def report_refused(report: Report, error: Exception) -> Report:
    """Say what became of a report that nobody takes. Where the work was done it is a dead letter, not a retry."""
    is_done = report.outcome is Outcome.COMPLETE
    outcome = Outcome.DISCARD if is_done or report.outcome is Outcome.DISCARD else Outcome.FAIL
    end = "the handler finished, but its result" if is_done else "the handler ended, but what it reported"
    words = f"{end} was refused: {describe(error)}"
    return Report(id=report.id, lease_id=report.lease_id, outcome=outcome, error=words)


def report_crash(claim: Claim, error: str) -> Report:
    return _report(claim, Outcome.FAIL, error=error)


def describe(error: BaseException) -> str:
    """Its kind and its words, whatever these do when asked for."""
    name = type(error).__name__
    try:
        words = str.__str__(str(error))  # plain, where `__str__` answers with a kind of text that has ways of its own
    except BaseException as second:
        words = f"(its text could not be had: {type(second).__name__})"
    return f"{name}: {words}" if words else name


def format_traceback(error: BaseException) -> str | None:
    """From the handler's first line on: what is ours above it tells its author nothing."""
    try:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
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
