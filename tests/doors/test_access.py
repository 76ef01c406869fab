"""Is every method open to whom the documents say and to nobody else, by a real server, and within its limits?"""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection, reflection_pb2

from pulse.doors.access import LOCAL, NEEDS, Caller, caller
from pulse.doors.grpc.access import RULES, Access
from pulse.engine.engine import Engine
from pulse.engine.tokens import Tokens
from pulse.model.errors import Forbidden, InvalidName, JobNotFound, Unauthenticated
from pulse.model.tokens import GRANTS, Right, Scope, ScopeKind, hash_of, new_secret
from pulse.server import check_caller, open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.wire.v1 import pulse_pb2
from tests.clock import FrozenClock

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "access.md").read_text()
TOPIC = "mail"
PER_TOPIC = {Right.SUBMIT, Right.FOLLOW, Right.MANAGE, Right.WORK}
PER_TOPIC |= {Right.SET_ALARM, Right.VIEW_ALARM, Right.MANAGE_ALARM}  # or per owner
OF_ALL_TOPICS = {"/pulse.v1.Schedules/SyncSchedules"}
PATIENCE = 10

SUBMIT, WORK = "/pulse.v1.Jobs/SubmitJobs", "/pulse.v1.Work/StreamJobs"


# --- the methods there are


def _methods() -> Iterator[tuple[str, MethodDescriptor]]:
    files = (pulse_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    for service in (service for file in files for service in file.services_by_name.values()):
        for method in service.methods:
            yield f"/{service.full_name}/{method.name}", method


METHODS = dict(_methods())
OURS = {name: method for name, method in METHODS.items() if name.startswith("/pulse.")}


def test_every_method_has_exactly_one_rule() -> None:
    newer = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}  # the same under its later name

    assert set(RULES) == set(METHODS) | newer
    assert len(OURS) == len([name for name in RULES if name.startswith("/pulse.")]) > 20


class Row(NamedTuple):
    """A line of the table in the documents: `yes`, `topics`, `owners` or nothing."""

    no_token: str
    submit: str
    work: str
    alarms: str
    read: str
    operate: str
    admin: str


def _table() -> dict[str, Row]:
    lines = re.findall(r"^\| `([\w.]+/\w+)` \|(.*)\|$", PAGE, re.MULTILINE)
    return {f"/{name}": Row(*(cell.strip() for cell in cells.split("|"))) for name, cells in lines}


TABLE = _table()


def test_the_documents_have_the_methods_of_the_rules_in_their_order() -> None:
    assert list(TABLE) == list(RULES)
    assert {cell for row in TABLE.values() for cell in row} == {"yes", "topics", "owners", "all topics", ""}
    assert {name for name, row in TABLE.items() if "all topics" in row} == OF_ALL_TOPICS


# --- a server whose services do nothing but ask whether they may


async def _answer(request: Any, context: Any, *, name: str) -> Any:
    right = RULES[name]
    if right is not None:
        topic = "*" if name in OF_ALL_TOPICS else TOPIC
        check_caller(right, topic if right in PER_TOPIC else "*")
    return GetMessageClass(METHODS[name].output_type)()


def _stub(name: str) -> Any:
    method = METHODS[name]

    async def once(request: Any, context: Any) -> Any:
        return await _answer(request, context, name=name)

    async def in_a_stream(request: Any, context: Any) -> AsyncIterator[Any]:
        yield await _answer(request, context, name=name)

    read = GetMessageClass(method.input_type).FromString
    write = GetMessageClass(method.output_type).SerializeToString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(in_a_stream, read, write)
    return grpc.unary_unary_rpc_method_handler(once, read, write)


def _handlers(stubs: dict[str, Any]) -> list[grpc.GenericRpcHandler]:
    services: dict[str, dict[str, Any]] = {}
    for name, stub in stubs.items():
        _, service, method = name.split("/")
        services.setdefault(service, {})[method] = stub
    return [grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items()]


class Denied(NamedTuple):
    status: grpc.StatusCode
    message: str
    code: str


