"""Stand-in until the real one is merged."""

from __future__ import annotations

from contextvars import ContextVar


class Caller:
    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, scope: str, topic: str) -> None:
        pass


caller: ContextVar[Caller] = ContextVar("caller", default=Caller("local"))  # noqa: B039
