"""Can one request stop a server? Each input of each door gets a mebibyte of the worst kinds, and must stay cheap.

The inputs are not listed here but found: in the descriptors of gRPC, the OpenAPI document, the tables and templates of
the dashboard, the schemas of the tools, and the signatures of what parses. So whoever adds one has it tried. What is
measured is the processor's time and the memory of the serving process: a request may cost 100 ms and 50 MiB.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

import grpc
import httpx
import pytest

from pulse.settings import Settings
from tests.doors.costs import grpc_inputs, http_inputs
from tests.doors.costs.http_inputs import Request
from tests.doors.costs.parsers import parser_texts, parsers
from tests.doors.costs.watching import MAX_CPU, MAX_MEMORY, TRIES, Cost, Watched, in_quiet, watched

HEADS = ("/", "/sign-in", "/livez", "/v1/info", "/v1/jobs", "/nowhere")
KINDS = [pytest.param(False, id="worst"), pytest.param(True, id="all", marks=[pytest.mark.long, pytest.mark.slow])]
pytestmark = pytest.mark.slow  # thousands of requests of a mebibyte
GRPC_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Watched]:
    assert settings.database_url
    with watched(settings.database_url) as found:
        await warm_up(found)
        yield found


async def warm_up(server: Watched) -> None:
    """What is made once for all requests is not to be counted for the first."""
    for path in (*HEADS, "/jobs", "/zones", "/schedules/new", "/alarms/new", "/v1/openapi.json"):
        await http_inputs.send(server.ports["http"], http_inputs.request("GET", path))
    body = b'{"task":"t","payload":"' + b"a" * 100_000 + b'"}'
    await http_inputs.send(server.ports["http"], http_inputs.request("POST", "/v1/jobs", body))
    await http_inputs.send(server.ports["mcp"], http_inputs.request("POST", "/mcp", body))
    await asyncio.gather(*(ask(server) for _ in range(3)))


async def ask(server: Watched) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.ports['grpc']}", options=GRPC_OPTIONS) as channel:
        with suppress(grpc.aio.AioRpcError):
            await channel.unary_unary("/pulse.v1.Jobs/SubmitJobs")(b"\x0a" + b"a" * (1 << 20), timeout=30)  # type: ignore[arg-type]


class Bill:
    """What everything cost, and what cost too much."""

    def __init__(self, door: str) -> None:
        self._door = door
        self._inputs: Counter[str] = Counter()
        self._dearest: dict[str, tuple[float, str]] = {}
        self._too_dear: list[str] = []

    def add(self, what: str, kind: str, cost: Cost) -> None:
        self._inputs[what] += 1
        where = f"{what}, {kind}"
        for unit, value in (("ms", cost.cpu * 1_000), ("MiB", cost.memory)):
            self._dearest[unit] = max(self._dearest.get(unit, (0.0, "")), (value, where))
        assert not cost.is_endless, f"{where}: still busy after {cost.cpu:.0f} s"  # and deaf to all that follows
        if cost.is_too_much:
            self._too_dear.append(f"{where}: {cost.cpu * 1_000:.0f} ms, {cost.memory:.0f} MiB")

    def settle(self, least: int) -> None:
        """Show it, and fail if there is anything to pay. So many inputs there are at least, or they were not found."""
        dearest = "; ".join(f"{value:.0f} {unit} ({where})" for unit, (value, where) in self._dearest.items())
        print(f"\n{self._door}: {len(self._inputs)} inputs, {self._inputs.total()} requests; at most {dearest}")  # noqa: T201
        assert not self._too_dear, f"over {MAX_CPU * 1_000:.0f} ms or {MAX_MEMORY:.0f} MiB: " + "\n".join(
            self._too_dear
        )
        assert len(self._inputs) >= least


async def pay(server: Watched, port: str, bill: Bill, requests: Iterable[Request]) -> None:
    for each in requests:
        cost = await server.cost_of(http_inputs.sender(server.ports[port], each.raw))
        bill.add(each.what, each.kind, cost)


@pytest.mark.parametrize("every", KINDS)
async def test_no_grpc_request_costs_much(server: Watched, every: bool) -> None:
    bill = Bill("gRPC")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.ports['grpc']}", options=GRPC_OPTIONS) as channel:
        for given in grpc_inputs.inputs():
            for kind, raw in grpc_inputs.requests(given, every=every):
                bill.add(str(given), kind, await server.cost_of(grpc_inputs.sender(channel, given, raw)))

    bill.settle(least=120)


@pytest.mark.parametrize("every", KINDS)
async def test_no_request_of_the_api_costs_much(server: Watched, every: bool) -> None:
    bill = Bill("HTTP")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.ports['http']}") as client:
        document = (await client.get("/v1/openapi.json")).json()

    await pay(server, "http", bill, http_inputs.api_requests(document, every=every))

    bill.settle(least=120)


@pytest.mark.parametrize("every", KINDS)
async def test_no_head_of_a_request_costs_much(server: Watched, every: bool) -> None:
    bill = Bill("Heads of HTTP")

    await pay(server, "http", bill, http_inputs.head_requests(HEADS if every else ("/", "/v1/jobs")))

    bill.settle(least=30)


@pytest.mark.parametrize("every", KINDS)
async def test_no_page_and_no_form_costs_much(server: Watched, every: bool) -> None:
    bill = Bill("Dashboard")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.ports['http']}") as client:
        [word] = re.findall(r'"x-pulse-csrf": "(\w+)"', (await client.get("/")).text)

    await pay(server, "http", bill, http_inputs.page_requests(word, every=every))

    bill.settle(least=2_000 if every else 300)


@pytest.mark.parametrize("every", KINDS)
async def test_no_call_of_a_tool_costs_much(server: Watched, every: bool) -> None:
    bill = Bill("MCP")

    await pay(server, "mcp", bill, http_inputs.mcp_requests(every=every))

    bill.settle(least=25)


def test_nothing_that_reads_text_costs_much() -> None:
    bill = Bill("Parsers")
    for name, parse in parsers():
        for kind, text in parser_texts().items():
            bill.add(name, kind, cost_here(lambda: parse(text)))  # noqa: B023  called at once

    bill.settle(least=20)


def cost_here(do: Callable[[], object]) -> Cost:
    best = 1e9
    for _ in range(TRIES):
        began = time.thread_time()
        with suppress(Exception):
            do()
        best = min(best, in_quiet(time.thread_time() - began))
        if best <= MAX_CPU:
            break
    return Cost(best, 0.0)
