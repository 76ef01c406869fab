"""How does an operator learn whether all is well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.exit_codes import OK, REFUSED
from pulse.cli.options import Command
from pulse.cli.output import Cell, Column, Styled, plural, say, show_table
from pulse.event_loop import run
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.cli.session import Session
    from pulse.model.doctor.findings import Finding
    from pulse.settings import Settings

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command(cls=Command, short_help="Look whether all is well, and say what helps.")
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.pass_obj
def doctor(session: Session, /, strict: bool) -> None:
    """Look whether all is well: the database, the schema, those who work on it.

    Settings that lose data, clocks, old transactions that hold dead rows, connections, a pooler, notifications, duties
    that nobody does, releases that differ, broken schedules, tokens about to expire. It changes nothing, and costs
    little. Through a server alone, only the servers and workers are seen.

    The exit code is 1 if something fails; a warning alone is 0, unless --strict.

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
            return [*findings, ok("database", "not looked at: that needs PULSE_DATABASE_URL")]
    try:
        return findings + _examine_database(session, settings)
    except PulseError as error:  # there is none, or it does not start
        return [*findings, fail("database", str(error))]


def _examine_database(session: Session, settings: Settings) -> list[Finding]:
    from pulse.engine.doctor import examine

    found = click.get_current_context().with_resource(session.database(settings))  # until the findings are shown
    return run(examine(found))


def _show(findings: Sequence[Finding]) -> None:
    columns = [Column(""), Column("LOOKED AT"), Column("FOUND", rank=1, least=30, folds=True)]
    show_table(columns, [row for finding in findings for row in _rows(finding)])
    counts = [sum(finding.level == level for finding in findings) for level in ("fail", "warn")]
    if not any(counts):
        say("All is well.")
    else:
        say(f"{plural(counts[0], 'failure')}, {plural(counts[1], 'warning')}.")


def _rows(finding: Finding) -> list[list[Cell]]:
    rows: list[list[Cell]] = [[Styled(finding.level, STYLES[finding.level]), finding.name, finding.text]]
    if finding.advice:
        rows.append(["", "", Styled(f"→ {finding.advice}", "dim")])
    return rows