class Client:
    """Calls any method of a server by its name, as a token or as nobody."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def call(self, name: str, *headers: str) -> Denied | None:
        """None: it was let in."""
        metadata = [("authorization", header) for header in headers]
        try:
            await self.start(name, metadata)
        except grpc.aio.AioRpcError as error:
            codes = dict(error.trailing_metadata() or ())
            return Denied(error.code(), str(error.details()), str(codes.get("pulse-error")))
        return None

    async def call_as(self, secret: str, name: str) -> Denied | None:
        return await self.call(name, f"Bearer {secret}")

    async def start(self, name: str, metadata: Any) -> None:
        method = METHODS.get(name, METHODS[SUBMIT])
        request = GetMessageClass(method.input_type)()
        options = {
            "request_serializer": lambda message: message.SerializeToString(),
            "response_deserializer": GetMessageClass(method.output_type).FromString,
        }
        if method.client_streaming:
            both = self._channel.stream_stream(name, **options)(iter([request]), metadata=metadata, timeout=PATIENCE)
            await both.read()
            both.cancel()
        elif method.server_streaming:
            stream = self._channel.unary_stream(name, **options)(request, metadata=metadata, timeout=PATIENCE)
            await stream.read()
            stream.cancel()
        else:
            await self._channel.unary_unary(name, **options)(request, metadata=metadata, timeout=PATIENCE)

    def stream(self, secret: str) -> Any:
        open_stream: Any = self._channel.unary_stream(
            WORK, request_serializer=lambda message: message.SerializeToString(), response_deserializer=bytes
        )
        return open_stream(pulse_pb2.StreamJobsRequest(), metadata=[("authorization", f"Bearer {secret}")])


@asynccontextmanager
async def serving(access: Access, **more: Any) -> AsyncIterator[Client]:
    server = grpc.aio.server(interceptors=[access])
    server.add_generic_rpc_handlers(_handlers({name: _stub(name) for name in OURS} | more.get("stubs", {})))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    reflection.enable_server_reflection(["pulse.v1.Jobs"], server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Client(channel)
    finally:
        await server.stop(None)


@pytest.fixture
def tokens(engine: Engine) -> Tokens:
    return engine.tokens


@pytest.fixture
async def client(tokens: Tokens) -> AsyncIterator[Client]:
    async with serving(Access(tokens)) as client:
        yield client


# --- every method, every kind of caller


async def _denied(client: Client, *headers: str) -> dict[str, grpc.StatusCode]:
    """The methods that are refused to this caller, each with its status."""
    answers = {name: await client.call(name, *headers) for name in METHODS}
    return {name: answer.status for name, answer in answers.items() if answer is not None}


@pytest.mark.parametrize("kind", ["none", "garbage", "unknown", "expired", "revoked"])
async def test_without_a_good_token_only_open_methods_are_open(
    kind: str, client: Client, tokens: Tokens, clock: FrozenClock
) -> None:
    _, secret = await tokens.create("web", ["admin"], timedelta(minutes=1))
    if kind == "expired":
        await clock.advance(timedelta(minutes=1))
    if kind == "revoked":
        await tokens.revoke("web")
    secrets = {"garbage": "geheim\x7f…".encode().hex(), "unknown": new_secret()}
    headers = [] if kind == "none" else [f"Bearer {secrets.get(kind, secret)}"]

    denied = await _denied(client, *headers)

    closed = [name for name in METHODS if TABLE[name].no_token == ""]
    assert denied == dict.fromkeys(closed, grpc.StatusCode.UNAUTHENTICATED)
    assert 20 < len(closed) < len(METHODS)


SCOPES = ["submit", "work", "alarms", "read", "operate", "admin"]
SCOPES += ["submit:mail", "work:mail", "alarms:mail", "submit:other", "work:other", "alarms:other"]


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_opens_the_methods_that_the_documents_say(scope: str, client: Client, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", [scope])

    denied = await _denied(client, f"Bearer {secret}")

    kind, _, topic = scope.partition(":")
    is_elsewhere = topic not in {"", TOPIC}
    cells = {name: getattr(TABLE[name], kind) for name in METHODS}
    refused = {""} | ({"topics", "owners"} if is_elsewhere else set()) | ({"all topics"} if topic else set())
    closed = [name for name, cell in cells.items() if cell in refused]
    assert denied == dict.fromkeys(closed, grpc.StatusCode.PERMISSION_DENIED)


def _careless(name: str) -> Any:
    """A service that forgets to ask."""

    async def once(request: Any, context: Any) -> bytes:
        return b""

    async def in_a_stream(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b""

    if METHODS[name].server_streaming:
        return grpc.unary_stream_rpc_method_handler(in_a_stream)
    return grpc.unary_unary_rpc_method_handler(once)


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_service_that_asks_nobody_is_still_closed_to_other_scopes(scope: str, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", [scope])

    async with serving(Access(tokens), stubs={name: _careless(name) for name in OURS}) as client:
        denied = await _denied(client, f"Bearer {secret}")

    closed = [name for name in METHODS if getattr(TABLE[name], scope.partition(":")[0]) == ""]
    assert denied == dict.fromkeys(closed, grpc.StatusCode.PERMISSION_DENIED)


async def test_several_scopes_open_what_each_of_them_does(client: Client, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit:mail", "work:other", "work:mail"])

    denied = await _denied(client, f"Bearer {secret}")

    closed = {name for name, row in TABLE.items() if row.submit + row.work == "" or row.submit == "all topics"}
    assert set(denied) == closed & set(METHODS)


async def test_with_authentication_off_everything_is_open_and_the_caller_is_local() -> None:
    callers: list[Caller] = []

    async def listen(request: Any, context: Any) -> Any:
        callers.append(caller.get())
        return b""

    async with serving(Access(None), stubs={SUBMIT: grpc.unary_unary_rpc_method_handler(listen)}) as client:
        assert await _denied(client) == {}
        assert await client.call(SUBMIT, "Bearer whatever") is None

    assert callers == [LOCAL, LOCAL]
    assert (LOCAL.name, LOCAL.is_trusted, [str(scope) for scope in LOCAL.scopes]) == ("local", True, ["admin"])


async def test_a_method_without_a_rule_is_refused_even_to_administrators(tokens: Tokens) -> None:
    _, secret = await tokens.create("root", ["admin"])
    opened = {"/pulse.v1.Vault/Open": _stub(SUBMIT)}

    async with serving(Access(tokens), stubs=opened) as client:
        denied = await client.call_as(secret, "/pulse.v1.Vault/Open")
        missing = await client.call_as(secret, "/pulse.v1.Vault/Close")

    assert denied is not None
    assert (denied.status, denied.code) == (grpc.StatusCode.PERMISSION_DENIED, "forbidden")
    assert missing is not None
    assert missing.status is grpc.StatusCode.UNIMPLEMENTED


# --- what a denial says


def _documented(when: str) -> Denied:
    [cells] = re.findall(rf"^\| {when} \|(.*)\|$", PAGE, re.MULTILINE)
    status, code, message = (cell.strip() for cell in cells.split("|"))
    return Denied(grpc.StatusCode[status.strip("`")], message.replace("\\`", "`"), code.strip("`"))


async def test_a_denial_says_what_the_documents_say(client: Client, tokens: Tokens, clock: FrozenClock) -> None:
    _, other = await tokens.create("other", ["submit"], timedelta(minutes=1))

    assert await client.call(SUBMIT) == _documented("no token")
    assert await client.call(WORK) == _documented("no token")
    assert await client.call(SUBMIT, f"Basic {other}") == _documented("not one bearer token")
    assert await client.call(SUBMIT, f"Bearer {other}", f"Bearer {other}") == _documented("not one bearer token")
    for unknown in (f"Bearer {new_secret()}", "Bearer", "Bearer ", "Bearer x", f"Bearer {other} x"):
        assert await client.call(SUBMIT, unknown) == _documented("unknown")
    await clock.advance(timedelta(minutes=1))
    await tokens.revoke("other")
    assert await client.call(SUBMIT, f"bearer {other}") == _named("other", _documented("revoked"))


def _named(name: str, denied: Denied) -> Denied:
    return denied._replace(message=denied.message.replace("'web'", repr(name)))


async def test_an_expired_token_is_told_so(client: Client, tokens: Tokens, clock: FrozenClock) -> None:
    _, secret = await tokens.create("web", ["submit"], timedelta(minutes=1))
    await clock.advance(timedelta(minutes=1))

    for name in (SUBMIT, WORK):
        assert await client.call_as(secret, name) == _documented("expired")


async def test_a_missing_scope_is_named_beside_those_that_are_there(client: Client, tokens: Tokens) -> None:
    _, worker = await tokens.create("web", ["work:mail"])
    _, producer = await tokens.create("web-2", ["submit:other"])

    assert await client.call_as(worker, "/pulse.v1.Operate/ListJobs") == _documented("no scope for the method")
    denied = await client.call_as(producer, SUBMIT)
    assert denied == _named("web-2", _documented("no scope for the topic"))


async def test_what_a_stranger_sends_is_not_even_read(client: Client, tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit"])
    send: Any = client._channel.unary_unary(SUBMIT)  # bytes that are no message at all

    with pytest.raises(grpc.aio.AioRpcError) as stranger:
        await send(b"\xff" * 100, timeout=PATIENCE)
    with pytest.raises(grpc.aio.AioRpcError) as known:
        await send(b"\xff" * 100, metadata=[("authorization", f"Bearer {secret}")], timeout=PATIENCE)

    assert stranger.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert known.value.code() is not grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("scopes", "right", "topic", "words"),
    [
        (["work:mail"], Right.SUBMIT, "mail", "submit:mail, which submitting to topic 'mail' needs; it has work:mail"),
        (
            ["submit:a", "work"],
            Right.FOLLOW,
            "b",
            "submit:b or read, which following jobs of topic 'b' needs; it has submit:a, work",
        ),
        (["work:a"], Right.WORK, "b\x1b", r"work:b\\x1b, which working on topic 'b\\x1b' needs; it has work:a"),
        (["submit"], Right.ADMIN, None, "admin, which administering needs; it has submit"),
        (["submit"], Right.SET_ALARM, None, "alarms, which setting alarms needs; it has submit"),
        (["alarms:a"], Right.SET_ALARM, "b", "alarms:b, which setting alarms of owner 'b' needs; it has alarms:a"),
        (
            ["alarms:a"],
            Right.MANAGE_ALARM,
            "b",
            "alarms:b or operate, which managing alarms of owner 'b' needs; it has alarms:a",
        ),
        (["read"], Right.MANAGE, None, "submit or operate, which acting on jobs and schedules needs; it has read"),
        (["read"], Right.OPERATE, "*", "operate, which operating needs; it has read"),
        (["submit"], Right.VIEW, None, "read, which listing needs; it has submit"),
        (["work"], Right.VIEW_ALARM, "b", "alarms:b or read, which viewing alarms of owner 'b' needs; it has work"),
        ([], Right.OPERATE, None, "operate, which operating needs; it has no scope that this server knows"),
        ([f"work:{n}" for n in range(12)], Right.SUBMIT, None, "submit, which .* needs; it has .*work:9, …"),
    ],
)
def test_a_check_says_what_is_missing(scopes: list[str], right: Right, topic: str | None, words: str) -> None:
    found = Caller("web", tuple(Scope.parse(scope) for scope in scopes))

    assert not found.may(right, topic)
    with pytest.raises(Forbidden, match=f"^token 'web' lacks the scope {words}$"):
        found.check(right, topic)


def test_every_scope_that_is_named_has_the_right_and_none_with_less_has_it() -> None:
    for right, (kinds, _, _) in NEEDS.items():
        having = {kind for kind in ScopeKind if right in GRANTS[kind]}
        smallest = {kind for kind in having if not any(GRANTS[other] < GRANTS[kind] for other in having)}

        assert set(kinds) == smallest, right
    assert NEEDS.keys() == set(Right)


def test_a_worker_is_named_after_its_token() -> None:
    found = Caller("x" * 60, ())

    assert found.worker_named("host-1") == "x" * 60 + "/host-1"
    assert len(found.worker_named("w" * 139)) == 200
    for wrong in ("", "w" * 140, "a\nb"):
        with pytest.raises(InvalidName):
            found.worker_named(wrong)


async def test_a_caller_shown_in_a_log_gives_nothing_away(tokens: Tokens) -> None:
    assert "digest" not in repr(Caller("web", (), digest=b"\x01\x02"))


async def test_without_a_database_the_call_is_not_denied_but_unavailable(impatient: Settings) -> None:
    async with await Database.connect(impatient) as database:
        tokens = Tokens(database)
        _, secret = await tokens.create("web", ["submit"])
        await database.close()

        async with serving(Access(tokens)) as client:
            denied = await client.call_as(secret, SUBMIT)

    assert denied is not None
    expected = _documented("the database cannot be asked")
    assert denied[::2] == expected[::2]
    assert denied.message.startswith(expected.message.removesuffix("…"))


async def test_a_fault_of_ours_lets_nobody_in(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(secret: str) -> None:
        raise RuntimeError("a fault")

    _, secret = await tokens.create("web", ["submit"])
    monkeypatch.setattr(tokens, "find", fail)
    async with serving(Access(tokens)) as client:
        denied = await client.call_as(secret, SUBMIT)

    assert denied is not None
    assert denied.status in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


async def test_other_errors_of_a_service_keep_their_code(tokens: Tokens) -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise JobNotFound(UUID(int=7))

    _, secret = await tokens.create("web", ["submit"])
    async with serving(Access(tokens), stubs={SUBMIT: grpc.unary_unary_rpc_method_handler(fail)}) as client:
        denied = await client.call_as(secret, SUBMIT)

    assert denied is not None
    assert denied.code == "job_not_found"


# --- whose call it is


async def test_calls_side_by_side_have_each_their_own_caller(tokens: Tokens) -> None:
    seen: list[tuple[str, str]] = []
    barrier = asyncio.Barrier(8)

    async def listen(request: Any, context: Any) -> Any:
        before = caller.get().name
        await barrier.wait()
        seen.append((before, caller.get().name))
        return b""

    secrets = [(await tokens.create(f"web-{number}", ["submit"]))[1] for number in range(8)]
    async with serving(Access(tokens), stubs={SUBMIT: grpc.unary_unary_rpc_method_handler(listen)}) as client:
        assert set(await asyncio.gather(*[client.call_as(secret, SUBMIT) for secret in secrets])) == {None}

    assert sorted(seen) == [(f"web-{number}", f"web-{number}") for number in range(8)]


# --- limits


class Seconds:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def test_calls_of_a_token_are_limited_and_those_of_another_are_not(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["submit"])
    _, other = await tokens.create("other", ["submit"])
    clock = Seconds()

    async with serving(Access(tokens, calls_per_second=4, clock=clock)) as client:
        assert [await client.call_as(secret, SUBMIT) for _ in range(4)] == [None] * 4
        denied = await client.call_as(secret, SUBMIT)
        assert await client.call_as(other, SUBMIT) is None
        clock.now += 0.5
        again = [await client.call_as(secret, SUBMIT) for _ in range(3)]
        clock.now += 60
        later = [await client.call_as(secret, WORK) for _ in range(5)]

    limit = _documented("too many calls")
    limit = limit._replace(message=limit.message.replace("2,000", "4"))
    assert denied == limit
    assert again == [None, None, limit]
    statuses = [answer.status if answer else None for answer in later]
    assert statuses == [grpc.StatusCode.PERMISSION_DENIED] * 4 + [grpc.StatusCode.RESOURCE_EXHAUSTED]


async def _endless(request: Any, context: Any) -> AsyncIterator[bytes]:
    yield b"hello"
    await asyncio.Event().wait()


async def test_open_streams_of_a_token_are_limited_until_one_ends(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["work"])
    _, other = await tokens.create("other", ["work"])
    access = Access(tokens, streams=2)

    async with serving(access, stubs={WORK: grpc.unary_stream_rpc_method_handler(_endless)}) as client:
        streams = [client.stream(secret) for _ in range(2)]
        assert [await stream.read() for stream in streams] == [b"hello", b"hello"]
        third = client.stream(secret)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await third.read()
        elsewhere = client.stream(other)
        assert await elsewhere.read() == b"hello"

        streams[0].cancel()
        await _until_open(access, {"web": 1, "other": 1})
        assert await client.stream(secret).read() == b"hello"

    limit = _documented("too many streams")
    assert refused.value.code() is limit.status
    assert refused.value.details() == limit.message.replace("1,000", "2")
    await _until_open(access, {})


async def _until_open(access: Access, streams: dict[str, int]) -> None:
    async with asyncio.timeout(PATIENCE):
        while access._open != streams:
            await asyncio.sleep(0.01)


async def _flood(request: Any, context: Any) -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 100_000


async def test_streams_that_need_no_token_are_limited_together(tokens: Tokens) -> None:
    await tokens.create("web", ["work"])
    access = Access(tokens, anonymous_streams=2)

    async with serving(access) as client:
        watch: Any = client._channel.unary_stream("/grpc.health.v1.Health/Watch")
        streams = [watch(b"") for _ in range(2)]
        assert [await stream.read() for stream in streams] == [b"\x08\x01", b"\x08\x01"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await watch(b"").read()
        streams[0].cancel()
        async with asyncio.timeout(PATIENCE):
            while access._anonymous > 1:
                await asyncio.sleep(0.01)
        assert await watch(b"").read() == b"\x08\x01"

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2 streams without a token" in (refused.value.details() or "")


async def test_one_connection_has_so_many_streams_and_no_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.grpc.port.MAX_STREAMS", 2)
    listening = replace(settings, listen="127.0.0.1:0")
    async with open_server(listening) as server, grpc.aio.insecure_channel(str(server.address)) as channel:
        watch: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        streams = [watch(b"") for _ in range(2)]
        assert [await stream.read() for stream in streams] == [b"\x08\x01", b"\x08\x01"]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await watch(b"", timeout=0.5).read()
        streams[0].cancel()
        assert await watch(b"").read() == b"\x08\x01"

    assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("has_tokens", [False, True])
async def test_the_services_are_told_to_strangers_only_where_nobody_needs_a_token(
    engine: Engine, settings: Settings, has_tokens: bool
) -> None:
    if has_tokens:
        await engine.tokens.create("web", ["work"])
    listening = replace(settings, listen="127.0.0.1:0")
    async with open_server(listening) as server, grpc.aio.insecure_channel(str(server.address)) as channel:
        reflect: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        call = reflect(iter([b":\x00"]))  # list_services
        status = grpc.StatusCode.OK if await _answers(call) else await call.code()

    assert status is (grpc.StatusCode.UNIMPLEMENTED if has_tokens else grpc.StatusCode.OK)


async def _answers(call: Any) -> bool:
    try:
        return b"pulse.v1.Jobs" in await call.read()
    except grpc.aio.AioRpcError:
        return False


async def test_a_stream_cut_while_it_sends_gives_its_place_back_at_once(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["work"])
    access = Access(tokens)

    gc.disable()
    try:
        async with serving(access, stubs={WORK: grpc.unary_stream_rpc_method_handler(_flood)}) as client:
            streams = [client.stream(secret) for _ in range(5)]
            for stream in streams:
                await stream.read()
            for stream in streams:
                stream.cancel()
            await _until_open(access, {})
    finally:
        gc.enable()


async def test_a_stream_is_closed_behind_a_client_that_goes_away(tokens: Tokens) -> None:
    _, secret = await tokens.create("web", ["work"])
    closed = asyncio.Event()

    async def endless(request: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"hello"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with serving(Access(tokens), stubs={WORK: grpc.unary_stream_rpc_method_handler(endless)}) as client:
        stream = client.stream(secret)
        await stream.read()
        stream.cancel()

        async with asyncio.timeout(PATIENCE):
            await closed.wait()


async def test_local_callers_are_not_limited() -> None:
    access = Access(None, calls_per_second=1, streams=1)

    async with serving(access, stubs={WORK: grpc.unary_stream_rpc_method_handler(_endless)}) as client:
        assert [await client.stream("").read() for _ in range(3)] == [b"hello"] * 3


async def test_whoever_started_the_server_needs_no_token(tokens: Tokens) -> None:
    secret = new_secret()
    access = Access(tokens, admitted=hash_of(secret))

    assert await access.admit([f"Bearer {secret}"], Right.ADMIN, where="metadata") is LOCAL
    assert await access.still_allowed(LOCAL)
    for shown in ([], [f"Bearer {new_secret()}"], [f"Bearer {hash_of(secret).hex()}"]):
        with pytest.raises(Unauthenticated):
            await access.admit(shown, Right.FOLLOW, where="metadata")


# --- a stream that must end


async def test_whether_a_stream_may_go_on_follows_its_token(tokens: Tokens, clock: FrozenClock) -> None:
    _, secret = await tokens.create("web", ["work"])
    _, short = await tokens.create("short", ["work"], timedelta(minutes=1))
    callers: dict[str, Caller] = {}

    async def listen(request: Any, context: Any) -> AsyncIterator[bytes]:
        callers[caller.get().name] = caller.get()
        yield b"hello"

    access = Access(tokens)
    async with serving(access, stubs={WORK: grpc.unary_stream_rpc_method_handler(listen)}) as client:
        assert [await client.stream(each).read() for each in (secret, short)] == [b"hello"] * 2

    assert [await access.still_allowed(callers[name]) for name in ("web", "short")] == [True, True]
    await tokens.revoke("web")
    assert [await access.still_allowed(callers[name]) for name in ("web", "short")] == [False, True]
    await clock.advance(timedelta(minutes=1))
    tokens._refreshed_at = float("-inf")
    assert not await access.still_allowed(callers["short"])
    assert await access.still_allowed(LOCAL)
