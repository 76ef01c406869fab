"""Which index does a search of schedules or alarms use, and where does the next page begin?

Conditions that the index does not cover are checked on a limited number of rows, so that a page costs the same however
many rows there are. A page may therefore be short or even empty, and not be the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from pulse.model.alarms import AlarmPage, AlarmStatus
from pulse.model.errors import InvalidFilter
from pulse.model.jobs import PAGE_LIMIT, check_int
from pulse.model.list_filters import SCAN_LIMIT, AlarmSearch, AlarmState, ScheduleSearch, ScheduleState
from pulse.model.schedules import SchedulePage, ScheduleStatus
from pulse.model.text import check_name
from pulse.store.alarms import lists as alarm_lists
from pulse.store.schedules import lists as schedule_lists

if TYPE_CHECKING:
    from pulse.store.connections.pool import Connection

FIRST_ID, LAST_ID = UUID(int=0), UUID(int=(1 << 128) - 1)
FIRST, LAST = (datetime.min.replace(tzinfo=UTC), FIRST_ID), (datetime.max.replace(tzinfo=UTC), LAST_ID)


class Row(Protocol):
    """A row of a search: whether it matches, and how many rows were read up to it."""

    @property
    def matches(self) -> bool: ...
    @property
    def seen(self) -> int: ...


R = TypeVar("R", bound=Row)


def cut_page(rows: Sequence[R], limit: int) -> tuple[list[R], R | None]:
    """Return the rows of a page, and the row after which the next page begins."""
    if not rows:
        return [], None
    *matching, last = rows
    if len(matching) > limit:
        return matching[:limit], matching[limit - 1]
    return matching, last if last.seen == SCAN_LIMIT else None


# --- schedules


async def search_schedules(conn: Connection, wanted: ScheduleSearch, *, after: str | None, limit: int) -> SchedulePage:
    """Return a page of schedules that match, by name."""
    check_int("limit", limit, 1, PAGE_LIMIT)
    if after:
        check_name("after", after)
    if wanted.state is ScheduleState.BROKEN:
        rows = await schedule_lists.search_broken(conn, wanted, after=after or "", scan=SCAN_LIMIT, limit=limit + 1)
    else:
        rows = await schedule_lists.search_schedules(
            conn,
            wanted,
            after=after or "",
            status=_schedule_status(wanted.state),
            paused=_is_paused(wanted.state),
            scan=SCAN_LIMIT,
            limit=limit + 1,
        )
    page, end = cut_page(rows, limit)
    found = await schedule_lists.find_schedules(conn, ids=[row.id for row in page])
    return SchedulePage(sorted(found, key=lambda schedule: schedule.name.encode()), end.name if end else None)


def _schedule_status(state: ScheduleState | None) -> ScheduleStatus | None:
    return None if state in (None, ScheduleState.PAUSED) else ScheduleStatus(state.upper())


def _is_paused(state: ScheduleState | AlarmState | None) -> bool | None:
    if state in (ScheduleState.ACTIVE, AlarmState.ACTIVE):
        return False
    return True if state in (ScheduleState.PAUSED, AlarmState.PAUSED) else None


# --- alarms


async def search_alarms(conn: Connection, wanted: AlarmSearch, *, after: str | None, limit: int) -> AlarmPage:
    """Return a page of alarms that match, newest first. A search for failed ones has the latest failure first, and one
    for failing ones has the next try first."""
    check_int("limit", limit, 1, PAGE_LIMIT)
    page, end = cut_page(await _scan_alarms(conn, wanted, after, limit + 1), limit)
    found = await alarm_lists.read_alarms(conn, ids=[row.id for row in page])
    return AlarmPage(found, _write_cursor(end) if end else None)


async def _scan_alarms(
    conn: Connection, wanted: AlarmSearch, after: str | None, limit: int
) -> list[alarm_lists.ScannedAlarm]:
    owner, part = wanted.owner, wanted.text
    if wanted.state is AlarmState.FAILED:
        before = _read_cursor(after, LAST)
        return await alarm_lists.search_failed(
            conn, before=before, owner=owner, part=part, scan=SCAN_LIMIT, limit=limit
        )
    if wanted.state is AlarmState.FAILING:
        begin = _read_cursor(after, FIRST)
        return await alarm_lists.search_failing(conn, after=begin, owner=owner, part=part, scan=SCAN_LIMIT, limit=limit)
    _, last = _read_cursor(after, LAST)
    status, paused = _alarm_status(wanted.state), _is_paused(wanted.state)
    if owner is None:
        return await alarm_lists.search_alarms(
            conn, before=last, status=status, paused=paused, part=part, scan=SCAN_LIMIT, limit=limit
        )
    return await alarm_lists.search_owned(
        conn, owner=owner, before=last, status=status, paused=paused, part=part, scan=SCAN_LIMIT, limit=limit
    )


def _alarm_status(state: AlarmState | None) -> AlarmStatus | None:
    if state is None:
        return None
    return AlarmStatus.ACTIVE if state is AlarmState.PAUSED else AlarmStatus(state)


def _write_cursor(row: alarm_lists.ScannedAlarm) -> str:
    return f"{row.id} {row.at.isoformat() if row.at else ''}".strip()


def _read_cursor(text: str | None, start: tuple[datetime, UUID]) -> tuple[datetime, UUID]:
    if text is None:
        return start
    own_id, _, at = text.partition(" ")
    try:
        instant = datetime.fromisoformat(at) if at else start[0]
        if instant.tzinfo is not None:
            return instant, UUID(own_id)
    except ValueError:
        pass
    raise InvalidFilter(f"after must be the `next` of the previous page of alarms, not {text[:60]!r}")
