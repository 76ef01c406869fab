"""What does one field of a cron expression allow?

The grammar is that of robfig/cron v3, without the mistakes that its parser lets pass:

    field = item {"," item}
    item  = ("*" | "?" | value ["-" value]) ["/" step]

`N/step` means from N to the end. A set of values is an integer: bit 5 stands for the value 5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_ITEM = re.compile(r"(?P<low>[*?]|[^-/*?]+)(?:-(?P<high>[^-/*?]+))?(?:/(?P<step>[^-/*?]+))?")
_QUARTZ = re.compile(r"(\d*|[A-Z]{3})(L|W|LW|#\d*)", re.IGNORECASE)


class BadField(ValueError):
    """A field that cannot be read. `Cron.parse` puts the whole expression in front of the message."""


@dataclass(frozen=True, slots=True)
class Field:
    values: int
    star: bool  # some item is a bare `*` or `?`: then a day field leaves the choice to the other one, as in robfig/cron
    wild: bool  # some item begins with `*` or `?`, with any step: it follows elapsed time when clocks change


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the five fields of an expression, and the values it may have."""

    name: str
    minimum: int
    maximum: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        text = f"{self.minimum} to {self.maximum}"
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
                raise self._bad(f"{item!r} is a range that begins with {low!r}; a range needs two values")
            first, last = self.minimum, self.maximum
        else:
            first = self._value(low)
            last = self._value(high) if high is not None else self.maximum if parts["step"] else first
            if first > last:
                raise self._bad(f"{item!r} is a range that runs backwards; write two ranges with a comma")
        return sum(1 << value for value in range(first, last + 1, step)), low in ("*", "?"), step

    def _value(self, text: str) -> int:
        if text.upper() in self.names:
            return self.names.index(text.upper()) + self.minimum
        if _is_number(text):
            if len(text) > 4 or not self.minimum <= int(text) <= self.maximum:
                raise self._bad(f"{text[:20]!r} is out of range")
            return int(text)
        if _QUARTZ.fullmatch(text):
            raise self._bad(f"{text!r} is Quartz notation, and L, W and # are not supported")
        raise self._bad(f"cannot read {text!r}")

    def _step(self, item: str, text: str | None) -> int:
        if text is None:
            return 1
        if not _is_number(text) or len(text) > 4 or int(text) == 0:
            raise self._bad(f"the step in {item!r} must be a number from 1 to 9999")
        return int(text)

    def _bad(self, reason: str) -> BadField:
        return BadField(f"{self.name}: {reason} (allowed: {self.allowed}; *, lists a,b, ranges a-b, steps */n)")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # int() would accept `+5`, and isdigit() alone `⁵`


MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23)
DAY = Kind("day of month", 1, 31)
MONTH = Kind("month", 1, 12, MONTHS)
WEEKDAY = Kind("day of week", 0, 6, WEEKDAYS)
