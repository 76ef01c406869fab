"""What does a worker say of a run that has ended?

A line for each would cost a fast worker more than some handlers do, so whether anybody reads it is asked once for each
batch of answers, and where nobody does nothing is measured or written.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.jobs import Outcome
from pulse.sdk.context import during
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from pulse.model.jobs import Report
    from pulse.model.redaction import Redaction
    from pulse.sdk.worker.run import Run

log = logging.getLogger("pulse.worker")

LONGEST_RESULT = 80  # characters
LONGEST_ERROR = 500


class RunLog:
    """The lines about runs that have ended, written from `level` on; failures are warnings whatever it is.

    `is_detailed` is for a developer's terminal: results and tracebacks as well, which may hold what nobody wants in the
    logs of a production worker.
    """

    def __init__(self, redaction: Redaction, *, level: int = logging.DEBUG, is_detailed: bool = False) -> None:
        self._redaction = redaction
        self._level = level
        self._is_detailed = is_detailed
        self.is_on = False
        self.look()

    def look(self) -> None:
        """Find out whether anybody reads the lines about runs that went well."""
        self.is_on = log.isEnabledFor(self._level)

    def log_end(self, run: Run, report: Report) -> None:
        """Log that a run went well, or was put off by its own handler."""
        claim = run.claim
        with during(run.context):
            if report.outcome is Outcome.SNOOZE and report.delay is not None:
                wait = format_duration(report.delay)
                log.log(self._level, "%s is snoozed for %s  job=%s", claim.task, wait, claim.id)
            elif report.outcome is Outcome.COMPLETE:
                took = "" if run.took is None else f" in {spell_length(run.took)}"
                log.log(self._level, "%s finished%s%s  job=%s", claim.task, took, self._result(run, report), claim.id)

    def _result(self, run: Run, report: Report) -> str:
        if not self._is_detailed or report.result in (None, "null"):
            return ""
        shown = self._redaction.text(self._redaction.json(report.result), run.claim.payload)
        return f" → {shown if len(shown) <= LONGEST_RESULT else f'{shown[: LONGEST_RESULT - 1]}…'}"

    def log_failure(self, run: Run | None, report: Report) -> None:
        """Log that a run failed; its report has been masked already."""
        why = str(report.clean_error).partition("\n")[0][:LONGEST_ERROR]
        if run is None:
            log.warning("job %s failed: %s", report.id, why)
            return
        traceback = report.clean_traceback if self._is_detailed else None
        extra = {"job_traceback": traceback.rstrip()} if traceback else None
        if report.outcome is Outcome.DISCARD:
            log.warning("%s failed for good: %s  job=%s", run.claim.task, why, report.id, extra=extra)
        else:
            attempt, most = run.context.attempt, run.context.max_attempts
            message = "%s failed on attempt %d of %d: %s  job=%s"
            log.warning(message, run.claim.task, attempt, most, why, report.id, extra=extra)


def spell_length(seconds: float) -> str:
    """Return a length of time as people say it: 3 ms, 1.2 s, 2m5s."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "less than 1 ms"
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(timedelta(seconds=round(seconds)))
