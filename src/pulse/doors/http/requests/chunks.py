"""How much of a client's bytes is parsed at a time, and which bodies have too many chunks to be read?

h11 spends as much time on a chunk of one byte as on one of many kilobytes, and it parses everything that has arrived
before any other connection has its turn. So h11 gets the bytes in portions, and pauses after TURN events until the
other connections have had their turn. A line that is longer than a portion is refused: to search for its end after each
portion would take quadratic time.
"""

from __future__ import annotations

import h11

PORTION = 4 << 10  # bytes that are parsed at a time, and the longest line that begins a chunk
LARGEST_HEAD = 16 << 10  # bytes
TURN = 100  # events, which take half a millisecond
MAX_CHUNKS = 10_000  # of a body, plus one for each KiB of it
CHUNKS_IN_VAIN = 1_000  # of a body whose request has been answered already
TOO_MANY = f"the body has more than {MAX_CHUNKS} chunks of less than 1 KiB on average: send it in larger chunks"

Step = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class TurnedReader(h11.Connection):
    """Parses the bytes of a client, one turn at a time. If it `is_behind` after a turn, begin another turn."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, LARGEST_HEAD)
        self.is_behind = False
        self.has_too_many_chunks = False
        self._steps_left = 0
        self._unparsed = bytearray()
        self._unfinished = 0  # bytes that h11 has got since the last event
        self._rest = 0  # bytes still to come of a body with Content-Length
        self._chunks = self._size = 0  # of the current body

    @property
    def is_answered(self) -> bool:
        """Tell whether the response has begun."""
        return self.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def begin_turn(self) -> None:
        self._steps_left, self.is_behind = TURN, False

    def receive_data(self, data: bytes) -> None:
        self._unparsed += data

    def next_event(self) -> Step:
        if not self._steps_left:
            self.is_behind = True
            return h11.NEED_DATA
        event = super().next_event()
        while event is h11.NEED_DATA and self._unparsed:
            self._feed()
            event = super().next_event()
        self._steps_left -= 1
        self._note(event)
        return event

    def _feed(self) -> None:
        if self.their_state is h11.SEND_BODY and self._unfinished >= PORTION:
            raise h11.RemoteProtocolError("a line between chunks is too long")
        portion = self._unparsed[: self._rest or PORTION]
        del self._unparsed[: len(portion)]
        self._unfinished += len(portion)
        super().receive_data(bytes(portion))

    def _note(self, event: Step) -> None:
        if event is not h11.NEED_DATA:
            self._unfinished = 0
        if isinstance(event, h11.Request):
            self._chunks = self._size = 0
            self._rest = _length_of(event)
        elif isinstance(event, h11.Data):
            self._rest = max(self._rest - len(event.data), 0)
            self._count(event)

    def _count(self, event: h11.Data) -> None:
        self._chunks += event.chunk_start
        self._size += len(event.data)
        if self._chunks > (CHUNKS_IN_VAIN if self.is_answered else MAX_CHUNKS + (self._size >> 10)):
            self.has_too_many_chunks = True
            raise h11.RemoteProtocolError(TOO_MANY)


def _length_of(request: h11.Request) -> int:
    """Return the Content-Length of a request; 0 if it has none, or if its body comes in chunks.

    h11 has checked the headers.
    """
    headers = dict(request.headers)
    return 0 if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
