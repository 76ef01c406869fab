"""How does an operator set, show and change alarms, and see what became of each delivery?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.alarms.options import check_when, make_new, read_alarm_status, read_fire_at, read_headers, read_payload
from pulse.cli.alarms.views import (
    as_json,
    delivery_as_json,
    describe_next,
    describe_timing,
    name_or_id,
    secret_as_json,
    show_alarm,
    show_delivery_page,
    show_list,
    show_secrets,
)
from pulse.cli.options import Group, read_length
from pulse.cli.output import print_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.alarms import Alarm, AlarmStatus, Delivery, DeliveryPage

RECENT = 5  # deliveries on an alarm's page

owner_option = click.option("--owner", help="The owner of the alarm (you).")


@click.group(cls=Group, short_help="Call a URL at an instant, or at those of a timetable.")
def alarms() -> None:
    """Call a URL at an instant, or at those of a timetable, and see what became of it.

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
@click.option("--delay", metavar="LENGTH", callback=read_length, help="Once, after this time: 90s, 10m, 14d.")
@click.option("--fire-at", metavar="TIME", callback=read_fire_at, help="Once, at 2026-12-31T18:00:00+01:00.")
@click.option("--cron", metavar="EXPRESSION", help="By a cron line: '0 9 * * 1-5', @daily.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron: Europe/Berlin (UTC).")
@click.option("--url", help="The URL to call (the server's default target).")
@click.option("--payload", metavar="JSON", callback=read_payload, help="JSON to send, as in '{\"user\": 42}'.")
@click.option(
    "--header", metavar="NAME=VALUE", multiple=True, callback=read_headers, help="A header; repeat it for more."
)
@click.option("--label", help="Text that is sent, and by which alarms can be listed.")
@click.option("--idempotency-key", help="A key with which repeating this command sets one alarm.")
@click.option("--max-failures", type=click.IntRange(0, 100), metavar="N", help="Retries of one occurrence (5).")
@owner_option
@click.pass_obj
def set_alarm(session: Session, /, name: str | None, **given: Any) -> None:  # noqa: ANN401
    """Set an alarm, with or without a NAME. One with a name replaces the alarm of that name.

    \b
    Examples:
      pulse alarms set trial-ends:42 --delay 14d --url https://shop.example/hooks
      pulse alarms set --fire-at 2026-12-31T18:00:00Z --payload '{"user": 42}'
      pulse alarms set standup --cron '0 9 * * 1-5' --tz Europe/Berlin

    Give its time by one of --delay, --fire-at and --cron. The URL receives a signed POST, and receives it again if it
    does not answer 2xx.
    """
    check_when(given)
    new = make_new(name, given)
    done = session.run_with_engine(lambda engine: engine.alarms.set(new))
    alarm = done.alarm
    what = f"Set {name_or_id(alarm)}" if done.is_new else f"{name_or_id(alarm)} exists already, unchanged"
    document = as_json(alarm) | {"created": done.is_new}
    session.answer(document, lambda: print_text(f"{what}: {describe_timing(alarm)}; {describe_next(alarm)}."))


