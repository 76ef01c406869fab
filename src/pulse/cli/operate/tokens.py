"""How does an administrator create, list and revoke the tokens that a server requires?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Group, read_length
from pulse.cli.output import Cell, Column, Styled, local_time, print_lines, print_text, show_table, time_and_age

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.tokens import Token


@click.group(cls=Group, short_help="Create, list and revoke tokens.")
def tokens() -> None:
    """Create, list and revoke the tokens of producers, workers and operators.

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
    help="What the token allows; repeat it for more: submit, work (each also for one topic, as in work:mail), "
    "alarms (also for one owner, as in alarms:shop), read, operate or admin.",
)
@click.option("--expires", metavar="LENGTH", callback=read_length, help="How long it is valid: 12h, 90d (for ever).")
@click.pass_obj
def create(session: Session, name: str, scopes: tuple[str, ...], expires: timedelta | None) -> None:
    """Create a token called NAME, and print its secret, once.

    \b
    Examples:
      pulse tokens create web --scope submit
      pulse tokens create mailer --scope work:mail --expires 90d

    Workers are named after their token, so give each kind of program its own. To replace a token, create one with
    another name, distribute it, then revoke the first.
    """

    async def work(engine: Engine) -> tuple[Token, str, bool]:
        is_first = not await engine.tokens.has_any()
        return *await engine.tokens.create(name, scopes, expires), is_first

    token, secret, is_first = session.run_with_engine(work)
    session.answer(_as_json(token) | {"secret": secret}, lambda: _show_new(token, secret, is_first=is_first))


def _show_new(token: Token, secret: str, *, is_first: bool) -> None:
    until = f" until {local_time(token.expires_at)}" if token.expires_at else ""
    lines = [
        f"Token {token.name} allows {_list_scopes(token)}{until}.",
        "",
        f"  {secret}",
        "",
        "Keep it secret: it is shown only this once, and every program that has it may do the above.",
    ]
    if is_first:  # the first that was ever created: a server checks at its start whether there has been one
        lines.append("Restart the servers that are running: until then they accept calls without a token.")
    print_lines(lines)


@tokens.command("list", short_help="List all tokens, and what they allow.")
@click.pass_obj
def list_tokens(session: Session) -> None:
    """List all tokens, revoked and expired ones too, with what they allow. Secrets are never shown."""
    found = session.run_with_engine(lambda engine: engine.tokens.list())
    session.answer({"tokens": [_as_json(token) for token in found]}, lambda: _show(found))


def _show(found: list[Token]) -> None:
    if not found:
        print_text("There are no tokens yet: `pulse tokens create NAME --scope submit` creates one.")
        return
    columns = [Column("NAME"), Column("STATE"), Column("SCOPES", rank=1, min_width=12), Column("CREATED", rank=3)]
    columns += [Column("EXPIRES", rank=2)]
    rows: list[list[Cell]] = [
        [
            token.name,
            _state(token),
            _list_scopes(token),
            time_and_age(token.created_at),
            time_and_age(token.expires_at) if token.expires_at else "never",
        ]
        for token in found
    ]
    show_table(columns, rows)


@tokens.command()
@click.argument("name")
@click.pass_obj
def revoke(session: Session, name: str) -> None:
    """Revoke the token NAME, so that it is no longer accepted.

    Servers notice it within seconds, and end its streams. The name cannot be used again. Revoking it again changes
    nothing.
    """
    token = session.run_with_engine(lambda engine: engine.tokens.revoke(name))
    assert token.revoked_at is not None
    revoked_at = token.revoked_at
    session.answer(_as_json(token), lambda: print_text(f"{token.name} was revoked at {local_time(revoked_at)}."))


def _state(token: Token) -> Cell:
    if token.revoked_at is not None:
        return Styled("revoked", "red")
    return Styled("expired", "yellow") if token.is_expired else "valid"


def _list_scopes(token: Token) -> str:
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
