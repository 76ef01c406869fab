"""How does an administrator make, list and revoke the tokens that pulsed asks for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Group, read_length
from pulse.cli.output import Cell, Column, Styled, local_time, say, say_each, show_table, when

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.tokens import Token


@click.group(cls=Group, short_help="Make, list and revoke tokens.")
def tokens() -> None:
    """Make, list and revoke the tokens of producers, workers and operators.

    \b
    Examples:
      pulse tokens create web --scope submit
      pulse tokens create mailer --scope work:mail --scope submit:mail
      pulse tokens create agent --scope alarms:agent
      pulse tokens list
      pulse tokens revoke web
    """


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="What it may do; repeat it for more. submit, work (each also for one topic, as in work:mail), "
    "alarms (also for one owner, as in alarms:shop), read, operate, admin.",
)
@click.option("--expires", metavar="LENGTH", callback=read_length, help="For how long it is good: 12h, 90d (for ever).")
@click.pass_obj
def create(session: Session, name: str, scopes: tuple[str, ...], expires: timedelta | None) -> None:
    """Make a token called NAME, and print its secret, this once.

    \b
    Examples:
      pulse tokens create web --scope submit
      pulse tokens create mailer --scope work:mail --expires 90d

    Workers are called after their token, so give each kind of program its own. To replace a token, make one of
    another name, hand it out, then revoke the first.
    """

    async def work(engine: Engine) -> tuple[Token, str, bool]:
        is_first = not await engine.tokens.has_any()
        return *await engine.tokens.create(name, scopes, expires), is_first

    token, secret, is_first = session.use(work)
    session.answer(_as_json(token) | {"secret": secret}, lambda: _show_new(token, secret, is_first=is_first))


def _show_new(token: Token, secret: str, *, is_first: bool) -> None:
    until = f" until {local_time(token.expires_at)}" if token.expires_at else ""
    lines = [
        f"Token {token.name} may {_listed(token)}{until}.",
        "",
        f"  {secret}",
        "",
        "Keep this secret. It is shown only this once, and whoever has it may do the above.",
    ]
    if is_first:  # of all there ever were, since that is what a server looks for when it starts
        lines.append("Restart the servers that are running: until then they accept calls without a token.")
    say_each(lines)


@tokens.command("list", short_help="Show every token there ever was, and what it may do.")
@click.pass_obj
def list_tokens(session: Session) -> None:
    """Show every token there ever was: what it may do, and whether it still may. Never a secret."""
    found = session.use(lambda engine: engine.tokens.list())
    session.answer({"tokens": [_as_json(token) for token in found]}, lambda: _show(found))


def _show(found: list[Token]) -> None:
    if not found:
        say("There are no tokens yet: `pulse tokens create NAME --scope submit` makes one.")
        return
    columns = [Column("NAME"), Column("STATE"), Column("SCOPES", rank=1, least=12), Column("CREATED", rank=3)]
    columns += [Column("EXPIRES", rank=2)]
    rows: list[list[Cell]] = [
        [
            token.name,
            _state(token),
            _listed(token),
            when(token.created_at),
            when(token.expires_at) if token.expires_at else "never",
        ]
        for token in found
    ]
    show_table(columns, rows)


@tokens.command()
@click.argument("name")
@click.pass_obj
def revoke(session: Session, name: str) -> None:
    """Let nobody in with the token NAME any more.

    Servers learn of it within seconds, and end its streams. The name stays taken. Revoking again changes nothing.
    """
    token = session.use(lambda engine: engine.tokens.revoke(name))
    assert token.revoked_at is not None
    revoked_at = token.revoked_at
    session.answer(_as_json(token), lambda: say(f"{token.name} is revoked since {local_time(revoked_at)}."))


def _state(token: Token) -> Cell:
    if token.revoked_at is not None:
        return Styled("revoked", "red")
    return Styled("expired", "yellow") if token.is_expired else "good"


def _listed(token: Token) -> str:
    return ", ".join(str(scope) for scope in token.scopes)


def _as_json(token: Token) -> dict[str, object]:
    return {
        "name": token.name,
        "scopes": [str(scope) for scope in token.scopes],
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "is_expired": token.is_expired,
    }
