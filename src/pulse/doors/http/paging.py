"""How is a page written that must not be too large?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response

from pulse.doors.http.errors import answer_with
from pulse.doors.page_size import how_many_fit

Find = Callable[[int], Awaitable[tuple[list[dict[str, Any]], str | None]]]  # so many: the rows, and the next page


async def encode_page(name: str, find: Find, limit: int, most_bytes: int) -> Response:
    rows, following = await find(limit)
    encoded = [msgspec.json.encode(row) for row in rows]
    if len(encoded) > (fitting := how_many_fit(map(len, encoded), most_bytes)):
        rows, following = await find(fitting)
        encoded = [msgspec.json.encode(row) for row in rows]
    return answer_with({name: [msgspec.Raw(row) for row in encoded], "next": following})
