"""Which exit code tells a script what went wrong?"""

from __future__ import annotations

from pulse.model.errors import Conflict, NotFound, PulseError, Unavailable

OK = 0
UNAVAILABLE = 5
REFUSED = 1  # refused or failed; 2 is click's, for a command line that makes no sense

EXIT_CODES: dict[type[PulseError], int] = {
    PulseError: REFUSED,
    NotFound: 3,
    Conflict: 4,
    Unavailable: UNAVAILABLE,
}


def exit_code_of(error: PulseError) -> int:
    """The nearest ancestor wins, so a new error needs no new line here."""
    return next(EXIT_CODES[kind] for kind in type(error).mro() if kind in EXIT_CODES)
