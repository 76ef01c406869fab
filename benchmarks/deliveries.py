"""How many alarms does one process deliver, compared with a bare aiohttp session that posts the same bytes?

Run `python -m benchmarks.deliveries [uvloop]`. The endpoint is a process of its own that does as little as possible.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import uvloop

from pulse.delivery.signing import new_secret
from pulse.delivery.wake import WakeRequest
from pulse.delivery.webhook import Deliverer
from pulse.settings import Settings

WAKES, LANES, ROUNDS = 10_000, 50, 5
BODY = (
    b'{"alarm_id":"0190b6a0-0000-7000-8000-000000000000","occurrence":"2026-11-16T09:00:00Z","label":"tea",'
    b'"owner":"agent-7","payload":{"cups":1},"attempt":1}'
)


class Endpoint(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        _, end, rest = self.received.partition(b"\r\n\r\n")
        size = len(BODY)  # all requests are equal
        if end and len(rest) >= size:
            self.received = rest[size:]
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def serve(ports: multiprocessing.Queue[int]) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def rate_of(post: Callable[[], Awaitable[None]]) -> float:
    async def lane(count: int) -> None:
        for _ in range(count):
            await post()

    await asyncio.gather(*[lane(5) for _ in range(LANES)])  # the connections
    begun = time.perf_counter()
    await asyncio.gather(*[lane(WAKES // LANES) for _ in range(LANES)])
    return WAKES / (time.perf_counter() - begun)


async def bare(url: str) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=200)) as session:

        async def post() -> None:
            async with session.post(url, data=BODY, headers={"content-type": "application/json"}) as response:
                await response.read()

        return await rate_of(post)


async def pulse(url: str) -> float:
    wake, secrets = WakeRequest("wake_1", url, BODY, {}), [new_secret()]
    async with Deliverer(Settings(alarm_networks="127.0.0.0/8")) as deliverer:

        async def post() -> None:
            found = await deliverer.deliver(wake, secrets=secrets)
            assert found.is_success, found.error

        return await rate_of(post)


def main() -> None:
    run = uvloop.run if "uvloop" in sys.argv else asyncio.run
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ports.get()}/wake"
    ratios = []
    for _ in range(ROUNDS):  # both take turns, so that other load on the machine affects both
        before, delivered, after = run(bare(url)), run(pulse(url)), run(bare(url))
        ratios.append(delivered * 2 / (before + after))
        print(f"bare {(before + after) / 2:7,.0f}/s   delivered {delivered:7,.0f}/s   {ratios[-1]:.2f}")
    print(f"median {statistics.median(ratios):.2f}")
    server.terminate()


if __name__ == "__main__":
    main()
