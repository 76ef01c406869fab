"""What does a worker log about a run that has ended?

A log call for each run would cost a fast worker more than some handlers do. So the log level is checked once for each
batch of answers, and if it is off nothing is measured or written.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.jobs import Outcome
from pulse.sdk.context import use_context
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from pulse.model.jobs import Report
    from pulse.model.redaction import Redaction
    from pulse.sdk.worker.run import Run

log = logging.getLogger("pulse.worker")

RESULT_LIMIT = 80  # characters
ERROR_LIMIT = 500


class RunLog:
    """The log lines about runs that have ended, at `level`; failures are always warnings.

    `is_detailed` is for a developer's terminal: it adds results and tracebacks, which may hold data that does not
    belong in the logs of a production worker.
    """

    def __init__(self, redaction: Redaction, *, level: int = logging.DEBUG, is_detailed: bool = False) -> None:
        self._redaction = redaction
        self._level = level
        self._is_detailed = is_detailed
        self.is_on = False
        self.check_level()

    def check_level(self) -> None:
        """Update `is_on`, which tells whether runs that went well are logged."""
        self.is_on = log.isEnabledFor(self._level)

    def log_end(self, run: Run, report: Report) -> None:
        """Log that a run completed or was snoozed by its handler."""
        claim = run.claim
        with use_context(run.context):
            if report.outcome is Outcome.SNOOZE and report.delay is not None:
                wait = format_duration(report.delay)
                log.log(self._level, "%s is snoozed for %s  job=%s", claim.task, wait, claim.id)
            elif report.outcome is Outcome.COMPLETE:
                took = "" if run.took is None else f" in {format_run_time(run.took)}"
                log.log(self._level, "%s finished%s%s  job=%s", claim.task, took, self._result(run, report), claim.id)

    def _result(self, run: Run, report: Report) -> str:
        if not self._is_detailed or report.result in (None, "null"):
            return ""
        shown = self._redaction.text(self._redaction.json(report.result), run.claim.payload)
        return f" → {shown if len(shown) <= RESULT_LIMIT else f'{shown[: RESULT_LIMIT - 1]}…'}"

    def log_failure(self, run: Run | None, report: Report) -> None:
        """Log that a run failed; its report has been masked already."""
        why = str(report.clean_error).partition("\n")[0][:ERROR_LIMIT]
        if run is None:
            log.warning("job %s failed: %s", report.id, why)
            return
        traceback = report.clean_traceback if self._is_detailed else None
        extra = {"job_traceback": traceback.rstrip()} if traceback else None
        if report.outcome is Outcome.DISCARD:
            log.warning("%s failed for good: %s  job=%s", run.claim.task, why, report.id, extra=extra)
        else:
            attempt, max_attempts = run.context.attempt, run.context.max_attempts
            message = "%s failed on attempt %d of %d: %s  job=%s"
            log.warning(message, run.claim.task, attempt, max_attempts, why, report.id, extra=extra)


def format_run_time(seconds: float) -> str:
    """Return a length of time for people: 3 ms, 1.2 s, 2m5s."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "less than 1 ms"
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(timedelta(seconds=round(seconds)))
