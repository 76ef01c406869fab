"""How does a developer run everything that an application needs with one command?"""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import print_text
from pulse.cli.worker.command import read_worker_options, worker_options
from pulse.model.errors import InvalidApp

if TYPE_CHECKING:
    from pulse.cli.session import Session

USUAL_FILES = ("app.py", "tasks.py", "main.py")
NAME_HINT = (
    'name it (`pulse dev shop.tasks:app`), or write it into pyproject.toml:\n\n  [tool.pulse]\n  app = "shop.tasks:app"'
)


@click.command(cls=Command, short_help="Run a server, and a worker that restarts when your code changes.")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@worker_options
@click.pass_context
def dev(ctx: click.Context, /, app: str | None, **given: Any) -> None:  # noqa: ANN401
    """Run a server and a worker on a Postgres of their own, and restart the worker whenever a file changes.

    Without a database of yours, the embedded Postgres of this folder is used, and started if necessary. The schema is
    created or upgraded. The worker uses the server, as it may in production. Alarms without a URL are shown on this
    terminal as they arrive. Ctrl-C ends everything.

    Without MODULE:APP, the app is `app` under [tool.pulse] in pyproject.toml, or else the one in app.py, tasks.py or
    main.py.

    \b
    Examples:
      pulse dev
      pulse dev shop.tasks:app --log-level debug
    """
    from dataclasses import replace

    from pulse.cli.dev.echo import dev_echo
    from pulse.cli.dev.server import dev_server
    from pulse.cli.worker.reload import handle_signals
    from pulse.event_loop import run
    from pulse.model.tokens import new_secret
    from pulse.store.schema.migrate import migrate as migrate_to_newest

    session: Session = ctx.obj
    settings = session.settings()
    options = read_worker_options(ctx, app=app or find_app(Path.cwd()), **given)
    check_app_exists(options.app)
    where = "your database" if settings.database_url else f"the embedded Postgres in {settings.state_dir}"
    print_text(f"Pulse dev, on {where}. Ctrl-C ends it.", to_stderr=True)
    with handle_signals() as reloader, session.database(settings, create=True, keep=True) as found:
        applied = run(migrate_to_newest(found))
        print_banner(session)
        if applied:
            print_text(
                f"  schema    {found.schema}: applied {applied[0].version:04d} to {applied[-1].version:04d}",
                to_stderr=True,
            )
        secret = new_secret()  # kept in memory only, and useless once this server has ended
        with dev_echo(found, is_ours=settings.database_url is None), dev_server(found, secret) as server_url:
            options = replace(options, is_dev=True, dev_url=found.database_url, dev_server=server_url, dev_token=secret)
            code = reloader.run(options)
    print_text("Stopped.", to_stderr=True)
    ctx.exit(code)


def check_app_exists(app: str) -> None:
    """Refuse a file or package that does not exist: it is a mistake in the command, not code still to be written."""
    from pulse.cli.worker.reload import module_exists

    module = app.partition(":")[0]
    if not module_exists(module):
        what = f"there is no file {module}" if module.endswith(".py") else f"there is no module {module!r}"
        raise InvalidApp(f"{what} in {Path.cwd()}: name your application, as in `pulse dev shop.tasks:app`")


def find_app(folder: Path) -> str:
    """Return the path of the application of this folder, from pyproject.toml or the usual files."""
    if named := _named_in_pyproject(folder / "pyproject.toml"):
        return named
    for name in USUAL_FILES:
        file = folder / name
        if file.is_file() and re.search(r"\bPulse\(", file.read_text(errors="replace")):
            return name
    raise InvalidApp(f"no application was found in {', '.join(USUAL_FILES)} of {folder}: {NAME_HINT}")


def _named_in_pyproject(file: Path) -> str | None:
    try:
        named = tomllib.loads(file.read_text()).get("tool", {}).get("pulse", {}).get("app")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise InvalidApp(f"{file} cannot be read: {error}") from error
    if named is not None and not isinstance(named, str):
        raise InvalidApp(f'app under [tool.pulse] in {file} must be text, such as "shop.tasks:app"')
    return named


def print_banner(session: Session) -> None:
    shown = {name: shlex.quote(value) for name, value in session.flags.items()}
    shown |= {"database_url": "…"} if "database_url" in shown else {}  # it may hold a password
    flags = "".join(f" --{name.replace('_', '-')} {value}" for name, value in shown.items())
    lines = [
        f"  try       pulse{flags} jobs list · topics list · db psql",
        f"  files     {Path.cwd()}: a change restarts the worker",
    ]
    print_text("\n".join(lines), to_stderr=True)
