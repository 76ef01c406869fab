"""How can alarms be watched as they arrive, before there is an endpoint for them?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import escape, print_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.cli.session import Session
    from pulse.doors.echo import Arrival, Secrets
    from pulse.model.redaction import Redaction
    from pulse.settings import Settings

PORT = 8703
ID_LENGTH = 36  # of an alarm; other programs may send ids of any length
PAYLOAD_LENGTH = 100  # characters of a payload on one line
MARKS = {"valid": "✓ signed", "invalid": "✗ signature", "unchecked": "? not checked"}


@click.command(cls=Command, short_help="Show alarms as they arrive, and check their signatures.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free one.")
@click.option("--status", type=click.IntRange(200, 599), default=200, show_default=True, help="The status to answer.")
@click.option("--secret", metavar="SECRET", help="The secret that signs alarms (read from the database).")
@click.pass_obj
def echo(session: Session, port: int, status: int, secret: str | None) -> None:
    """Show each alarm that arrives on one line, and check its signature.

    This is an endpoint on this machine for trying out alarms. --status 500 makes deliveries fail, to see them tried
    again. With --json each line is a JSON document. `pulse dev` has one of these built in.

    Alarms may call this machine only if the process that delivers them allows it, by
    PULSE_ALARM_TARGET=http://127.0.0.1:8703 for alarms without a URL, or PULSE_ALARM_NETWORKS=127.0.0.0/8 for any.

    \b
    Examples:
      pulse echo
      pulse echo --port 0 --json
      pulse echo --status 500
    """
    from pulse.event_loop import run

    show = show_as_json if session.as_json else show_as_line
    try:
        redaction = session.settings().redaction
        run(_serve(show, secrets_for(session, secret), port=port, status=status, redaction=redaction))
    except KeyboardInterrupt:
        return


async def _serve(
    show: Callable[[Arrival], None], secrets: Secrets | None, *, port: int, status: int, redaction: Redaction
) -> None:
    import asyncio
    import signal

    from pulse.doors.echo import HOST, Echo, serve_echo

    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    async with serve_echo(Echo(show, secrets=secrets, status=status, redaction=redaction), port=port) as found:
        checked = "checked" if secrets else "not checked: that needs --secret or a database"
        lines = [f"Pulse echo, at http://{HOST}:{found}. Ctrl-C ends it.", f"  answers   {status}"]
        print_text("\n".join([*lines, f"  signed    {checked}"]), to_stderr=True)
        await stop_requested.wait()


def secrets_for(session: Session, secret: str | None) -> Secrets | None:
    """Return the given secret, or those of the database, or None behind a server, which does not reveal its secrets."""
    if secret:
        from pulse.delivery.signing import check_secret

        return _given_secret(check_secret(secret))
    settings = session.settings()
    if settings.server_url is not None or (settings.database_url is None and not _is_running(settings)):
        return None
    return secrets_of(settings)


def _given_secret(secret: str) -> Secrets:
    async def read(_owner: str | None) -> list[str]:
        return [secret]

    return read


def _is_running(settings: Settings) -> bool:
    from pulse.store.embedded import server as embedded

    return embedded.running(settings.state_dir) is not None


def secrets_of(settings: Settings) -> Secrets:
    """Return a function that reads the secrets of a database. It opens a connection each time, because that is rare."""

    async def read(owner: str | None) -> list[str]:
        from pulse.engine.engine import open_engine

        async with open_engine(settings) as engine:
            return [each.secret for each in await engine.alarms.secrets(owner)]

    return read


def show_as_json(arrival: Arrival) -> None:
    """Print a request as one line of JSON, in ASCII, so that a terminal does not act on anything in it."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(arrival)).replace("\x7f", "\\u007f"))


def show_as_line(arrival: Arrival, *, to_stderr: bool = False) -> None:
    print_text(format_arrival(arrival), to_stderr=to_stderr)


def format_arrival(arrival: Arrival) -> str:
    """Return one line with the time as in log lines, the label and owner of the alarm, its id, the attempt, the
    signature and the beginning of the payload."""
    origin = " · ".join(escape(text) for text in (arrival.label, arrival.owner) if text) or "not from Pulse"
    facts = [arrival.at.astimezone().isoformat(timespec="seconds"), "wake", origin]
    if arrival.alarm_id is not None:
        facts.append(f"alarm {escape(arrival.alarm_id[:ID_LENGTH])}")
    if arrival.attempt is not None:
        facts.append(f"attempt {arrival.attempt}")
    facts.append(MARKS[arrival.signature.value] + (f" ({arrival.why})" if arrival.signature == "invalid" else ""))
    if arrival.answered != 200:
        facts.append(f"answered {arrival.answered}")
    return "  ".join([*facts, _cut(arrival.payload)])


def _cut(payload: Any) -> str:  # noqa: ANN401
    text = escape(json.dumps(payload, ensure_ascii=False))
    return text if len(text) <= PAYLOAD_LENGTH else f"{text[: PAYLOAD_LENGTH - 1]}…"
