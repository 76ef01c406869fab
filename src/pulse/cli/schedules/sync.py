"""How are the schedules of the database changed to those that an application declares?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.schedules.views import show_report

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.model.schedules import Declared


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:APP")
@click.option("--dry-run", is_flag=True, help="Change nothing, and show what would change.")
@click.option("--prune", is_flag=True, help="Delete schedules that are no longer declared, instead of disabling them.")
@click.option(
    "--deploy",
    type=click.IntRange(min=0),
    metavar="N",
    envvar="PULSE_DEPLOY",
    show_envvar=True,
    help="A number that grows with each deploy; a sync with an older one changes nothing.",
)
@click.option("--as", "name", metavar="NAME", help="The name that owns the schedules (MODULE:APP).")
@click.pass_obj
def sync(session: Session, app: str, dry_run: bool, prune: bool, deploy: int | None, name: str | None) -> None:
    """Update the schedules of an application to what its code declares.

    MODULE:APP says where its Pulse(...) is: shop.tasks:app, or tasks.py. Run it with every deploy. Pauses stay, and
    schedules that were created by hand or are declared by other applications are not changed.

    \b
    Examples:
      pulse schedules sync shop.tasks:app --dry-run
      pulse schedules sync shop.tasks:app --deploy $BUILD_NUMBER
      pulse schedules sync tasks.py --prune
    """
    from pulse.sdk.locate import load_app, name_of

    found = load_app(app)
    owner = name or name_of(found)
    declared = _list_declared(found)
    report = session.run_with_engine(
        lambda engine: engine.schedules.sync(owner, declared, deploy=deploy, prune=prune, dry_run=dry_run),
        settings=session.settings_of(found),
    )
    session.answer({"app": owner, "report": report}, lambda: show_report(report, owner))


def _list_declared(app: Any) -> list[Declared]:  # noqa: ANN401
    return list(app.schedules.declared)
