"""Which exit code does each error have?"""

from __future__ import annotations

from pulse.model.errors import Conflict, NotFound, PulseError, Unavailable

OK = 0
UNAVAILABLE = 5
REFUSED = 1  # refused or failed; click uses 2 for wrong usage

EXIT_CODES: dict[type[PulseError], int] = {
    PulseError: REFUSED,
    NotFound: 3,
    Conflict: 4,
    Unavailable: UNAVAILABLE,
}


def exit_code_of(error: PulseError) -> int:
    """Return the exit code of the error's nearest ancestor with one, so that a new error needs no new line here."""
    return next(EXIT_CODES[kind] for kind in type(error).mro() if kind in EXIT_CODES)
