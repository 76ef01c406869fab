"""Database time that a test moves by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

REAL = "select statement_timestamp()"


class FrozenClock:
    """Replaces `pulse.now()`, so every statement of every connection sees the same, standing instant."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.instant = datetime.now(UTC).replace(microsecond=0)

    async def freeze(self) -> None:
        await self._replace(f"select timestamptz '{self.instant.isoformat()}'")

    async def advance(self, by: timedelta) -> None:
        self.instant += by
        await self.freeze()

    async def unfreeze(self) -> None:
        await self._replace(REAL)

    async def _replace(self, body: str) -> None:
        await self._conn.execute(
            "create or replace function pulse.now() returns timestamptz language sql stable parallel safe "
            f"as $${body}$$"
        )
