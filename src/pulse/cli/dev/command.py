"""How does a developer run everything an application needs with one command?"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import say
from pulse.cli.worker.command import make_plan, worker_options
from pulse.model.errors import InvalidApp

if TYPE_CHECKING:
    from pulse.cli.session import Session

USUAL_FILES = ("app.py", "tasks.py", "main.py")
HOW_TO_NAME_IT = (
    'name it (`pulse dev shop.tasks:app`), or write it into pyproject.toml:\n\n  [tool.pulse]\n  app = "shop.tasks:app"'
)


@click.command(cls=Command, short_help="Run a server and a worker that follows your code.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@worker_options
@click.pass_context
def dev(ctx: click.Context, /, app: str | None, **given: Any) -> None:  # noqa: ANN401
    """Run a server and a worker on a Postgres of their own, and the worker again whenever a file changes.

    Without a database of yours, the embedded Postgres of this folder is used, and started if need be. The schema is
    made or upgraded. The worker goes through the server, as it may in production. Alarms that name no URL are shown on
    this terminal as they arrive. Ctrl-C ends all of it.

    Without MODULE:APP it is `app` under [tool.pulse] in pyproject.toml, or else in app.py, tasks.py or main.py.

    \b
    Examples:
      pulse dev
      pulse dev shop.tasks:app --log-level debug
    """
    from dataclasses import replace

    from pulse.cli.dev.echo import dev_echo
    from pulse.cli.dev.server import dev_server
    from pulse.cli.worker.reload import obey_signals
    from pulse.event_loop import run
    from pulse.model.tokens import new_secret
    from pulse.store.schema.migrate import migrate as migrate_to_newest

    session: Session = ctx.obj
    settings = session.settings()
    plan = make_plan(ctx, app=app or find_app(Path.cwd()), **given)
    refuse_missing(plan.app)
    where = "the database you named" if settings.database_url else f"the embedded Postgres in {settings.state_dir}"
    say(f"Pulse dev, on {where}. Ctrl-C ends it.", to_stderr=True)
    with obey_signals() as reloader, session.database(settings, create=True, keep=True) as found:
        applied = run(migrate_to_newest(found))
        introduce(session)
        if applied:
            say(
                f"  schema    {found.schema}: applied {applied[0].version:04d} to {applied[-1].version:04d}",
                to_stderr=True,
            )
        secret = new_secret()  # in memory only, and of no use once this server has ended
        with dev_echo(found, is_ours=settings.database_url is None), dev_server(found, secret) as server_url:
            plan = replace(plan, is_dev=True, dev_url=found.database_url, dev_server=server_url, dev_token=secret)
            code = reloader.run(plan)
    say("Stopped.", to_stderr=True)
    ctx.exit(code)


def refuse_missing(app: str) -> None:
    """A file or package that is not there at all is a slip of the pen, not code that is about to be mended."""
    from pulse.cli.worker.reload import is_there

    module = app.partition(":")[0]
    if not is_there(module):
        what = f"there is no file {module}" if module.endswith(".py") else f"there is no module {module!r}"
        raise InvalidApp(f"{what} in {Path.cwd()}: name your application as in `pulse dev shop.tasks:app`")


def find_app(folder: Path) -> str:
    """Where the application of this folder says it is, or usually is."""
    if named := _named_in_pyproject(folder / "pyproject.toml"):
        return named
    for name in USUAL_FILES:
        file = folder / name
        if file.is_file() and re.search(r"\bPulse\(", file.read_text(errors="replace")):
            return name
    raise InvalidApp(
        f"no application was found: there is none in {', '.join(USUAL_FILES)} of {folder}, so {HOW_TO_NAME_IT}"
    )


def _named_in_pyproject(file: Path) -> str | None:
    try:
        named = tomllib.loads(file.read_text()).get("tool", {}).get("pulse", {}).get("app")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidApp(f"{file} cannot be read: {error}") from error
    if named is not None and not isinstance(named, str):
        raise InvalidApp(f'app under [tool.pulse] in {file} must be a text such as "shop.tasks:app"')
    return named


def introduce(session: Session) -> None:
    shown = {name: shlex.quote(value) for name, value in session.flags.items()}
    shown |= {"database_url": "…"} if "database_url" in shown else {}  # it may hold a password
    flags = "".join(f" --{name.replace('_', '-')} {value}" for name, value in shown.items())
    lines = [
        f"  look      pulse{flags} jobs list · topics list · db psql",
        f"  files     {Path.cwd()}: a change starts the worker again",
    ]
    say("\n".join(lines), to_stderr=True)
