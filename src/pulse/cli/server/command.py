"""How is a server started from the command line, as `pulse server` and as `pulsed`?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.worker.command import LEVELS

if TYPE_CHECKING:
    from pulse.cli.session import Session

FILE = click.Path(path_type=Path)
OF_SETTINGS = ("listen", "http_listen", "tls_cert", "tls_key", "tls_client_ca")


@click.command(cls=Command, short_help="Serve jobs over gRPC and HTTP, to those without a database.")
@click.option("--listen", metavar="HOST:PORT", envvar="PULSE_LISTEN", help="Where to listen (127.0.0.1:8701).")
@click.option(
    "--http-listen",
    metavar="HOST:PORT",
    envvar="PULSE_HTTP_LISTEN",
    help='Where to serve the JSON API (127.0.0.1:8700); "": nowhere.',
)
@click.option("--tls-cert", metavar="FILE", type=FILE, envvar="PULSE_TLS_CERT", help="The server's certificate, PEM.")
@click.option("--tls-key", metavar="FILE", type=FILE, envvar="PULSE_TLS_KEY", help="Its key, PEM.")
@click.option(
    "--tls-client-ca",
    metavar="FILE",
    type=FILE,
    envvar="PULSE_TLS_CLIENT_CA",
    help="Let only clients in whose certificate this authority has signed.",
)
@click.option("--health-port", type=click.IntRange(0, 65535), help="Serve /livez and /readyz; 0: any free port.")
@click.option("--health-host", default="127.0.0.1", show_default=True, help="0.0.0.0 for probes from outside.")
@click.option("--open", "open_dashboard", is_flag=True, help="Open the dashboard in your browser.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="From which level (info).")
@click.option("--log-format", type=click.Choice(("text", "json")), help="How log lines are written (text).")
@click.option("--until-stdin-ends", is_flag=True, hidden=True, help="For `pulse dev`: end with whoever started it.")
@click.option("--admit", metavar="HASH", hidden=True, allow_from_autoenv=False)  # of the secret of `pulse dev`
@click.pass_context
def server(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401
    """Serve jobs over gRPC and HTTP, so that programs and workers need no database of their own.

    They reach it by PULSE_SERVER_URL=grpc://host:8701, and everything else by JSON at http://host:8700/v1. Without a
    database of yours, the embedded Postgres of this folder is used, started if need be, and its schema made or
    upgraded; yours is upgraded by `pulse migrate` only.

    Beyond this machine it listens only if callers must show who they are, by a token or a certificate.

    SIGTERM or Ctrl-C: workers and callers are sent elsewhere, and calls under way are finished; once more: at once.

    \b
    Examples:
      pulse server --open
      pulse server --listen 10.0.0.5:8701 --tls-cert a.pem --tls-key a.key
      pulse server --health-host 0.0.0.0 --health-port 8080 --log-format json
      pulsed

    Exit codes: 0 stopped, 1 refused or told twice, 5 database unavailable.
    """
    from pulse.model.errors import MissingPackage

    try:
        from pulse.cli.server.process import ServerPlan, run_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("grpc", "google", "grpc_health", "grpc_reflection"):
            raise
        raise MissingPackage("a server", "grpc", error.name) from error
    session: Session = ctx.obj
    of_settings = {name: given.pop(name) for name in OF_SETTINGS}
    plan = ServerPlan(settings=session.settings(**of_settings), as_json=session.as_json, **given)
    ctx.exit(run_server(session, plan))


def main() -> None:
    """`pulsed`, which is `pulse server`."""
    from pulse.cli import main as pulse

    given = sys.argv[1:]
    sys.argv[1:] = given if given == ["--version"] else ["server", *given]
    pulse.main()
