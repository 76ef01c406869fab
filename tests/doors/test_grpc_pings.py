"""What does it cost a server that a client pings it again and again?"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from pulse.doors.grpc.port import Port
from pulse.settings import Settings

PATIENCE = 20
SETTINGS, PING, GOAWAY, ACK = 4, 6, 7, 1
PINGS = 2_000


def frame(kind: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 0]) + payload


async def next_kind(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The kind of the next frame, and its flags."""
    head = await reader.readexactly(9)
    await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4]


async def read_answers(reader: asyncio.StreamReader, wanted: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while wanted:
            kind, flags = await next_kind(reader)
            assert kind != GOAWAY
            wanted -= (kind, flags) == (PING, ACK)


async def test_pings_are_answered_and_not_counted(settings: Settings) -> None:
    """Where gRPC counts them, it keeps four kilobytes for each that is over its limit, and then hangs up."""
    port = Port(replace(settings, listen="127.0.0.1:0"), [])
    await port.start()
    reader, writer = await asyncio.open_connection(*port.address)

    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS) + frame(PING, bytes(8)) * PINGS)
    await read_answers(reader, PINGS)
    writer.write(frame(PING, bytes(8)))
    await read_answers(reader, 1)

    writer.close()
    await port.stop(0)
