"""How is a worker started from the command line?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pulse.cli.options import Command, read_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.cli.session import Session
    from pulse.cli.worker.worker_options import WorkerOptions

SETTINGS = ("concurrency", "threads", "processes", "grace")
LEVELS = ("debug", "info", "warning", "error", "critical")


class Names(click.types.StringParamType):
    """Names between commas, in the environment and on the command line, where the flag may also be repeated."""

    envvar_list_splitter = ","


def worker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that `pulse worker` and `pulse dev` have in common."""
    count = click.IntRange(min=1)
    options = [
        click.option(
            "--topics", type=Names(), multiple=True, metavar="A,B", help="Work on these topics (those of the tasks)."
        ),
        click.option("--concurrency", type=count, envvar="PULSE_CONCURRENCY", help="Async handlers at a time (100)."),
        click.option("--threads", type=count, envvar="PULSE_THREADS", help="Sync handlers at a time (10)."),
        click.option(
            "--processes",
            type=click.IntRange(min=0),
            envvar="PULSE_PROCESSES",
            help='Handlers with executor="process" at a time (as many as there are processors).',
        ),
        click.option(
            "--health-port", type=click.IntRange(0, 65535), help="Serve /livez and /readyz; 0: any free port."
        ),
        click.option(
            "--health-host", default="127.0.0.1", show_default=True, help="Use 0.0.0.0 for probes from outside."
        ),
        click.option(
            "--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Log from this level on (info)."
        ),
        click.option("--log-format", type=click.Choice(("text", "json")), help="The format of log lines (text)."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=Command)
@click.argument("app", metavar="MODULE:APP")
@worker_options
@click.option(
    "--grace",
    metavar="LENGTH",
    callback=read_length,
    envvar="PULSE_GRACE",
    help="Time for running handlers to finish when the worker stops (25s).",
)
@click.option("--reload", is_flag=True, help="Restart when a Python file changes; for development.")
@click.pass_context
def worker(ctx: click.Context, /, app: str, reload: bool, **given: Any) -> None:  # noqa: ANN401
    """Run the tasks of an application until SIGTERM or Ctrl-C.

    MODULE:APP says where its Pulse(...) is: shop.tasks:app, or tasks.py. After the first signal no more jobs are
    started, and running ones may finish; a second signal gives back jobs that still run; a third one ends the worker
    at once.

    \b
    Examples:
      pulse worker shop.tasks:app
      pulse worker shop.tasks:app --topics mail,images --threads 20
      pulse worker shop.tasks:app --health-port 8080 --log-format json
      pulse worker tasks.py --reload

    Exit codes: 0 stopped and all jobs finished, 1 refused, or handlers did not finish in time, 5 database unavailable.
    """
    options = read_worker_options(ctx, app=app, **given)
    if reload:
        from pulse.cli.worker.reload import watch

        ctx.exit(watch(options))
    from pulse.cli.worker.process import run_worker

    run_worker(options)


def read_worker_options(ctx: click.Context, *, app: str, topics: tuple[str, ...], **given: Any) -> WorkerOptions:  # noqa: ANN401
    from pulse.cli.worker.worker_options import WorkerOptions

    session: Session = ctx.obj
    flags = {name: given.pop(name, None) for name in SETTINGS}
    flags = {
        name: value for name, value in flags.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    return WorkerOptions(
        app=app,
        # Variables are not included, because the application reads them: its code wins over variables, but not flags.
        overrides=flags | {name: session.given[name] for name in session.flags},
        topics=tuple(name.strip() for names in topics for name in names.split(",") if name.strip()),
        as_json=session.as_json,
        **given,
    )
