"""What must become of a schedule at each instant the clock is moved to? Its log, line by line, before it is written.

The clock stands still while schedules fire, so there is one right answer, whoever fires and however often they die.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

GRACE = 10

Line = tuple[int, str]  # an occurrence, and its outcome
Stretch = tuple[int, int]  # how many it stands for, and the newest of them


@dataclass(eq=False)
class Foretold:
    """One schedule. Instants are whole seconds since 1970."""

    name: str
    occurrences: Sequence[int]
    catch_up: str = "fire_once"
    replay_limit: int = 100
    overlap: str = "allow"
    max_occurrences: int | None = None
    jitter: int | None = None
    created_at: int = 0  # or when it was given its timetable
    is_endless: bool = True
    is_once: bool = False
    id: UUID | None = None
    fired: int = 0
    buffered: int | None = None
    is_busy: bool = False
    is_paused: bool = False
    was_retimed: bool = False
    is_gone: bool = False
    is_over: bool = False  # gone, or has made as many as it may
    passed: int = 0  # how many of the occurrences
    lines: dict[Line, Stretch] = field(default_factory=dict)
    fresh: dict[Line, Stretch] = field(default_factory=dict)  # those of this instant

    def is_due(self, now: int) -> bool:
        can_fire = not self.is_over and not self.is_paused and self.passed < len(self.occurrences)
        return can_fire and self.occurrences[self.passed] <= now

    def is_owed(self, now: int) -> bool:
        """Whether a pause that ends now has outlasted its only occurrence, which then runs late."""
        is_due = self.is_once and self.passed == 0 and self.occurrences[0] <= now and not self.is_over
        return is_due and (self.catch_up != "skip" or now - self.occurrences[0] <= GRACE)

    def fire(self, now: int) -> None:
        """All schedules that are due have fired."""
        if not self.is_due(now):
            return
        until = bisect_right(self.occurrences, now)
        due = self.occurrences[self.passed : until]
        self.passed = until
        fires = list(self._caught_up(due, now))
        if self.overlap != "allow":
            wanted = fires
            fires = self._without_overlap(wanted)
            if wanted and not fires and self.buffered is None:
                self._stand_for_nobody(due)
        self._make(fires)

    def _caught_up(self, due: Sequence[int], now: int) -> Sequence[int]:
        if self.catch_up == "fire_once":
            self._note(due[1:], "COALESCED")
            return due[:1]
        newest = self.replay_limit if self.catch_up == "replay" else int(now - due[-1] <= GRACE)
        rest = max(0, len(due) - newest)
        self._note(due[:rest], "SKIPPED")
        return due[rest:]

    def _without_overlap(self, fires: list[int]) -> list[int]:
        queue = ([] if self.buffered is None else [self.buffered]) + fires
        now = [] if self.is_busy else queue[:1]
        queue = queue[len(now) :]
        is_last = self._left() <= len(now)
        if self.overlap == "buffer_one":
            waiting = queue[:1] if not is_last else []
            if waiting and waiting[0] != self.buffered:
                self._note(waiting, "BUFFERED")
            self.buffered = waiting[0] if waiting else None
            queue = queue[1:]
        for occurrence in queue:
            self._note([occurrence], "SKIPPED")
        return now

    def _stand_for_nobody(self, due: Sequence[int]) -> None:
        """What the skipped one would have stood for is skipped as well."""
        for line in [(occurrence, "COALESCED") for occurrence in due if (occurrence, "COALESCED") in self.fresh]:
            self.lines[line[0], "SKIPPED"] = self.fresh[line[0], "SKIPPED"] = self.fresh.pop(line)
            del self.lines[line]

    def _left(self) -> int:
        return 1 << 40 if self.max_occurrences is None else self.max_occurrences - self.fired

    def _make(self, fires: Sequence[int]) -> None:
        made = fires[: self._left()]
        for occurrence in made:
            self._note([occurrence], "FIRED")
        self.fired += len(made)
        self.is_busy |= bool(made)
        self.is_over |= self._left() <= 0

    def _note(self, occurrences: Sequence[int], outcome: str) -> None:
        if occurrences:
            line = (occurrences[0], outcome)
            assert line not in self.lines, f"{self.name}: {line} is foretold twice"
            self.lines[line] = self.fresh[line] = (len(occurrences), occurrences[-1])

    # --- what is done to it

    def finish(self) -> None:
        """Its jobs have ended, and what waited for that has fired."""
        self.is_busy = False
        if self.buffered is not None and not self.is_paused and not self.is_over:
            waited, self.buffered = self.buffered, None
            self._make([waited])

    def resume(self, now: int) -> None:
        self.is_paused = False
        if self.is_owed(now):
            self.fire(now)
        elif self.is_due(now):
            until = bisect_right(self.occurrences, now)
            self._note(self.occurrences[self.passed : until], "SKIPPED")
            self.passed = until

    def retime(self, occurrences: Sequence[int], now: int) -> None:
        """The occurrences of its new timetable. What was due of the old one is passed over, also during a pause."""
        if not self.is_over:
            self._note(self.occurrences[self.passed : bisect_right(self.occurrences, now)], "SKIPPED")
        self.occurrences, self.passed, self.created_at = occurrences, bisect_right(occurrences, now), now
        self.was_retimed = True

    def trigger(self, now: int) -> None:
        self._note([now], "FIRED")

    def backfill(self, start: int, end: int) -> None:
        stretch = self.occurrences[bisect_left(self.occurrences, start) : bisect_left(self.occurrences, end)]
        for occurrence in stretch:
            if (occurrence, "FIRED") not in self.lines:
                self._note([occurrence], "FIRED")
