"""How does an operator set alarms, see and change them, and learn what came of each wake?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.alarms.options import check_when, make_new, read_alarm_status, read_fire_at, read_headers, read_payload
from pulse.cli.alarms.views import (
    as_json,
    delivery_as_json,
    named,
    next_words,
    secret_as_json,
    show_alarm,
    show_delivery_page,
    show_list,
    show_secrets,
    words,
)
from pulse.cli.options import Group, read_length
from pulse.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.alarms import Alarm, AlarmStatus, Delivery, DeliveryPage

RECENT = 5  # deliveries on an alarm's page

owner_option = click.option("--owner", help="Whose it is (your own).")


@click.group(cls=Group, short_help="Wake a URL at an instant, or at those of a timetable.")
def alarms() -> None:
    """Wake a URL at an instant, or at those of a timetable, and see what came of it.

    \b
    Examples:
      pulse alarms set trial-ends:42 --delay 14d --url https://shop.example/hooks
      pulse alarms set --fire-at 2026-12-31T18:00:00Z --payload '{"user": 42}'
      pulse alarms set standup --cron '0 9 * * 1-5' --tz Europe/Berlin
      pulse alarms list --status failed
      pulse alarms deliveries trial-ends:42
      pulse alarms secret
    """


@alarms.command("set")
@click.argument("name", required=False)
@click.option("--delay", metavar="LENGTH", callback=read_length, help="Once, so long from now: 90s, 10m, 14d.")
@click.option("--fire-at", metavar="TIME", callback=read_fire_at, help="Once, at 2026-12-31T18:00:00+01:00.")
@click.option("--cron", metavar="EXPRESSION", help="At each instant of '0 9 * * 1-5', or @daily.")
@click.option("--tz", metavar="ZONE", help="Whose clocks --cron goes by: Europe/Berlin (UTC).")
@click.option("--url", help="What to wake (the server's default target).")
@click.option("--payload", metavar="JSON", callback=read_payload, help="Sent along, as in '{\"user\": 42}'.")
@click.option(
    "--header", metavar="NAME=VALUE", multiple=True, callback=read_headers, help="Sent along; repeat it for more."
)
@click.option("--label", help="Sent along, and listed by.")
@click.option("--idempotency-key", help="An idempotency key: with it, repeating this sets one alarm.")
@click.option("--max-failures", type=click.IntRange(0, 100), metavar="N", help="Retries of one occurrence (5).")
@owner_option
@click.pass_obj
def set_alarm(session: Session, /, name: str | None, **given: Any) -> None:  # noqa: ANN401
    """Set an alarm, called NAME or not at all. One with a name replaces the alarm of that name.

    \b
    Examples:
      pulse alarms set trial-ends:42 --delay 14d --url https://shop.example/hooks
      pulse alarms set --fire-at 2026-12-31T18:00:00Z --payload '{"user": 42}'
      pulse alarms set standup --cron '0 9 * * 1-5' --tz Europe/Berlin

    Say when by one of --delay, --fire-at and --cron. The URL gets a signed POST, and gets it again if it does
    not answer 2xx.
    """
    check_when(given)
    new = make_new(name, given)
    done = session.use(lambda engine: engine.alarms.set(new))
    alarm = done.alarm
    what = f"Set {named(alarm)}" if done.is_new else f"{named(alarm)} is there already, unchanged"
    document = as_json(alarm) | {"created": done.is_new}
    session.answer(document, lambda: say(f"{what}: {words(alarm)}; {next_words(alarm)}."))


@alarms.command("list")
@click.option("--owner", help="Of this owner (all that you may see).")
@click.option("--status", metavar="STATE", callback=read_alarm_status, help="active, fired, failed, cancelled.")
@click.option("--paused/--not-paused", default=None, help="Those that are paused, or are not.")
@click.option("--label", help="With exactly this label.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="NEXT", help="Go on after an earlier page: the `next` it ended with.")
@click.pass_obj
def list_alarms(
    session: Session,
    /,
    status: AlarmStatus | None,
    limit: int,
    after: str | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """List alarms, newest first; everything given must hold.

    \b
    Examples:
      pulse alarms list --status active --not-paused
      pulse alarms list --owner shop --status failed --json
    """
    from pulse.model.alarms import AlarmFilter

    wanted = AlarmFilter(status=status, **given)
    page = session.use(lambda engine: engine.alarms.list_page(wanted, after=after, limit=limit))
    document = {"alarms": [as_json(alarm) for alarm in page.alarms], "next": page.next}
    session.answer(document, lambda: show_list(page))


@alarms.command(short_help="Show all there is to know of one alarm.")
@click.argument("name")
@owner_option
@click.pass_obj
def show(session: Session, name: str, owner: str | None) -> None:
    """Show all there is to know of one alarm, by its name or id, and what came of its last wakes."""

    async def read(engine: Engine) -> tuple[Alarm, list[Delivery]]:
        alarm = await engine.alarms.get(name, owner=owner)
        return alarm, (await engine.alarms.deliveries(alarm.id, limit=RECENT)).deliveries

    alarm, deliveries = session.use(read)
    document = as_json(alarm) | {"deliveries": [delivery_as_json(each) for each in deliveries]}
    session.answer(document, lambda: show_alarm(alarm, deliveries))


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def cancel(session: Session, name: str, owner: str | None) -> None:
    """End the alarm NAME. It is kept, to be looked at; cancelling it again changes nothing."""
    alarm = session.use(lambda engine: engine.alarms.cancel(name, owner=owner))
    _answer(session, alarm, lambda: f"{named(alarm)} is cancelled.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def pause(session: Session, name: str, owner: str | None) -> None:
    """Deliver nothing of the alarm NAME until it is resumed. A delivery under way ends as it will."""
    alarm = session.use(lambda engine: engine.alarms.pause(name, owner=owner))
    _answer(session, alarm, lambda: f"{named(alarm)} is paused.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def resume(session: Session, name: str, owner: str | None) -> None:
    """Let the alarm NAME go on.

    What a timetable missed meanwhile is not made up for; a once alarm whose time has passed fires now.
    """
    alarm = session.use(lambda engine: engine.alarms.resume(name, owner=owner))
    _answer(session, alarm, lambda: f"{named(alarm)} goes on; {next_words(alarm)}.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def fire(session: Session, name: str, owner: str | None) -> None:
    """Deliver the alarm NAME now.

    A once alarm is brought forward; a timetable goes on as before; one that has fired or failed is delivered once more.
    It is a server or worker that delivers: `pulse alarms deliveries NAME` shows what came of it.
    """
    alarm = session.use(lambda engine: engine.alarms.fire(name, owner=owner))
    _answer(session, alarm, lambda: f"{named(alarm)} is to be delivered now.")


def _answer(session: Session, alarm: Alarm, sentence: Callable[[], str]) -> None:
    session.answer(as_json(alarm), lambda: say(sentence()))


@alarms.command()
@click.argument("name")
@owner_option
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="At most so many.")
@click.option("--after", metavar="NEXT", help="Go on after an earlier page: the `next` it ended with.")
@click.pass_obj
def deliveries(session: Session, name: str, owner: str | None, limit: int, after: str | None) -> None:
    """Show every attempt to deliver the alarm NAME, newest first."""

    async def read(engine: Engine) -> tuple[Alarm, DeliveryPage]:
        alarm = await engine.alarms.get(name, owner=owner)
        return alarm, await engine.alarms.deliveries(alarm.id, after=after, limit=limit)

    alarm, page = session.use(read)
    document = {"deliveries": [delivery_as_json(each) for each in page.deliveries], "next": page.next}
    session.answer(document, lambda: show_delivery_page(page, alarm))


@alarms.group(invoke_without_command=True, short_help="Show what an owner's wakes are signed with, newest first.")
@click.option("--owner", help="Whose wakes; else those of alarms that were set without an owner.")
@click.pass_context
def secret(ctx: click.Context, owner: str | None) -> None:
    """Show what the wakes of an owner are signed with, newest first: receivers check it with pulse.webhooks.

    \b
    Examples:
      pulse alarms secret --owner shop
      pulse alarms secret rotate --overlap 24h
    """
    if ctx.invoked_subcommand is not None:
        return
    session: Session = ctx.obj
    found = session.use(lambda engine: engine.alarms.secrets(owner))
    session.answer({"secrets": [secret_as_json(each) for each in found]}, lambda: show_secrets(found))


@secret.command(short_help="Sign with a new secret, and with those before for a while.")
@click.option("--overlap", metavar="LENGTH", callback=read_length, help="How long those before sign beside it (24h).")
@click.option("--owner", help="Replace the secret of this owner only; else everybody's.")
@click.pass_obj
def rotate(session: Session, overlap: timedelta | None, owner: str | None) -> None:
    """Sign with a new secret from now on, and with those before for a while yet.

    Give receivers the new one meanwhile. An overlap of 0s ends those before at once.
    """
    given = {} if overlap is None else {"overlap": overlap}
    found = session.use(lambda engine: engine.alarms.rotate_secret(owner=owner, **given))
    session.answer({"secrets": [secret_as_json(each) for each in found]}, lambda: show_secrets(found))
