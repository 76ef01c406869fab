"""How does an operator create, upgrade, print or check the schema?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.exit_codes import REFUSED
from pulse.cli.options import Command
from pulse.cli.output import print_lines, print_text
from pulse.event_loop import run

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.settings import Settings
    from pulse.store.schema.migrate import Migration


@click.command(cls=Command)
@click.option("--sql", is_flag=True, help="Print the whole script and apply nothing; this needs no database.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if a migration has to be applied.")
@click.option("--buckets", type=click.IntRange(1, 4096), envvar="PULSE_BUCKETS", help="For a new schema (default: 1).")
@click.pass_obj
def migrate(session: Session, sql: bool, check: bool, buckets: int | None) -> None:
    """Create or upgrade the schema.

    Several processes may run it at once, and it can be repeated at any time.

    \b
    Examples:
      pulse migrate
      pulse migrate --check          before the application starts
      pulse migrate --sql | psql …   to apply the DDL by other means
    """
    if sql and check:
        raise click.UsageError("give either --sql or --check, not both.")
    settings = session.settings(buckets=buckets)
    if sql:
        _print(session, settings)
    else:
        with session.database(settings) as found:
            (_check if check else _apply)(session, found)


def _print(session: Session, settings: Settings) -> None:
    from pulse.store.schema.migrate import render

    script = render(settings)
    document = {"schema": settings.schema, "sql": script}
    session.answer(document, lambda: click.echo(script, nl=False))  # not escaped: it is our own text, for psql to read


def _apply(session: Session, settings: Settings) -> None:
    from pulse.cli.worker.banner import name_database, without_password
    from pulse.store.schema import migrate as store

    async def apply() -> tuple[list[Migration], int]:
        applied = await store.migrate(settings)
        return applied, (await store.check(settings)).version

    applied, version = run(apply())
    listed = [{"version": each.version, "name": each.name} for each in applied]
    lines = [f"Applied {each.version:04}_{each.name}" for each in applied]
    where, state = name_database(settings), "now" if applied else "up to date,"
    lines.append(f"Schema {settings.schema} of {where} is {state} at version {version}.")
    address = without_password(str(settings.database_url))
    document = {"database": address, "schema": settings.schema, "version": version, "applied": listed}
    session.answer(document, lambda: print_lines(lines))


def _check(session: Session, settings: Settings) -> None:
    problem = run(_find_problem(settings))
    lines = [] if problem else [f"Schema {settings.schema} is up to date."]
    document = {"schema": settings.schema, "ok": problem is None, "problem": problem}
    session.answer(document, lambda: print_lines(lines))
    if problem:
        print_text(f"Error: {problem}", to_stderr=True)
        click.get_current_context().exit(REFUSED)


async def _find_problem(settings: Settings) -> str | None:
    """Return why the schema does not suit this release, or None if it does."""
    from pulse.model.errors import SchemaMismatch
    from pulse.store.schema import migrate as store

    try:
        state = await store.check(settings)
    except SchemaMismatch as error:
        return str(error)
    if state.version < store.newest():
        return (
            f"schema {settings.schema!r} is at version {state.version}, and this release knows {store.newest()}: "
            "run `pulse migrate`"
        )
    return None
