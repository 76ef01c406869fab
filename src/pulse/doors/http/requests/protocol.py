"""How long may a connection stay open whose client does not finish its request, or does not read the response?

uvicorn closes a connection that is silent after a response, but it waits for ever for the first request, for the rest
of a head, and for a client to read. `Exchange` limits the time of a body.

This file also limits how much of the server's time a connection takes: it gets a turn, and then the others get theirs.
Once a client cannot be served, the rest of what it sends is thrown away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from pulse.doors.http.requests.chunks import TOO_MANY, TurnedReader

if TYPE_CHECKING:
    import asyncio

LINGER = 2.0  # seconds in which a client that goes on sending can still read its refusal
BYTES_IN_VAIN = 64 << 20  # bytes that are accepted of a body whose request has been answered already


class Flow(FlowControl):
    """Reads from the socket while uvicorn wants more and the parser is not behind."""

    is_held = False

    def hold(self) -> None:
        self.is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        super().resume_reading()
        if self.is_held:
            self._transport.pause_reading()


class Connection(H11Protocol):
    def __init__(self, *args: Any, deadline: float, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self.conn: TurnedReader = TurnedReader()
        self._next_turn: asyncio.Handle | None = None  # set while the parser is behind
        self._closing: asyncio.TimerHandle | None = None  # set once nothing more is read
        self._in_vain = 0  # bytes that came after the response
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._is_too_much(len(data)):
            self.transport.abort()
        elif self._closing is None:
            super().data_received(data)
            self._watch()

    def handle_events(self) -> None:
        """Handle the events of one turn, unless the next turn is scheduled already."""
        if self._next_turn is None:
            self.conn.begin_turn()
            super().handle_events()
        if self.conn.is_behind:
            self._wait_for_turn()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that cannot be read, if it has no response yet, and read no more of it."""
        if self.cycle is not None:  # the application still handles the request, but its response is not sent
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self.conn.is_answered and not self.conn.has_too_many_chunks:
            super().send_400_response(msg)
            return
        if not self.conn.is_answered:
            self._refuse(TOO_MANY)
        self._closing = self.loop.call_later(LINGER, self.transport.close)
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for handle in (self._next_turn, self._closing):
            if handle is not None:
                handle.cancel()
        self._end_watch()
        self._end_watch_of_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._end_watch_of_reader()
        super().resume_writing()

    def _wait_for_turn(self) -> None:
        self.flow.hold()
        if self._next_turn is None:
            self._next_turn = self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._next_turn = None
        if self._closing is None and not self.transport.is_closing():
            self.handle_events()
            self._watch()
        if self._next_turn is None:
            self.flow.release()

    def _is_too_much(self, size: int) -> bool:
        """Tell whether the client has sent more since its response than a client that has not read it yet would."""
        is_sending = self.conn.their_state is h11.SEND_BODY
        is_in_vain = self._closing is not None or (self.conn.is_answered and is_sending)
        self._in_vain = self._in_vain + size if is_in_vain else 0
        return self._in_vain > BYTES_IN_VAIN

    def _refuse(self, message: str) -> None:
        content = {"error": {"code": "too_many_chunks", "message": message, "details": {}}}
        headers = [("content-type", "application/json"), ("connection", "close"), ("cache-control", "no-store")]
        answer = h11.Response(status_code=400, headers=headers, reason="Bad Request")
        for event in (answer, h11.Data(data=json.dumps(content).encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

    def _watch(self) -> None:
        """Start the timer of a head at its first byte. Further bytes do not extend it."""
        if self.conn.their_state is not h11.IDLE:
            self._end_watch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._deadline, self._close)

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Close the connection without a response, since there is no complete request."""
        self._timer = None
        self.transport.close()

    def _watch_reader(self) -> None:
        """Check after the deadline that the client has read some of what is buffered, which takes memory meanwhile."""
        self._end_watch_of_reader()
        unread = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self._deadline, self._check_reader, unread)

    def _check_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._watch_reader()
        else:
            self.transport.abort()

    def _end_watch_of_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
