"""Whose alarms may a caller set, see and manage? Every door uses these rules.

An alarm has an owner as a job has a topic. A caller who may not see an alarm gets AlarmNotFound, so that nobody learns
from a refusal which alarms others have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from pulse.model.alarms import DEFAULT_OWNER, AlarmFilter, check_alarm_name
from pulse.model.errors import AlarmNotFound
from pulse.model.text import check_name
from pulse.model.tokens import Right, ScopeKind

if TYPE_CHECKING:
    from pulse.doors.access import Caller
    from pulse.model.alarms import Alarm

ALL_OWNERS = "*"  # no scope can name this owner, so only a scope for all owners grants it


class AlarmFinder(Protocol):
    """The part of `engine.alarms` that finds an alarm."""

    async def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...


def own_owner(caller: Caller) -> str:
    """Return the caller's own owner: the one that its scopes name, if they name exactly one, else its token's name."""
    if caller.is_trusted:
        return DEFAULT_OWNER
    named = [scope.topic for scope in caller.scopes if scope.kind is ScopeKind.ALARMS and scope.topic is not None]
    return named[0] if len(named) == 1 else caller.name


def owner_to_set(caller: Caller, given: str | None) -> str:
    """Return the owner of an alarm that this caller sets. Raise Forbidden if it may not set alarms of that owner."""
    owner = check_name("owner", given) if given else own_owner(caller)
    caller.check(Right.SET_ALARM, owner)
    return owner


def owner_to_list(caller: Caller, given: str | None) -> str | None:
    """Return the owner whose alarms are listed; None: all owners.

    Raise Forbidden if the caller may not see alarms of that owner, whether or not there are any.
    """
    if not given and caller.may(Right.VIEW_ALARM, ALL_OWNERS):
        return None
    owner = check_name("owner", given) if given else own_owner(caller)
    caller.check(Right.VIEW_ALARM, owner)
    return owner


def filter_to_list(caller: Caller, wanted: AlarmFilter) -> AlarmFilter:
    owner = owner_to_list(caller, wanted.owner)
    return AlarmFilter(owner=owner, status=wanted.status, paused=wanted.paused, label=wanted.label)


async def find_to_manage(alarms: AlarmFinder, caller: Caller, key: UUID | str, given: str | None = None) -> Alarm:
    """Return the alarm if the caller may see and manage it. Act on it by its id: another alarm may take its name."""
    alarm = await find_to_see(alarms, caller, key, given)
    caller.check(Right.MANAGE_ALARM, alarm.owner)
    return alarm


async def find_to_see(alarms: AlarmFinder, caller: Caller, key: UUID | str, given: str | None = None) -> Alarm:
    """Return the alarm with this id or name if the caller may see it, or raise AlarmNotFound."""
    own_id = _id_of(key)
    if given:
        check_name("owner", given)
    owner = given or (own_owner(caller) if own_id is None else None)
    if own_id is None:
        check_alarm_name(key)
    if owner is not None and not caller.may(Right.VIEW_ALARM, owner):
        raise AlarmNotFound(key)
    alarm = await alarms.get(own_id or key, owner=owner)
    if not caller.may(Right.VIEW_ALARM, alarm.owner):
        raise AlarmNotFound(key)
    return alarm


def _id_of(key: UUID | str) -> UUID | None:
    if isinstance(key, UUID):
        return key
    try:
        return UUID(key)
    except ValueError:
        return None
