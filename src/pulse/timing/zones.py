"""When do the clocks of a time zone change, and does a time zone of that name exist?"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
_DAY_ONE = EPOCH.toordinal()
# With any offset, all instants of these years are at least a day away from the limits of a datetime.
FIRST_YEAR, LAST_YEAR = 2, 9998
# The first means another zone on another machine; the second is a placeholder for "not set up yet".
_NOT_PLACES = {"localtime", "Factory"}
# In all of tzdata 2026, no offset was changed and changed back within less than 3.98 days (Freetown, 1939). Since then,
# and as far as changes are planned, none was within less than 6.95 days (Recife in 2000, Gaza in 2040).
_PROBE, _PROBE_UNTIL_1939 = 6 * 86400, 3 * 86400
# CEST, or GMT+2. The name with the most similar letters is in another part of the world, and Etc/GMT+2 is west of
# Greenwich.
_ABBREVIATED = re.compile(r"[A-Z]{1,5}|[A-Za-z]{0,5}[+-][\d:]+")


class UnknownZone(ValueError):
    def __init__(self, name: str) -> None:
        if _ABBREVIATED.fullmatch(name):
            advice = "abbreviations and offsets are not zones; write Region/City, such as 'Europe/Berlin'"
        elif nearest := _nearest(name[:64]):
            advice = f"did you mean {nearest!r}?"
        else:
            advice = "write an IANA name such as 'Europe/Berlin' or 'UTC'"
        super().__init__(f"unknown time zone {name[:64]!r}: {advice}")


class Turn(NamedTuple):
    """A change of the clocks at an instant, from one offset to another: seconds since 1970 in UTC, and seconds."""

    at: int
    before: int
    after: int


def check_zone(name: str) -> str:
    # Opening the file would also accept `europe/berlin` on some file systems, and `../` on all of them.
    if name not in zone_names():
        raise UnknownZone(name)
    return name


@cache
def load_zone(name: str) -> ZoneInfo:
    """Return a time zone. zoneinfo itself keeps only eight, and would read a ninth from its file every time."""
    return ZoneInfo(name)


@lru_cache(maxsize=8192)  # seven years of a thousand zones; each entry is a few hundred bytes at most
def turns(tz: str, year: int) -> tuple[Turn, ...]:
    """Return every change of a zone's offset in a year of UTC. zoneinfo has this list, but shows single offsets."""
    if tz == "UTC" or not FIRST_YEAR <= year <= LAST_YEAR:
        return ()
    place = load_zone(tz)
    found = []
    seen, last = year_start(year) - 1, year_start(year + 1) - 1
    stride = _PROBE if year > 1939 else _PROBE_UNTIL_1939
    offset = _offset(place, seen)
    while seen < last:
        probe = min(seen + stride, last)
        while offset != _offset(place, probe):
            seen = _first_change(place, seen, probe)
            found.append(Turn(seen, offset, offset := _offset(place, seen)))
        seen = probe
    return tuple(found)


def _first_change(place: ZoneInfo, same: int, other: int) -> int:
    """Return the first instant with another offset, found by bisection between `same` and `other`."""
    offset = _offset(place, same)
    while other - same > 1:
        middle = (same + other) // 2
        if _offset(place, middle) == offset:
            same = middle
        else:
            other = middle
    return other


def offset_at(tz: str, instant: int) -> int:
    return 0 if tz == "UTC" else _offset(load_zone(tz), instant)


def _offset(place: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, place).utcoffset()
    assert offset is not None
    return offset.days * 86400 + offset.seconds


def year_start(year: int) -> int:
    return (date(year, 1, 1).toordinal() - _DAY_ONE) * 86400


def to_datetime(instant: int) -> datetime:
    return EPOCH + timedelta(seconds=instant)


@cache
def zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - _NOT_PLACES)


@lru_cache(maxsize=1024)  # a search takes milliseconds, and a thousand schedules may have the same unknown zone
def _nearest(name: str) -> str | None:
    """Return the zone whose name has the most similar letters. A city may be given without its continent."""
    known = _known()
    wanted = name.strip().lower().replace(" ", "_")
    if wanted in known:
        return known[wanted]
    if len(wanted) <= 4:  # short names are too similar: cest would become est or east
        return None
    close = get_close_matches(wanted, known, n=1, cutoff=0.75)
    return known[close[0]] if close else None


@cache
def _known() -> dict[str, str]:
    """Return each zone by its name in lower case and, where that is unique, by the name of its city."""
    known = {tz.lower(): tz for tz in sorted(zone_names())}
    for tz in sorted(zone_names()):
        known.setdefault(tz.lower().rpartition("/")[2], tz)
    return known
