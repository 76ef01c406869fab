"""Where does the command line begin, and which commands does it have?

Modules of the command line import little at their top: the driver and the terminal library are imported by the commands
that use them, so that `pulse --help` starts quickly.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import click

from pulse import __version__
from pulse.cli.alarms.commands import alarms
from pulse.cli.alarms.echo import echo
from pulse.cli.bench import bench
from pulse.cli.completion import completion
from pulse.cli.database.command import db
from pulse.cli.database.migrate import migrate
from pulse.cli.dev.command import dev
from pulse.cli.dev.demo import demo
from pulse.cli.jobs.commands import jobs
from pulse.cli.jobs.explain import explain
from pulse.cli.operate.doctor import doctor
from pulse.cli.operate.tokens import tokens
from pulse.cli.operate.top import top
from pulse.cli.operate.topics import topics
from pulse.cli.operate.workers import workers
from pulse.cli.options import Group, variables_of
from pulse.cli.schedules.commands import schedules
from pulse.cli.server.command import server
from pulse.cli.server.mcp_command import mcp
from pulse.cli.worker.command import worker


@click.group(
    cls=Group,
    context_settings={"auto_envvar_prefix": "PULSE", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="pulse", message="%(prog)s %(version)s", allow_from_autoenv=False)
def cli() -> None:
    """Durable jobs on nothing but Postgres.

    \b
    Examples:
      pulse demo                                 watch Pulse at work
      pulse dev                                  run the app in this folder
      pulse worker shop.tasks:app                run a worker in production
      pulse server                               serve jobs over gRPC and HTTP
      pulse migrate                              create or upgrade the schema
      pulse jobs list --status dead_lettered     list jobs that failed for good
      pulse jobs replay --topic mail --yes       run them once more
      pulse explain ID                           explain why a job is not running
      pulse doctor                               check the installation
      pulse top                                  watch topics and workers, live
      pulse schedules list                       list what runs when
      pulse alarms list                          list which URL is called when
      pulse mcp                                  offer alarms to agents

    The flags under "Everywhere" go before or after a command. Every flag can also be set in the environment:
    --schema is PULSE_SCHEMA, and --limit of `pulse jobs list` is PULSE_JOBS_LIST_LIMIT. A flag wins.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 not found, 4 conflict, 5 database unavailable.
    """
    from pulse.settings import warn_of_misspelt

    warn_of_misspelt(flags=lambda: variables_of(cli))


for command in (
    demo,
    dev,
    worker,
    server,
    migrate,
    jobs,
    explain,
    topics,
    schedules,
    alarms,
    workers,
    top,
    doctor,
    tokens,
    db,
    mcp,
    echo,
    bench,
    completion,
):
    cli.add_command(command)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals that cannot show characters such as …
    cli()


if __name__ == "__main__":
    main()
