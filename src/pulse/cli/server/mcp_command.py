"""How is an MCP server started, for agents that set their own alarms?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command
from pulse.cli.worker.command import LEVELS, Names

if TYPE_CHECKING:
    from pulse.cli.session import Session

PACKAGES = ("mcp", "mcp_types", "starlette", "uvicorn", "pydantic", "anyio")


@click.command(cls=Command, short_help="Let an agent set its own alarms and submit jobs, over MCP.")
@click.option("--http", metavar="HOST:PORT", help="Serve streamable HTTP here, at /mcp, instead of stdin and stdout.")
@click.option(
    "--owner",
    metavar="NAME",
    help="The owner of the alarms, beside which an agent sees no others (local). With tokens, it is the token's name.",
)
@click.option(
    "--allow-host",
    type=Names(),
    multiple=True,
    metavar="A,B",
    help="With --http: names that clients use for this machine, beside its address.",
)
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Log from this level on (warning).")
@click.option("--log-format", type=click.Choice(("text", "json")), help="The format of log lines (text).")
@click.pass_context
def mcp(
    ctx: click.Context,
    /,
    http: str | None,
    owner: str | None,
    allow_host: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Let an agent set, list and cancel its own alarms, and submit jobs, over MCP.

    The tools are alarm_set, alarm_list, alarm_cancel, job_submit and job_status. They are served over stdin and stdout
    to a client that starts this command, or with --http to several clients.

    It stores alarms but does not deliver them: for that, a `pulse server`, `pulse worker` or `pulse dev` must run on
    the same database. It uses the server that PULSE_SERVER_URL names, or else the database directly.

    With --http, if the database has tokens, every request must send one, as `Authorization: Bearer …`. Without tokens
    it listens on this machine only.

    \b
    Examples:
      pulse mcp
      pulse mcp --owner planner
      pulse mcp --http 127.0.0.1:8702
      pulse mcp --http 10.0.0.5:8702 --allow-host agents.example.com

    Exit codes: 0 ended, 1 refused, 5 database unavailable.
    """
    from pulse.model.errors import MissingPackage

    try:
        from pulse.cli.server.mcp_process import McpOptions, run_mcp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise MissingPackage("an MCP server", "mcp", error.name) from error
    session: Session = ctx.obj
    options = McpOptions(
        settings=session.settings(),
        http=http,
        owner=owner,
        hosts=tuple(name.strip() for names in allow_host for name in names.split(",") if name.strip()),
        log_level=log_level or "warning",
        log_format=log_format,
    )
    run_mcp(session, options)
