"""Which Python option does an error mean when it names a field of HTTP or gRPC?

Values are checked in one place for all doors, with the field names of their common contract. A program that wrote
`alarms.set(delay=…)` has never seen delay_seconds, so errors for it name the option it used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pulse.model.errors import PulseError

WORDS = {
    "cron_expr": "cron",
    "delay_seconds": "delay",
}
# Quoted text is the caller's own value, so it is matched whole and left as it is.
_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:""" + "|".join(WORDS) + r")\b")


@contextmanager
def in_python_words() -> Iterator[None]:
    """Rename the fields that errors mention to the options of Python, while this context is open."""
    try:
        yield
    except PulseError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (translate(error.args[0]), *error.args[1:])
        raise


def translate(text: str) -> str:
    """Return the text with each field replaced by its Python option."""
    return _WORD.sub(lambda found: WORDS.get(found.group(), found.group()), text)
