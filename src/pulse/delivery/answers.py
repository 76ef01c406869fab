"""How much of an endpoint's answer do we take in?

A receiver says what it has to say in its status and a few words. It may also be broken or hostile: endless headers,
interim answers without end, a body of 10 GB. What is kept is bounded by what is read, and what is read is bounded here.
"""

from __future__ import annotations

import asyncio
import functools
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError, ClientResponse, TCPConnector
from aiohttp.client_proto import ResponseHandler

from pulse.model.text import clean_error

if TYPE_CHECKING:
    from collections.abc import Mapping

BODY_LIMIT = 64 << 10
BYTES_LIMIT = 128 << 10  # of one answer in all, interim answers and headers included
KEPT = 1 << 10
LONGEST_RETRY_AFTER = timedelta(hours=24)
_UNPRINTABLE = re.compile(r"[^!-~]")


class AnswerTooLong(ClientError):
    pass


class BoundedConnector(TCPConnector):
    """aiohttp bounds single headers and we bound the body; this bounds whatever else an endpoint may think of."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        make = functools.partial(_BoundedHandler, loop=asyncio.get_running_loop())
        self._factory = make  # type: ignore[assignment]


class _BoundedHandler(ResponseHandler):
    _taken = 0

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401
        self._taken = 0  # a new request
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._taken > BYTES_LIMIT and self.transport is not None:
            self.transport.abort()
            return
        self._taken += len(data)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        too_long = AnswerTooLong("the answer is longer than we read") if self._taken > BYTES_LIMIT else None
        super().connection_lost(too_long or exc)


async def read_answer(response: ClientResponse, into: bytearray) -> None:
    """Read to the end, so that the connection can be used again, or else drop it."""
    content = response.content
    try:
        while len(into) < BODY_LIMIT:
            if content.at_eof():
                return
            into += await content.read(BODY_LIMIT - len(into))
    finally:
        if not content.at_eof():
            response.close()


def text_of(answer: bytes) -> str:
    """The beginning, as Postgres can store it."""
    return clean_error(answer[:KEPT].decode(errors="replace"), KEPT) if answer else ""


def error_of(status: int, headers: Mapping[str, str]) -> str | None:
    """What is wrong with a status; none for 2xx. The words are ours: those of the endpoint could say anything."""
    if 200 <= status < 300:
        return None
    try:
        named = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        named = f"HTTP {status}"
    if not 300 <= status < 400:
        return named
    return f"{named}: the redirect{_place_of(headers.get('location', ''))} is not followed"


def _place_of(location: str) -> str:
    """Without what may be a secret: a query, a fragment, credentials."""
    place = re.split(r"[?#]", location, maxsplit=1)[0].rpartition("@")[2]
    return f" to {_UNPRINTABLE.sub('?', place)[:200]}" if place else ""


def retry_after_of(text: str | None, now: datetime | None = None) -> timedelta | None:
    """Seconds or an HTTP date, as a length from now of at most a day; none if it is neither."""
    if not text:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        seconds = min(int(text[:10]), LONGEST_RETRY_AFTER.total_seconds())
        return timedelta(seconds=seconds)
    try:
        until = parsedate_to_datetime(text[:100])
        if until.tzinfo is None:
            until = until.replace(tzinfo=UTC)
        return min(max(until - (now or datetime.now(UTC)), timedelta()), LONGEST_RETRY_AFTER)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
