"""What does a worker do about declared schedules? It warns of missing ones, and in development syncs them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from pulse.cli.output import plural, print_text
from pulse.sdk.locate import name_of
from pulse.sdk.worker.outcomes import describe

if TYPE_CHECKING:
    from pulse.cli.worker.worker_options import WorkerOptions
    from pulse.links.link import Link
    from pulse.model.schedules import SyncReport
    from pulse.sdk.app import Pulse

log = logging.getLogger("pulse.worker")

PATIENCE = 5.0  # seconds; another session may lock the rows, and jobs are waiting


async def sync_or_check_schedules(options: WorkerOptions, app: Pulse, link: Link) -> None:
    """Sync the declared schedules in development, or else warn of those missing in the database. An error is only
    logged, so that the worker starts in any case."""
    declared = app.schedules.declared
    if not declared and not options.is_dev:  # in development the last one may just have been removed
        return
    try:
        async with asyncio.timeout(PATIENCE):
            report = await link.schedules.sync(name_of(app), declared, dry_run=not options.is_dev)
    except Exception as error:
        done = "synced" if options.is_dev else "compared with the database"
        level = logging.WARNING if options.is_dev and declared else logging.INFO if declared else logging.DEBUG
        log.log(level, "the schedules declared in code were not %s: %s", done, describe(error))
        return
    if options.is_dev:
        _print_report(options, report)
    elif line := warning(report, options.app):
        log.warning("%s", line)


def _print_report(options: WorkerOptions, report: SyncReport) -> None:
    counts = {
        "created": len(report.created),
        "changed": len(report.changed),
        "renamed": len(report.renamed),
        "enabled": len(report.enabled),
        "disabled": len(report.disabled),
        "unchanged": len(report.unchanged),
    }
    line = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    if line and options.log_format == "json":
        log.info("schedules: %s", line)
    elif line:
        print_text(f"  schedules {line}", to_stderr=True)


def warning(report: SyncReport, path: str) -> str | None:
    """Return a warning about declared schedules that the database does not have, or has differently, if any."""
    changed = {*report.changed, *report.enabled, *(name for _, name in report.renamed)}
    missing = len(changed) + len(report.created)
    if not missing:
        return None
    verb, how = "is" if missing == 1 else "are", "as declared" if changed else "yet"
    return (
        f"{plural(missing, 'schedule')} declared in code {verb} not in the database {how}: "
        f"run `pulse schedules sync {path}`"
    )
