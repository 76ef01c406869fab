"""Whose alarms may a caller set, see and touch? The same at every door.

An alarm has an owner where a job has a topic. Whoever may not see an alarm is told that there is none, so that nobody
learns from a refusal what others have.
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

ALL = "*"  # as the scope of no owner can be written, so only a scope for all of them grants it


class Finding(Protocol):
    """What finds an alarm: engine.alarms."""

    async def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm: ...


def own_owner(caller: Caller) -> str:
    """Who they are among owners: the one their scopes name, if it is one; else as their token is called."""
    if caller.is_trusted:
        return DEFAULT_OWNER
    named = [scope.topic for scope in caller.scopes if scope.kind is ScopeKind.ALARMS and scope.topic is not None]
    return named[0] if len(named) == 1 else caller.name


def owner_to_set(caller: Caller, given: str | None) -> str:
    """Whose alarm it becomes. Raises Forbidden where it may not."""
    owner = check_name("owner", given) if given else own_owner(caller)
    caller.check(Right.SET_ALARM, owner)
    return owner


def owner_to_list(caller: Caller, given: str | None) -> str | None:
    """Whose alarms are listed; none: everybody's. To be refused tells nothing of what there is."""
    if not given and caller.may(Right.VIEW_ALARM, ALL):
        return None
    owner = check_name("owner", given) if given else own_owner(caller)
    caller.check(Right.VIEW_ALARM, owner)
    return owner


def filter_to_list(caller: Caller, wanted: AlarmFilter) -> AlarmFilter:
    owner = owner_to_list(caller, wanted.owner)
    return AlarmFilter(owner=owner, status=wanted.status, paused=wanted.paused, label=wanted.label)


async def find_to_manage(alarms: Finding, caller: Caller, key: UUID | str, given: str | None = None) -> Alarm:
    """As `find_to_see`, once the caller may tend it, too. Act on it by its id: its name may change hands."""
    alarm = await find_to_see(alarms, caller, key, given)
    caller.check(Right.MANAGE_ALARM, alarm.owner)
    return alarm


async def find_to_see(alarms: Finding, caller: Caller, key: UUID | str, given: str | None = None) -> Alarm:
    """The alarm, by its id or its name, once the caller may see it."""
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
