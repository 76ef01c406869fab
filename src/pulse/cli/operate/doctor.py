"""How does an operator check an installation?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.exit_codes import OK, REFUSED
from pulse.cli.options import Command
from pulse.cli.output import Cell, Column, Styled, plural, print_text, show_table
from pulse.event_loop import run
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.cli.session import Session
    from pulse.model.doctor.findings import Finding
    from pulse.settings import Settings

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command(cls=Command, short_help="Check the installation, and say what to do about problems.")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.pass_obj
def doctor(session: Session, /, strict: bool) -> None:
    """Check the database, the schema, the servers and the workers.

    It looks at settings that lose data, clocks, old transactions that hold dead rows, connections, poolers,
    notifications, duties that no process runs, releases that differ, broken schedules and tokens about to expire. It
    changes nothing and costs little. With a server alone, it checks only servers and workers.

    The exit code is 1 if a check fails. Warnings alone give 0, unless --strict is set.

    \b
    Examples:
      pulse doctor
      pulse doctor --strict --json
    """
    from pulse.model.doctor.findings import Level, worst_of

    findings = _examine(session)
    worst = worst_of(findings)
    session.answer({"level": worst, "findings": findings}, lambda: _show(findings))
    is_bad = worst is Level.FAIL or (strict and worst is Level.WARN)
    click.get_current_context().exit(REFUSED if is_bad else OK)


def _examine(session: Session) -> list[Finding]:
    from pulse.links.opening import examine_servers
    from pulse.model.doctor.diagnoses import fail, ok

    settings = session.settings()
    findings: list[Finding] = []
    if settings.server_url is not None:
        findings += run(examine_servers(settings))
        if not settings.database_url:
            return [*findings, ok("database", "not checked: that needs PULSE_DATABASE_URL")]
    try:
        return findings + _examine_database(session, settings)
    except PulseError as error:  # there is no database, or it cannot be started
        return [*findings, fail("database", str(error))]


def _examine_database(session: Session, settings: Settings) -> list[Finding]:
    from pulse.engine.doctor import examine

    found = click.get_current_context().with_resource(session.database(settings))  # runs until the findings are shown
    return run(examine(found))


def _show(findings: Sequence[Finding]) -> None:
    columns = [Column(""), Column("CHECK"), Column("FOUND", rank=1, min_width=30, folds=True)]
    show_table(columns, [row for finding in findings for row in _rows(finding)])
    counts = [sum(finding.level == level for finding in findings) for level in ("fail", "warn")]
    if not any(counts):
        print_text("All is well.")
    else:
        print_text(f"{plural(counts[0], 'failure')}, {plural(counts[1], 'warning')}.")


def _rows(finding: Finding) -> list[list[Cell]]:
    rows: list[list[Cell]] = [[Styled(finding.level, STYLES[finding.level]), finding.name, finding.text]]
    if finding.advice:
        rows.append(["", "", Styled(f"→ {finding.advice}", "dim")])
    return rows
