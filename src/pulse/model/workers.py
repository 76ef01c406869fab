"""What is known of a connected worker? Presence, for people to look at: what it holds is kept by leases."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class Presence(msgspec.Struct, frozen=True):
    """A worker as its server sees it now, or as it sees itself."""

    name: str
    version: str
    topics: list[str]
    slots: int
    busy: int
    age: timedelta  # how long it has been connected


class WorkerSeen(msgspec.Struct, frozen=True):
    """A worker as the database knows it, seen within the last minute."""

    name: str
    server: str  # empty: it goes straight to the database
    version: str
    topics: list[str]
    slots: int
    busy: int
    connected_at: datetime
    seen_at: datetime
