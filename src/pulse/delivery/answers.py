"""How much of the answer of an endpoint is read and kept?

A receiver needs a status and a few words. It may also be broken or hostile, and send endless headers, interim answers
without end, or a body of 10 GB. This module limits how much of an answer is read, and so how much memory it takes.
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
BYTES_LIMIT = 128 << 10  # of one whole answer, with headers and interim answers
KEPT = 1 << 10  # bytes of the body
LONGEST_RETRY_AFTER = timedelta(hours=24)
_UNPRINTABLE = re.compile(r"[^!-~]")


class AnswerTooLong(ClientError):
    pass


class BoundedConnector(TCPConnector):
    """A connector that limits the whole answer. aiohttp limits each header, and `read_answer` the body."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        make = functools.partial(_BoundedHandler, loop=asyncio.get_running_loop())
        self._factory = make  # type: ignore[assignment]


class _BoundedHandler(ResponseHandler):
    _received = 0

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401
        self._received = 0  # a new request
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._received > BYTES_LIMIT and self.transport is not None:
            self.transport.abort()
            return
        self._received += len(data)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        limit = f"the answer is longer than {BYTES_LIMIT >> 10} KiB"
        too_long = AnswerTooLong(limit) if self._received > BYTES_LIMIT else None
        super().connection_lost(too_long or exc)


async def read_answer(response: ClientResponse, into: bytearray) -> None:
    """Read the body to its end, so that the connection can be used again, or else close the connection."""
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
    """Return the beginning of a body, as text that Postgres can store."""
    return clean_error(answer[:KEPT].decode(errors="replace"), KEPT) if answer else ""


def error_of(status: int, headers: Mapping[str, str]) -> str | None:
    """Return a description of a status, or None for 2xx. It never quotes the endpoint, which could say anything."""
    if 200 <= status < 300:
        return None
    try:
        error = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        error = f"HTTP {status}"
    if not 300 <= status < 400:
        return error
    return f"{error}: the redirect{_describe_location(headers.get('location', ''))} is not followed"


def _describe_location(location: str) -> str:
    """Return where a redirect leads, without a query, a fragment or credentials, which may be secrets."""
    shown = re.split(r"[?#]", location, maxsplit=1)[0].rpartition("@")[2]
    return f" to {_UNPRINTABLE.sub('?', shown)[:200]}" if shown else ""


def retry_after_of(text: str | None, now: datetime | None = None) -> timedelta | None:
    """Return a Retry-After of seconds or an HTTP date as a time from now, at most a day; None if it is neither."""
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
