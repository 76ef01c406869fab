"""What is known about a connected worker? This is for people to look at: leases alone decide which jobs it has."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class Presence(msgspec.Struct, frozen=True):
    """The state of a worker as its server sees it now, or as the worker sees itself."""

    name: str
    version: str
    topics: list[str]
    slots: int
    busy: int
    age: timedelta  # how long it has been connected


class WorkerSeen(msgspec.Struct, frozen=True):
    """The state of a worker as the database has it, recorded within the last minute."""

    name: str
    server: str  # empty: it is connected to the database itself
    version: str
    topics: list[str]
    slots: int
    busy: int
    connected_at: datetime
    seen_at: datetime
