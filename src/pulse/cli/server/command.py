"""How is a server started from the command line, as `pulse server` or `pulsed`?"""

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
SETTING_FLAGS = ("listen", "http_listen", "tls_cert", "tls_key", "tls_client_ca")


@click.command(cls=Command, short_help="Serve jobs over gRPC and HTTP, to programs without a database.")
@click.option("--listen", metavar="HOST:PORT", envvar="PULSE_LISTEN", help="Serve gRPC here (127.0.0.1:8701).")
@click.option(
    "--http-listen",
    metavar="HOST:PORT",
    envvar="PULSE_HTTP_LISTEN",
    help='Serve HTTP here (127.0.0.1:8700); "": no HTTP.',
)
@click.option("--tls-cert", metavar="FILE", type=FILE, envvar="PULSE_TLS_CERT", help="The server's certificate, PEM.")
@click.option("--tls-key", metavar="FILE", type=FILE, envvar="PULSE_TLS_KEY", help="The key of the certificate, PEM.")
@click.option(
    "--tls-client-ca",
    metavar="FILE",
    type=FILE,
    envvar="PULSE_TLS_CLIENT_CA",
    help="Admit only clients with a certificate that this authority has signed.",
)
@click.option("--health-port", type=click.IntRange(0, 65535), help="Serve /livez and /readyz; 0: any free port.")
@click.option("--health-host", default="127.0.0.1", show_default=True, help="Use 0.0.0.0 for probes from outside.")
@click.option("--open", "open_dashboard", is_flag=True, help="Open the dashboard in your browser.")
@click.option("--log-level", type=click.Choice(LEVELS, case_sensitive=False), help="Log from this level on (info).")
@click.option("--log-format", type=click.Choice(("text", "json")), help="The format of log lines (text).")
@click.option(
    "--until-stdin-ends", is_flag=True, hidden=True, help="For `pulse dev`: end with the process that started it."
)
@click.option("--admit", metavar="HASH", hidden=True, allow_from_autoenv=False)  # the hash of the secret of `pulse dev`
@click.pass_context
def server(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401
    """Serve jobs over gRPC and HTTP, so that programs and workers need no database of their own.

    Programs with the SDK use it by PULSE_SERVER_URL=grpc://host:8701, all others by JSON at http://host:8700/v1.
    Without a database of yours, the embedded Postgres of this folder is used and started if necessary, and its schema
    is created or upgraded. Your own database is upgraded only by `pulse migrate`.

    On addresses beyond this machine it listens only if callers need a token or a certificate.

    SIGTERM or Ctrl-C makes workers and callers move to another server, and finishes calls under way; a second one ends
    the server at once.

    \b
    Examples:
      pulse server --open
      pulse server --listen 10.0.0.5:8701 --tls-cert a.pem --tls-key a.key
      pulse server --health-host 0.0.0.0 --health-port 8080 --log-format json
      pulsed

    Exit codes: 0 stopped, 1 refused or stopped by a second signal, 5 database unavailable.
    """
    from pulse.model.errors import MissingPackage

    try:
        from pulse.cli.server.process import ServerOptions, run_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("grpc", "google", "grpc_health", "grpc_reflection"):
            raise
        raise MissingPackage("a server", "grpc", error.name) from error
    session: Session = ctx.obj
    from_flags = {name: given.pop(name) for name in SETTING_FLAGS}
    options = ServerOptions(settings=session.settings(**from_flags), as_json=session.as_json, **given)
    ctx.exit(run_server(session, options))


def main() -> None:
    """Run `pulsed`, which is the same as `pulse server`."""
    from pulse.cli import main as pulse

    given = sys.argv[1:]
    sys.argv[1:] = given if given == ["--version"] else ["server", *given]
    pulse.main()