@alarms.command("list")
@click.option("--owner", help="Only alarms of this owner (all that you may see).")
@click.option("--status", metavar="STATE", callback=read_alarm_status, help="active, fired, failed or cancelled.")
@click.option("--paused/--not-paused", default=None, help="Only paused alarms, or only others.")
@click.option("--label", help="Only alarms with exactly this label.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="List at most this many.")
@click.option("--after", metavar="NEXT", help="Continue after an earlier page, with the `next` that it printed.")
@click.pass_obj
def list_alarms(
    session: Session,
    /,
    status: AlarmStatus | None,
    limit: int,
    after: str | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """List alarms that match all given filters, newest first.

    \b
    Examples:
      pulse alarms list --status active --not-paused
      pulse alarms list --owner shop --status failed --json
    """
    from pulse.model.alarms import AlarmFilter

    wanted = AlarmFilter(status=status, **given)
    page = session.run_with_engine(lambda engine: engine.alarms.list_page(wanted, after=after, limit=limit))
    document = {"alarms": [as_json(alarm) for alarm in page.alarms], "next": page.next}
    session.answer(document, lambda: show_list(page))


@alarms.command(short_help="Show everything about one alarm.")
@click.argument("name")
@owner_option
@click.pass_obj
def show(session: Session, name: str, owner: str | None) -> None:
    """Show everything about one alarm, found by its name or id, with its last deliveries."""

    async def read(engine: Engine) -> tuple[Alarm, list[Delivery]]:
        alarm = await engine.alarms.get(name, owner=owner)
        return alarm, (await engine.alarms.deliveries(alarm.id, limit=RECENT)).deliveries

    alarm, deliveries = session.run_with_engine(read)
    document = as_json(alarm) | {"deliveries": [delivery_as_json(each) for each in deliveries]}
    session.answer(document, lambda: show_alarm(alarm, deliveries))


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def cancel(session: Session, name: str, owner: str | None) -> None:
    """Cancel the alarm NAME. It can still be shown; cancelling it again changes nothing."""
    alarm = session.run_with_engine(lambda engine: engine.alarms.cancel(name, owner=owner))
    _answer(session, alarm, lambda: f"{name_or_id(alarm)} is cancelled.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def pause(session: Session, name: str, owner: str | None) -> None:
    """Pause the alarm NAME: nothing is delivered until it is resumed. A delivery under way continues."""
    alarm = session.run_with_engine(lambda engine: engine.alarms.pause(name, owner=owner))
    _answer(session, alarm, lambda: f"{name_or_id(alarm)} is paused.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def resume(session: Session, name: str, owner: str | None) -> None:
    """Resume the alarm NAME.

    What a timetable missed during the pause is not delivered. An alarm that fires once and whose time has passed fires
    now.
    """
    alarm = session.run_with_engine(lambda engine: engine.alarms.resume(name, owner=owner))
    _answer(session, alarm, lambda: f"{name_or_id(alarm)} is resumed; {describe_next(alarm)}.")


@alarms.command()
@click.argument("name")
@owner_option
@click.pass_obj
def fire(session: Session, name: str, owner: str | None) -> None:
    """Deliver the alarm NAME now.

    An alarm that fires once fires now instead of later; a timetable stays as it is; an alarm that has fired or failed
    is delivered once more. A server or worker delivers it: `pulse alarms deliveries NAME` shows what became of it.
    """
    alarm = session.run_with_engine(lambda engine: engine.alarms.fire(name, owner=owner))
    _answer(session, alarm, lambda: f"{name_or_id(alarm)} will be delivered now.")


def _answer(session: Session, alarm: Alarm, sentence: Callable[[], str]) -> None:
    session.answer(as_json(alarm), lambda: print_text(sentence()))


@alarms.command()
@click.argument("name")
@owner_option
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Show at most this many.")
@click.option("--after", metavar="NEXT", help="Continue after an earlier page, with the `next` that it printed.")
@click.pass_obj
def deliveries(session: Session, name: str, owner: str | None, limit: int, after: str | None) -> None:
    """Show every attempt to deliver the alarm NAME, newest first."""

    async def read(engine: Engine) -> tuple[Alarm, DeliveryPage]:
        alarm = await engine.alarms.get(name, owner=owner)
        return alarm, await engine.alarms.deliveries(alarm.id, after=after, limit=limit)

    alarm, page = session.run_with_engine(read)
    document = {"deliveries": [delivery_as_json(each) for each in page.deliveries], "next": page.next}
    session.answer(document, lambda: show_delivery_page(page, alarm))


@alarms.group(invoke_without_command=True, short_help="Show the secrets that sign an owner's alarms, newest first.")
@click.option("--owner", help="The owner (that of alarms that were set without an owner).")
@click.pass_context
def secret(ctx: click.Context, owner: str | None) -> None:
    """Show the secrets that sign the alarms of an owner, newest first. Receivers check signatures with pulse.webhooks.

    \b
    Examples:
      pulse alarms secret --owner shop
      pulse alarms secret rotate --overlap 24h
    """
    if ctx.invoked_subcommand is not None:
        return
    session: Session = ctx.obj
    found = session.run_with_engine(lambda engine: engine.alarms.secrets(owner))
    session.answer({"secrets": [secret_as_json(each) for each in found]}, lambda: show_secrets(found))


@secret.command(short_help="Sign with a new secret, and for a while with the old ones, too.")
@click.option("--overlap", metavar="LENGTH", callback=read_length, help="How long old secrets still sign (24h).")
@click.option("--owner", help="Replace the secret of this owner only (of all owners).")
@click.pass_obj
def rotate(session: Session, overlap: timedelta | None, owner: str | None) -> None:
    """Sign with a new secret from now on, and for a while with the old ones, too.

    Give receivers the new secret meanwhile. An overlap of 0s ends the old ones at once.
    """
    given = {} if overlap is None else {"overlap": overlap}
    found = session.run_with_engine(lambda engine: engine.alarms.rotate_secret(owner=owner, **given))
    session.answer({"secrets": [secret_as_json(each) for each in found]}, lambda: show_secrets(found))
