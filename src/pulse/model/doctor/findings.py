"""Which facts does `pulse doctor` collect, and what is a finding?"""

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
    FAIL = "fail"  # jobs are lost, late or not done at all


class Finding(msgspec.Struct, frozen=True):
    level: Level
    name: str  # of the check
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
    unlogged: list[str]  # Pulse's tables, without the one that may be unlogged
    standbys: int
    synchronous_standbys: str


class Clock(NamedTuple):
    source: str  # the body of pulse.now()
    now: datetime
    asked_at: datetime  # on this process's clock, like answered_at
    answered_at: datetime


class Pin(NamedTuple):
    """A transaction or slot that holds the horizon back, so that VACUUM cannot remove dead rows."""

    kind: str  # session, prepared transaction, replication slot
    name: str | None
    pid: int | None
    application: str | None
    state: str | None
    since: datetime | None
    query: str | None
    age: int  # in transactions


class TableFacts(NamedTuple):
    name: str
    live: int
    dead: int
    vacuumed_at: datetime | None
    is_vacuumed: bool  # by autovacuum


class Connections(NamedTuple):
    used: int
    limit: int  # of connections that ordinary roles may open


class Ages(NamedTuple):
    """The ages of the oldest row, in transactions. At two thousand million Postgres stops accepting transactions."""

    transactions: int
    multixacts: int


class Lateness(NamedTuple):
    """How long ago the oldest undone work of each duty fell due; none: all is done."""

    promote: timedelta | None
    expire: timedelta | None
    fire: timedelta | None
    wake: timedelta | None
    reap: timedelta | None


class Miscount(NamedTuple):
    """A topic and state whose count differs from the number of rows."""

    topic: str
    status: str
    counted: int
    rows: int


class Broken(NamedTuple):
    """One of the broken schedules, and how many there are."""

    name: str
    error: str
    payload: str  # the error may quote from it
    schedules: int


class ServerSeen(msgspec.Struct, frozen=True):
    """A pulsed that was asked for its version, and its answer."""

    address: str
    version: str | None  # none: it did not answer
    problem: str = ""


def worst_of(findings: Sequence[Finding]) -> Level:
    ranks = list(Level)
    return max((finding.level for finding in findings), key=ranks.index, default=Level.OK)
