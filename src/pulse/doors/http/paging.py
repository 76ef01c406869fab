"""How is a page of a list written, so that the response does not get too large?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response

from pulse.doors.http.errors import json_response
from pulse.doors.page_size import how_many_fit

# Takes the maximal number of rows, and returns the rows and where the next page begins.
Find = Callable[[int], Awaitable[tuple[list[dict[str, Any]], str | None]]]


async def encode_page(name: str, find: Find, limit: int, max_bytes: int) -> Response:
    rows, next_page = await find(limit)
    encoded = [msgspec.json.encode(row) for row in rows]
    if len(encoded) > (fitting := how_many_fit(map(len, encoded), max_bytes)):
        rows, next_page = await find(fitting)
        encoded = [msgspec.json.encode(row) for row in rows]
    return json_response({name: [msgspec.Raw(row) for row in encoded], "next": next_page})
