"""What does a worker do about the schedules that its code declares? It warns, or in development syncs them itself."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pulse.cli.output import plural, say
from pulse.sdk.locate import name_of
from pulse.sdk.worker.outcomes import describe

if TYPE_CHECKING:
    from pulse.cli.worker.plan import Plan
    from pulse.links.link import Link
    from pulse.model.schedules import SyncReport
    from pulse.sdk.app import Pulse

log = logging.getLogger("pulse.worker")

PATIENCE = 5.0  # seconds; somebody may hold the rows, and jobs wait


async def see_to_schedules(plan: Plan, app: Pulse, link: Link) -> None:
    """Jobs come first: whatever goes wrong here is said, and the worker starts."""
    declared = app.schedules.declared
    if not declared and not plan.is_dev:  # there, the last one may just have been taken out of the code
        return
    try:
        async with asyncio.timeout(PATIENCE):
            report = await link.schedules.sync(name_of(app), declared, dry_run=not plan.is_dev)
    except Exception as error:
        done = "synced" if plan.is_dev else "compared with the database"
        level = logging.WARNING if plan.is_dev and declared else logging.INFO if declared else logging.DEBUG
        log.log(level, "the schedules declared in code were not %s: %s", done, describe(error))
        return
    if plan.is_dev:
        _tell(plan, report)
    elif line := warning(report, plan.app):
        log.warning("%s", line)


def _tell(plan: Plan, report: SyncReport) -> None:
    counts = {
        "created": len(report.created),
        "changed": len(report.changed),
        "renamed": len(report.renamed),
        "enabled": len(report.enabled),
        "disabled": len(report.disabled),
        "unchanged": len(report.unchanged),
    }
    line = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if line and plan.log_format == "json":
        log.info("schedules: %s", line)
    elif line:
        say(f"  schedules {line}", to_stderr=True)


def warning(report: SyncReport, path: str) -> str | None:
    """For those of the code that the database does not have as they are declared."""
    changed = {*report.changed, *report.enabled, *(name for _, name in report.renamed)}
    missing = len(changed) + len(report.created)
    if not missing:
        return None
    verb, how = "is" if missing == 1 else "are", "as declared" if changed else "yet"
    return (
        f"{plural(missing, 'schedule')} declared in code {verb} not in the database {how}: "
        f"run `pulse schedules sync {path}`"
    )
