"""What does one field of a cron expression allow?

The grammar of robfig/cron v3, without what it only lets pass:

    field = item {"," item}
    item  = ("*" | "?" | value ["-" value]) ["/" step]

`N/step` means from N to the end. Sets are kept as bits of an integer: bit 5 is the value 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_ITEM = re.compile(r"(?P<low>[*?]|[^-/*?]+)(?:-(?P<high>[^-/*?]+))?(?:/(?P<step>[^-/*?]+))?")
_QUARTZ = re.compile(r"(\d*|[A-Z]{3})(L|W|LW|#\d*)", re.IGNORECASE)


class BadField(ValueError):
    """Why a field cannot be read; `Cron.parse` puts the whole expression in front."""


@dataclass(frozen=True, slots=True)
class Field:
    values: int
    star: bool  # robfig's flag: some item is a bare `*` or `?`. Then this day field leaves the choice to the other
    wild: bool  # some item begins with `*` or `?`, whatever its step: follows elapsed time when clocks change


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the five positions, and what may stand there."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        text = f"{self.least} to {self.most}"
        if self.names:
            text += f" or {self.names[0]} to {self.names[-1]}"
        return text + (", Sunday is 0" if self.names is WEEKDAYS else "")

    def parse(self, text: str) -> Field:
        values, star, wild = 0, False, False
        for item in text.split(","):
            if not item:
                raise self._bad(f"{text!r} has an empty item in its list")
            bits, is_wild, step = self._item(item)
            values |= bits
            wild |= is_wild
            star |= is_wild and step == 1
        return Field(values, star, wild)

    def _item(self, item: str) -> tuple[int, bool, int]:
        if not (parts := _ITEM.fullmatch(item)):
            raise self._bad(f"cannot read {item!r}")
        low, high, step = parts["low"], parts["high"], self._step(item, parts["step"])
        if low in ("*", "?"):
            if high is not None:
                raise self._bad(f"{item!r} is a range that begins with {low!r}; write it with two values")
            first, last = self.least, self.most
        else:
            first = self._value(low)
            last = self._value(high) if high is not None else self.most if parts["step"] else first
            if first > last:
                raise self._bad(f"{item!r} is a range that runs backwards; write two ranges with a comma")
        return sum(1 << value for value in range(first, last + 1, step)), low in ("*", "?"), step

    def _value(self, text: str) -> int:
        if text.upper() in self.names:
            return self.names.index(text.upper()) + self.least
        if _is_number(text):
            if len(text) > 4 or not self.least <= int(text) <= self.most:
                raise self._bad(f"{text[:20]!r} is out of range")
            return int(text)
        if _QUARTZ.fullmatch(text):
            raise self._bad(f"{text!r} is Quartz notation, and L, W and # are not supported")
        raise self._bad(f"cannot read {text!r}")

    def _step(self, item: str, text: str | None) -> int:
        if text is None:
            return 1
        if not _is_number(text) or len(text) > 4 or int(text) == 0:
            raise self._bad(f"the step in {item!r} is not a number from 1 to 9999")
        return int(text)

    def _bad(self, reason: str) -> BadField:
        return BadField(f"{self.name}: {reason} (allowed: {self.allowed}; *, lists a,b, ranges a-b, steps */n)")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # `+5` and `⁵` are numbers to int() and to isdigit()


MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23)
DAY = Kind("day of month", 1, 31)
MONTH = Kind("month", 1, 12, MONTHS)
WEEKDAY = Kind("day of week", 0, 6, WEEKDAYS)
