"""What does a doctor look at, and what is a finding?"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, but not as it should, or not for long
    FAIL = "fail"  # jobs are lost, late or not done


class Finding(msgspec.Struct, frozen=True):
    level: Level
    name: str  # of what was looked at
    text: str
    advice: str = ""


class ServerFacts(NamedTuple):
    version: int  # as server_version_num
    version_text: str
    is_standby: bool
    is_read_only: bool
    encoding: str
    database: str
    role: str


class Durability(NamedTuple):
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    elsewhere: list[str]  # roles and databases for which synchronous_commit is off
    unlogged: list[str]  # tables of ours, but for the one that may be
    standbys: int
    synchronous_standbys: str


class Clock(NamedTuple):
    source: str  # what pulse.now() is made of
    now: datetime
    asked_at: datetime  # by this process
    answered_at: datetime


class Pin(NamedTuple):
    """Who holds the horizon back, behind which nothing dead can be removed."""

    kind: str  # session, prepared transaction, replication slot
    name: str | None
    pid: int | None
    application: str | None
    state: str | None
    since: datetime | None
    query: str | None
    age: int  # transactions since


class TableFacts(NamedTuple):
    name: str
    live: int
    dead: int
    vacuumed_at: datetime | None
    is_vacuumed: bool  # by itself


class Connections(NamedTuple):
    used: int
    most: int  # that ordinary roles may open


class Ages(NamedTuple):
    """In transactions. At two thousand million Postgres stops taking any."""

    transactions: int
    multixacts: int


class Lateness(NamedTuple):
    """How long ago something fell due that nobody has done; none: all is done."""

    promote: timedelta | None
    expire: timedelta | None
    fire: timedelta | None
    wake: timedelta | None
    reap: timedelta | None


class Miscount(NamedTuple):
    """A topic and state of which the counts say something else than the rows."""

    topic: str
    status: str
    said: int
    found: int


class Broken(NamedTuple):
    """One of the schedules that are broken, and how many there are."""

    name: str
    error: str
    payload: str  # which the error may quote
    schedules: int


class ServerSeen(msgspec.Struct, frozen=True):
    """A pulsed that was asked, and what it answered."""

    address: str
    version: str | None  # none: it did not answer
    problem: str = ""


def worst_of(findings: Sequence[Finding]) -> Level:
    ranks = list(Level)
    return max((finding.level for finding in findings), key=ranks.index, default=Level.OK)
