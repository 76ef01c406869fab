"""Which words does a Python program have for what gRPC, HTTP and the model call otherwise?

Refusals come from where a value is checked, in the words of the contract that all doors share. Whoever wrote
`alarms.set(delay=…)` has never seen delay_seconds, so on the way out each such word becomes the option it was given as.
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
# What stands in quotes is the caller's own, and stays.
_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b(?:""" + "|".join(WORDS) + r")\b")


@contextmanager
def in_python_words() -> Iterator[None]:
    """Let refusals out in the words of Python."""
    try:
        yield
    except PulseError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (translate(error.args[0]), *error.args[1:])
        raise


def translate(text: str) -> str:
    """Return the text with Python's words in it."""
    return _WORD.sub(lambda found: WORDS.get(found.group(), found.group()), text)
