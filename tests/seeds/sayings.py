"""What do the five source documents say, and how does Pulse stand to each sentence? A decorator puts it on the test.

Pulse was built from five documents: two about alarms and three about jobs. Each of their sentences is a row with a test
of its own here, and docs/reference/conformance.md is the list of them (`python -m tools.conformance`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from types import ModuleType
from typing import NamedTuple, TypeVar

DOCUMENTS = {
    "000": "The worker that dispatches alarms",
    "003": "The engine that computes when alarms fire",
    "001": "Scheduled and recurring jobs",
    "002": "Streaming dispatch of jobs",
    "004": "Leases, heartbeats, the watchdog and fencing",
}  # in the order of their rows

Test = TypeVar("Test", bound=Callable[..., object])


class Verdict(StrEnum):
    HOLDS = "holds"  # Pulse does what the document says
    BETTER = "better"  # the document accepts a cost or a limit that Pulse does not have
    DEVIATES = "deviates"  # Pulse does something else, by a decision


class Saying(NamedTuple):
    """A sentence of a source document, in our words."""

    document: str
    row: str
    sentence: str
    verdict: Verdict
    decision: str | None  # the number of its page; a deviation has one
    because: str  # what Pulse does instead

    @property
    def order(self) -> tuple[int, str]:
        """Rows by number; 98b follows 98."""
        number = self.row.rstrip("b")
        return int(number), self.row


def says(
    document: str,
    row: int | str,
    sentence: str,
    *,
    verdict: str = "holds",
    decision: str | None = None,
    because: str = "",
) -> Callable[[Test], Test]:
    """Mark the test that proves a row. Whatever does not simply hold says what Pulse does instead."""
    saying = Saying(document, str(row), sentence, Verdict(verdict), decision, because)
    if document not in DOCUMENTS:
        raise ValueError(f"there is no source document {document}")
    if (saying.verdict is Verdict.HOLDS) == bool(because):
        raise ValueError(f"row {row}: say what Pulse does instead where it does not simply hold, and only there")
    if saying.verdict is Verdict.DEVIATES and decision is None:
        raise ValueError(f"row {row}: a deviation names the decision that made it")

    def mark(test: Test) -> Test:
        setattr(test, "saying", saying)  # noqa: B010  a function has no such attribute for the type checker
        return test

    return mark


class Proof(NamedTuple):
    """A saying, and the test that proves it."""

    saying: Saying
    file: str
    test: str


def collect(modules: Iterable[ModuleType]) -> list[Proof]:
    """All that tests of these modules prove, in the order of the rows."""
    found = [
        Proof(test.saying, f"{module.__name__.replace('.', '/')}.py", name)
        for module in modules
        for name, test in vars(module).items()
        if name.startswith("test_") and hasattr(test, "saying")
    ]
    return sorted(found, key=lambda proof: proof.saying.order)
