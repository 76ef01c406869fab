"""How much of what a client sends is looked through at a time, and which body is cut too finely to be read at all?

h11 spends as much on a chunk of one byte as on one of many kilobytes, and goes through all that has come before anybody
else has a turn. So it is fed by the portion, and stops after so many events until the others had theirs. A line that
goes on for longer than a portion is not waited for: to look for its end again and again costs the square of it.
"""

from __future__ import annotations

import h11

PORTION = 4 << 10  # bytes that are looked through at a time, and the longest line that begins a chunk
LARGEST_HEAD = 16 << 10  # bytes
TURN = 100  # events, which take half a millisecond
MAX_CHUNKS = 10_000  # of a body, beside one for each KiB of it
CHUNKS_IN_VAIN = 1_000  # of a body whose request is answered already
TOO_MANY = f"the body has more than {MAX_CHUNKS} chunks, and less than 1 KiB in each: send it in larger ones"

Step = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class TurnedReader(h11.Connection):
    """Reads what a client sends, a turn at a time. After a turn, begin another one if it `is_behind`."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, LARGEST_HEAD)
        self.is_behind = False
        self.is_crumbled = False  # a body with too many chunks
        self._steps_left = 0
        self._waiting = bytearray()
        self._unfinished = 0  # bytes that h11 was fed since the last event
        self._rest = 0  # bytes to come of a body whose length was said
        self._chunks = self._size = 0  # of this body

    @property
    def is_answered(self) -> bool:
        """Tell whether the answer has begun."""
        return self.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    def begin_turn(self) -> None:
        self._steps_left, self.is_behind = TURN, False

    def receive_data(self, data: bytes) -> None:
        self._waiting += data

    def next_event(self) -> Step:
        if not self._steps_left:
            self.is_behind = True
            return h11.NEED_DATA
        event = super().next_event()
        while event is h11.NEED_DATA and self._waiting:
            self._feed()
            event = super().next_event()
        self._steps_left -= 1
        self._note(event)
        return event

    def _feed(self) -> None:
        if self.their_state is h11.SEND_BODY and self._unfinished >= PORTION:
            raise h11.RemoteProtocolError("a line between chunks is too long")
        portion = self._waiting[: self._rest or PORTION]
        del self._waiting[: len(portion)]
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
            self.is_crumbled = True
            raise h11.RemoteProtocolError(TOO_MANY)


def _length_of(request: h11.Request) -> int:
    """Return the length of the body, if it was said; 0 if the body comes in chunks. h11 has checked the headers."""
    headers = dict(request.headers)
    return 0 if b"transfer-encoding" in headers else int(headers.get(b"content-length", 0))
