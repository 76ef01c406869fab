"""How are the cookies of a request read? Only our own cookies, and only in the form in which we set them.

Starlette passes each value to `http.cookies`, which before Python 3.11.10 and 3.12.6 takes quadratic time to unquote
it: 60 KB from anybody cost eight seconds. Nothing is unquoted here, and a test keeps it so.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

KEY = r"[A-Za-z0-9_-]{43}"  # of a session
TEXT = r"[A-Za-z0-9_.~%-]{1,12000}"  # percent-encoded


def read_cookie(request: Request, name: str, form: str) -> str | None:
    """Return the first value of the cookie that has the given form, KEY or TEXT; None if there is none."""
    pattern = _pattern(name, form)
    found = (pattern.search(header) for header in request.headers.getlist("cookie"))
    return next((match[1] for match in found if match), None)


@cache
def _pattern(name: str, form: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|;)[ \t]*{re.escape(name)}=({form})(?=[ \t]*(?:;|$))")
