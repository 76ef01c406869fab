"""Are alarms the same through a server as in this process, each token's its own, and a repeated call one?"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.doors.access import LOCAL, Caller
from pulse.doors.grpc.alarms import AlarmsDoor
from pulse.doors.grpc.port import Port
from pulse.engine.alarms.use_cases import Alarms
from pulse.engine.engine import Engine
from pulse.links.link import AlarmsLink
from pulse.links.opening import open_link
from pulse.links.remote.alarms import RemoteAlarms
from pulse.links.remote.jobs import RemoteEngine
from pulse.links.remote.servers import Servers
from pulse.model.alarms import (
    Alarm,
    AlarmFilter,
    AlarmStatus,
    Delivery,
    DeliveryOutcome,
    NewAlarm,
    WakeSecret,
)
from pulse.model.errors import (
    AlarmConflict,
    AlarmExists,
    AlarmNotFound,
    Forbidden,
    InvalidAlarm,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidTarget,
    PulseError,
)
from pulse.model.tokens import Scope
from pulse.settings import Settings
from pulse.wire import convert_alarms as wire
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.doors.grpc_client import Client, connected, refused
from tests.endpoint import Endpoint, open_endpoint
from tests.served import Served

Status = grpc.StatusCode
SECOND, MINUTE, HOUR = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)
URL = "http://127.0.0.1:9/hook"
NOWHERE = uuid4()


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    return replace(
        settings,
        listen="127.0.0.1:0",
        patience=timedelta(seconds=5),
        alarm_networks="127.0.0.0/8",
    )


@pytest.fixture
async def clock(clock: FrozenClock) -> FrozenClock:
    clock.instant = NOON
    await clock.freeze()
    return clock


@asynccontextmanager
async def serving(engine: Engine, *interceptors: Any, **more: Any) -> AsyncIterator[str]:
    """The door and nothing beside it: no duty delivers what a test wants to. Answers with its address."""
    port = Port(engine.settings, [AlarmsDoor(engine, **more)], interceptors)
    await port.start()
    try:
        yield str(port.address)
    finally:
        await port.stop(0)


@asynccontextmanager
async def remotely(engine: Engine, *interceptors: Any, **more: Any) -> AsyncIterator[RemoteAlarms]:
    async with (
        serving(engine, *interceptors, **more) as address,
        Servers(replace(engine.settings, server_url=f"grpc://{address}")) as servers,
    ):
        yield RemoteEngine(servers).alarms


@pytest.fixture(params=["in this process", "through a server"])
async def alarms(request: pytest.FixtureRequest, engine: Engine, clock: FrozenClock) -> AsyncIterator[AlarmsLink]:
    if request.param == "in this process":
        yield engine.alarms
    else:
        async with remotely(engine) as alarms:
            yield alarms


@pytest.fixture
async def client(engine: Engine, clock: FrozenClock) -> AsyncIterator[Client]:
    async with serving(engine) as address, connected(address) as client:
        yield client


@pytest.fixture
async def engine(engine: Engine) -> AsyncIterator[Engine]:
    yield engine
    await engine.duties.deliveries.stop(0)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint() as endpoint:
        yield endpoint


def an_alarm(**given: Any) -> NewAlarm:
    if not {"delay", "fire_at", "cron"} & given.keys():
        given["delay"] = HOUR
    return NewAlarm(**{"url": URL} | given)


async def deliver(engine: Engine) -> None:
    """All that is due, to the end."""
    wakes = engine.duties.deliveries
    while not await wakes.step():
        pass
    while wakes._in_flight or wakes.records.finished:
        if wakes._in_flight:
            await asyncio.wait(list(wakes._in_flight))
        await wakes.records.record()


KINDS: dict[str, dict[str, Any]] = {
    "delay": {"delay": timedelta(seconds=90, microseconds=1)},
    "a long delay": {"delay": timedelta(days=3649, microseconds=999_999)},
    "instant": {"fire_at": datetime.fromisoformat("2026-12-31T18:00:00.123456+01:00")},
    "cron": {"cron": "30 2 * * 1-5", "tz": "Europe/Berlin"},
    "@every": {"cron": "@every 90s"},
    "all there is": {
        "owner": "größe / 1",
        "name": "trial ends: 42",
        "label": "Tee & Kuchen",
        "payload": '{"ü": [1, 2.5, null, "x"]}',
        "headers": {"x-team": "billing", "authorization": "Bearer geheim"},
        "max_failures": 0,
        "idempotency_key": "k1",
        "delay": SECOND,
    },
}


# --- what is set is what is there


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_set_is_what_is_there(alarms: AlarmsLink, engine: Engine, kind: str) -> None:
    new = an_alarm(**KINDS[kind])

    done = await alarms.set(new)

    there = await engine.alarms.get(done.alarm.id)
    assert done.is_new
    assert done.alarm == there == await alarms.get(there.id)
    for field in ("owner", "name", "label", "cron", "tz", "url", "idempotency_key", "kind"):
        assert getattr(there, field) == getattr(new, field), field
    assert msgspec.json.decode(there.payload) == msgspec.json.decode(new.payload)
    assert there.max_failures == (5 if new.max_failures is None else new.max_failures)
    assert there.occurrence == new.first_after(NOON)
    assert "geheim" not in str(done.alarm)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_for_survives_the_wire(kind: str) -> None:
    new, own_id = an_alarm(**KINDS[kind]), uuid4()

    message = pb.SetAlarmRequest.FromString(wire.write_new_alarm(new, own_id).SerializeToString())

    assert wire.read_new_alarm(message, new.owner) == new
    assert message.id == str(own_id)
    assert message.owner == ("" if new.owner == "local" else new.owner)


def test_everything_about_an_alarm_survives_the_wire() -> None:
    """Every field, with a value that is no default."""
    full = Alarm(
        id=uuid4(),
        owner="o",
        name="n",
        label="l",
        status=AlarmStatus.CANCELLED,
        kind="cron",
        cron="@daily",
        tz="Mars/Base",
        payload='{"a": 1}',
        url=URL,
        headers={"a": "b"},
        max_failures=3,
        idempotency_key="k",
        revision=7,
        occurrence=NOON,
        next_fire_at=NOON + SECOND,
        last_fired_at=NOON - SECOND,
        failure_count=2,
        last_error="e",
        paused_at=NOON + MINUTE,
        is_ringing=True,
        created_at=NOON - HOUR,
        updated_at=NOON + HOUR,
    )
    bare = msgspec.structs.replace(
        full,
        **dict.fromkeys(["name", "cron", "url", "idempotency_key", "next_fire_at", "last_fired_at", "last_error"]),
        paused_at=None,
        is_ringing=False,
        headers={},
        label="",
    )
    for alarm in (full, bare, *(msgspec.structs.replace(full, status=status) for status in AlarmStatus)):
        assert wire.read_alarm(pb.Alarm.FromString(wire.write_alarm(alarm).SerializeToString())) == alarm


@pytest.mark.parametrize("outcome", DeliveryOutcome)
def test_everything_about_a_delivery_survives_the_wire(outcome: DeliveryOutcome) -> None:
    full = Delivery(
        occurrence=NOON,
        attempt=3,
        outcome=outcome,
        started_at=NOON + SECOND,
        duration=timedelta(microseconds=1),
        status=503,
        error="e",
        answer="a",
        note="n",
    )
    for delivery in (full, msgspec.structs.replace(full, status=None, error=None, note=None, answer="")):
        assert wire.read_delivery(pb.Delivery.FromString(wire.write_delivery(delivery).SerializeToString())) == delivery


@pytest.mark.parametrize(
    "wanted",
    [
        AlarmFilter(),
        AlarmFilter(owner="o", status=AlarmStatus.FAILED, paused=True, label="l"),
        AlarmFilter(paused=False, label=""),
    ],
)
def test_filters_survive_the_wire(wanted: AlarmFilter) -> None:
    assert wire.read_alarm_filter(wire.write_alarm_filter(wanted)) == wanted


def test_the_link_has_the_words_of_the_engine() -> None:
    for name, method in inspect.getmembers(AlarmsLink, inspect.isfunction):
        if name.startswith("_"):
            continue
        wanted = list(inspect.signature(getattr(Alarms, name)).parameters.values())
        for kind in (RemoteAlarms, AlarmsLink):
            assert list(inspect.signature(getattr(kind, name)).parameters) == [each.name for each in wanted], name
        assert inspect.signature(getattr(RemoteAlarms, name)) == inspect.signature(getattr(Alarms, name))
        assert inspect.iscoroutinefunction(method)


async def test_an_alarm_is_found_by_its_name_and_by_its_id(alarms: AlarmsLink) -> None:
    made = (await alarms.set(an_alarm(name="trial ends / 42"))).alarm

    found = [await alarms.get(key) for key in (made.name or "", made.id, str(made.id), str(made.id).upper())]

    assert found == [made] * 4
    assert await alarms.get("trial ends / 42", owner="local") == made
    with pytest.raises(AlarmNotFound):
        await alarms.get(made.id, owner="bob")
    with pytest.raises(AlarmNotFound):
        await alarms.get("trial ends / 42", owner="bob")


async def test_a_name_is_replaced_and_a_key_is_kept(alarms: AlarmsLink) -> None:
    first = (await alarms.set(an_alarm(name="n"))).alarm
    second = await alarms.set(an_alarm(name="n", delay=MINUTE))
    keyed = await alarms.set(an_alarm(idempotency_key="k", fire_at=NOON + HOUR))
    again = await alarms.set(an_alarm(idempotency_key="k", fire_at=NOON + HOUR))

    assert (second.alarm.id, second.alarm.revision, second.is_new) == (first.id, 2, True)
    assert (again.alarm, again.is_new) == (keyed.alarm, False)
    with pytest.raises(AlarmExists, match="'k' was already used for another alarm"):
        await alarms.set(an_alarm(idempotency_key="k"))


# --- its life


async def test_an_alarm_is_paused_resumed_fired_and_cancelled(alarms: AlarmsLink, engine: Engine) -> None:
    made = (await alarms.set(an_alarm(name="n", cron="@hourly"))).alarm

    paused = await alarms.pause("n")
    assert (paused.paused_at, paused) == (NOON, await engine.alarms.get("n"))
    assert (await alarms.resume(made.id)).paused_at is None
    assert (await alarms.fire("n")).next_fire_at == NOON
    cancelled = await alarms.cancel("n")
    assert cancelled.status is AlarmStatus.CANCELLED
    assert await alarms.cancel(made.id) == cancelled
    for deed in (alarms.pause, alarms.fire):
        with pytest.raises(AlarmConflict):
            await deed("n")


async def test_what_came_of_each_wake_is_told(
    alarms: AlarmsLink, engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    made = (await alarms.set(an_alarm(name="n", url=endpoint.url, payload='{"a": 1}', delay=MINUTE))).alarm
    for status in (503, 503, 200):
        endpoint.status = status
        await clock.advance(2 * MINUTE)
        await deliver(engine)

    page = await alarms.deliveries("n", limit=2)
    rest = await alarms.deliveries(made.id, after=page.next, limit=2)

    told = [*page.deliveries, *rest.deliveries]
    assert told == (await engine.alarms.deliveries(made.id)).deliveries
    assert [(each.outcome, each.status, each.attempt) for each in told] == [
        (DeliveryOutcome.DELIVERED, 200, 3),
        (DeliveryOutcome.FAILED, 503, 2),
        (DeliveryOutcome.FAILED, 503, 1),
    ]
    assert rest.next is None
    assert [call.body["payload"] for call in endpoint.calls] == [{"a": 1}] * 3
    assert (await alarms.get("n")).status is AlarmStatus.FIRED


async def test_lists_are_filtered_and_come_in_pages(alarms: AlarmsLink) -> None:
    made = [(await alarms.set(an_alarm(owner=f"o{number % 2}", label=f"l{number}"))).alarm for number in range(5)]
    await alarms.pause(made[1].id)
    await alarms.cancel(made[2].id)

    async def labels(**wanted: Any) -> list[str]:
        return [each.label for each in (await alarms.list_page(AlarmFilter(**wanted))).alarms]

    assert await labels() == ["l4", "l3", "l2", "l1", "l0"]
    assert await labels(owner="o0") == ["l4", "l2", "l0"]
    assert await labels(status=AlarmStatus.CANCELLED) == ["l2"]
    assert await labels(paused=True) == ["l1"]
    assert await labels(paused=False, owner="o1") == ["l3"]
    assert await labels(label="l3") == ["l3"]
    first = await alarms.list_page(limit=3)
    second = await alarms.list_page(after=first.next, limit=3)
    assert [each.label for each in (*first.alarms, *second.alarms)] == ["l4", "l3", "l2", "l1", "l0"]
    assert second.next is None


async def test_a_page_that_would_not_fit_is_cut_short(engine: Engine, clock: FrozenClock) -> None:
    payload = msgspec.json.encode("x" * 60_000).decode()
    for _ in range(80):
        await engine.alarms.set(an_alarm(payload=payload))
    engine.settings = replace(engine.settings, message_limit=4 << 20)

    async with remotely(engine) as alarms:
        found: list[Alarm] = []
        after: str | None = None
        pages = 0
        while pages == 0 or after:
            page = await alarms.list_page(after=after, limit=500)
            found, after, pages = found + page.alarms, page.next, pages + 1

    assert len({alarm.id for alarm in found}) == len(found) == 80
    assert pages > 2


async def test_secrets_are_told_and_rotated(alarms: AlarmsLink, engine: Engine, clock: FrozenClock) -> None:
    [before, *_] = await alarms.secrets()

    rotated = await alarms.rotate_secret(overlap=HOUR)
    other = await alarms.rotate_secret()

    assert rotated[0].secret != before.secret
    assert rotated[1] == WakeSecret(secret=before.secret, created_at=before.created_at, expires_at=NOON + HOUR)
    assert other[1].expires_at == NOON + timedelta(days=1)
    assert other == await engine.alarms.secrets() == await alarms.secrets()
    [only] = await alarms.rotate_secret(overlap=timedelta())
    assert only.expires_at is None
    with pytest.raises(InvalidOption, match="overlap"):
        await alarms.rotate_secret(overlap=-HOUR)


# --- what is refused, alike on both ways

WRONG: dict[str, tuple[Callable[[AlarmsLink], Any], type[PulseError]]] = {
    "an unknown id": (lambda on: on.get(NOWHERE), AlarmNotFound),
    "an unknown name": (lambda on: on.pause("nobody"), AlarmNotFound),
    "an empty name": (lambda on: on.get(""), InvalidName),
    "a name of the wrong kind": (lambda on: on.get(7), InvalidName),  # type: ignore[arg-type]
    "an empty owner": (lambda on: on.get("n", owner=""), InvalidName),
    "no page": (lambda on: on.list_page(limit=0), InvalidOption),
    "too large a page": (lambda on: on.list_page(limit=501), InvalidOption),
    "a page that is none": (lambda on: on.list_page(after="x"), InvalidFilter),
    "no deliveries": (lambda on: on.deliveries("n", limit=0), InvalidOption),
    "deliveries of nobody": (lambda on: on.deliveries(NOWHERE), AlarmNotFound),
    "the past": (lambda on: on.set(an_alarm(fire_at=NOON)), InvalidAlarm),
    "a private address": (lambda on: on.set(an_alarm(url="https://10.0.0.1/")), InvalidTarget),
    "no url": (lambda on: on.set(NewAlarm(delay=HOUR)), InvalidAlarm),
    "a header of ours": (lambda on: on.set(an_alarm(headers={"webhook-id": "x"})), InvalidInput),
    "headers of the wrong kind": (lambda on: on.set(an_alarm(headers={"a": 7})), InvalidInput),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_mistake_is_the_same_error_on_either_way(alarms: AlarmsLink, engine: Engine, what: str) -> None:
    call, kind = WRONG[what]

    with pytest.raises(PulseError) as caught:
        await call(alarms)

    assert type(caught.value) is kind or isinstance(caught.value, kind)
    assert (await engine.alarms.list_page()).alarms == []


def ask(**given: Any) -> tuple[str, pb.SetAlarmRequest]:
    if not {"delay_seconds", "fire_at", "cron_expr"} & given.keys():
        given["delay_seconds"] = 60
    return "SetAlarm", pb.SetAlarmRequest(**{"url": URL} | given)


BAD: dict[str, tuple[tuple[str, Any], grpc.StatusCode, str]] = {
    "nothing": (("SetAlarm", pb.SetAlarmRequest()), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "both": (ask(delay_seconds=1, fire_at=Timestamp(seconds=1)), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "cron and a delay": (ask(cron_expr="@daily", delay_seconds=1), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "a bad cron": (ask(cron_expr="61 * * * *"), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "a bad zone": (ask(cron_expr="@daily", tz="Mars/Base"), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "no future": (ask(cron_expr="0 0 31 2 *"), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "the past": (ask(fire_at=Timestamp(seconds=1)), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "an absurd instant": (ask(fire_at=Timestamp(seconds=1 << 62)), Status.INVALID_ARGUMENT, "invalid_option"),
    "a delay backwards": (ask(delay_seconds=-1), Status.INVALID_ARGUMENT, "invalid_option"),
    "a delay of no number": (ask(delay_seconds=float("nan")), Status.INVALID_ARGUMENT, "invalid_option"),
    "an endless delay": (ask(delay_seconds=float("inf")), Status.INVALID_ARGUMENT, "invalid_option"),
    "no JSON": (ask(payload="{"), Status.INVALID_ARGUMENT, "invalid_payload"),
    "too much": (ask(payload=f'"{"x" * 65_536}"'), Status.INVALID_ARGUMENT, "invalid_payload"),
    "NUL in a payload": (ask(payload='"\\u0000"'), Status.INVALID_ARGUMENT, "invalid_payload"),
    "NUL in a name": (ask(name="\x00"), Status.INVALID_ARGUMENT, "invalid_name"),
    "NUL in an owner": (ask(owner="\x00"), Status.INVALID_ARGUMENT, "invalid_name"),
    "NUL in a label": (ask(label="\x00"), Status.INVALID_ARGUMENT, "invalid_option"),
    "NUL in a key": (ask(idempotency_key="\x00"), Status.INVALID_ARGUMENT, "invalid_option"),
    "a name that is an id": (ask(name=str(NOWHERE)), Status.INVALID_ARGUMENT, "invalid_name"),
    "an id that is none": (ask(id="7"), Status.INVALID_ARGUMENT, "invalid_option"),
    "too many failures": (ask(max_failures=101), Status.INVALID_ARGUMENT, "invalid_option"),
    "no url at all": (ask(url=""), Status.INVALID_ARGUMENT, "invalid_alarm"),
    "a file": (ask(url="file:///etc/passwd"), Status.INVALID_ARGUMENT, "invalid_target"),
    "an address of the cloud": (ask(url="http://169.254.169.254/"), Status.INVALID_ARGUMENT, "invalid_target"),
    "too many headers": (
        ask(headers={f"x-{number}": "" for number in range(33)}),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "a header that ends": (ask(headers={"a": "b\r\nc: d"}), Status.INVALID_ARGUMENT, "invalid_option"),
    "a key of another": (ask(idempotency_key="taken"), Status.ALREADY_EXISTS, "alarm_exists"),
    "get nothing": (("GetAlarm", pb.GetAlarmRequest()), Status.INVALID_ARGUMENT, "invalid_name"),
    "get nobody": (("GetAlarm", pb.GetAlarmRequest(name="x")), Status.NOT_FOUND, "alarm_not_found"),
    "get with a NUL": (("GetAlarm", pb.GetAlarmRequest(name="\x00")), Status.INVALID_ARGUMENT, "invalid_name"),
    "cancel what is over": (
        ("CancelAlarm", pb.CancelAlarmRequest(name="over")),
        Status.FAILED_PRECONDITION,
        "alarm_conflict",
    ),
    "list an unknown status": (
        ("ListAlarms", pb.ListAlarmsRequest(filter=pb.AlarmFilter(status=9))),  # type: ignore[arg-type]
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "list with a NUL": (
        ("ListAlarms", pb.ListAlarmsRequest(filter=pb.AlarmFilter(owner="\x00"))),
        Status.INVALID_ARGUMENT,
        "invalid_name",
    ),
    "list for a label with a NUL": (
        ("ListAlarms", pb.ListAlarmsRequest(filter=pb.AlarmFilter(label="\x00"))),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "an absurd page": (
        ("ListAlarms", pb.ListAlarmsRequest(limit=(1 << 32) - 1)),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "a cursor that is none": (
        ("ListAlarms", pb.ListAlarmsRequest(after="x")),
        Status.INVALID_ARGUMENT,
        "invalid_filter",
    ),
    "deliveries after what is none": (
        ("ListDeliveries", pb.ListDeliveriesRequest(name="over", after="-1")),
        Status.INVALID_ARGUMENT,
        "invalid_filter",
    ),
    "an absurd overlap": (
        ("RotateWakeSecret", pb.RotateWakeSecretRequest(overlap=Duration(seconds=1 << 62))),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_message_is_refused_with_a_code_and_changes_nothing(
    client: Client, engine: Engine, endpoint: Endpoint, clock: FrozenClock, what: str
) -> None:
    (method, request), status, code = BAD[what]
    await engine.alarms.set(an_alarm(idempotency_key="taken", fire_at=NOON + HOUR))
    await engine.alarms.set(an_alarm(name="over", url=endpoint.url, delay=SECOND))
    await clock.advance(MINUTE)
    await deliver(engine)
    before = (await engine.alarms.list_page()).alarms, await engine.alarms.secrets()

    answer = await refused(getattr(client.alarms, method)(request))

    assert (answer.status, answer.code) == (status, code)
    assert answer.message
    assert ((await engine.alarms.list_page()).alarms, await engine.alarms.secrets()) == before


async def test_what_is_left_out_has_its_default(client: Client, engine: Engine) -> None:
    answer = await client.alarms.SetAlarm(ask()[1])

    made = await engine.alarms.get(UUID(answer.alarm.id))
    assert answer.created
    assert (made.owner, made.name, made.payload, made.tz, made.max_failures) == ("local", None, "null", "UTC", 5)


# --- whose


def a_caller(name: str, *scopes: str) -> Caller:
    return Caller(name, tuple(Scope.parse(scope) for scope in scopes))


@pytest.mark.parametrize(
    ("caller", "owner"),
    [
        (LOCAL, "local"),
        (a_caller("web", "alarms:ada"), "ada"),
        (a_caller("web", "alarms"), "web"),
        (a_caller("web", "admin"), "web"),
        (a_caller("web", "alarms", "alarms:ada"), "ada"),
        (a_caller("web", "work:x", "alarms:ada", "submit"), "ada"),
    ],
)
async def test_without_an_owner_it_is_the_callers_own(
    engine: Engine, clock: FrozenClock, caller: Caller, owner: str
) -> None:
    async with remotely(engine, caller=lambda: caller) as alarms:
        made = (await alarms.set(an_alarm(name="n"))).alarm

        assert made.owner == owner
        assert await alarms.get("n") == await alarms.get("n", owner=owner) == await alarms.get(made.id) == made
        assert [each.id for each in (await alarms.list_page()).alarms] == [made.id]


async def test_who_has_several_owners_has_to_say_which(engine: Engine, clock: FrozenClock) -> None:
    async with remotely(engine, caller=lambda: a_caller("web", "alarms:ada", "alarms:bob")) as alarms:
        with pytest.raises(Forbidden, match=r"lacks the scope alarms:web, .*; it has alarms:ada, alarms:bob"):
            await alarms.set(an_alarm())
        with pytest.raises(Forbidden, match="viewing alarms of owner 'web'"):
            await alarms.list_page()
        made = (await alarms.set(an_alarm(owner="bob", name="n"))).alarm
        assert (await alarms.list_page(AlarmFilter(owner="bob"))).alarms == [made]
        assert await alarms.get("n", owner="bob") == await alarms.get(made.id) == made
        with pytest.raises(AlarmNotFound):
            await alarms.get("n")


DEEDS = ("get", "cancel", "pause", "resume", "fire", "deliveries")
# By scope, for ada's alarm: may one set it, and may one tend it?
REACH = {
    "alarms": (True, True),
    "alarms:ada": (True, True),
    "alarms:bob": (False, False),
    "operate": (False, True),
    "admin": (True, True),
    "submit": (False, False),
    "work": (False, False),
}


@pytest.mark.parametrize("scope", REACH)
async def test_each_scope_reaches_the_owners_it_names_and_no_others(
    engine: Engine, clock: FrozenClock, scope: str
) -> None:
    hers = (await engine.alarms.set(an_alarm(owner="ada", name="hers", cron="@hourly"))).alarm
    may_set, may_tend = REACH[scope]

    async with remotely(engine, caller=lambda: a_caller("web", scope)) as alarms:
        if may_set:
            assert (await alarms.set(an_alarm(owner="ada"))).alarm.owner == "ada"
        else:
            with pytest.raises(Forbidden):
                await alarms.set(an_alarm(owner="ada"))
        if may_tend:
            assert hers.id in {each.id for each in (await alarms.list_page(AlarmFilter(owner="ada"))).alarms}
            for key, owner in ((hers.id, None), ("hers", "ada"), (hers.id, "ada")):
                assert await alarms.get(key, owner=owner) == hers
            return
        with pytest.raises(Forbidden):
            await alarms.list_page(AlarmFilter(owner="ada"))
        for deed in DEEDS:
            for key, owner in ((hers.id, None), (hers.id, "ada"), ("hers", "ada"), ("hers", None)):
                with pytest.raises(AlarmNotFound) as caught:
                    await getattr(alarms, deed)(key, owner=owner)
                assert str(caught.value) == str(AlarmNotFound(key)), "as if it were not there"

    assert await engine.alarms.get(hers.id) == hers


async def test_a_stranger_cannot_take_an_id_to_see_what_is_behind_it(engine: Engine, clock: FrozenClock) -> None:
    hers = (await engine.alarms.set(an_alarm(owner="ada", payload='"hers"'))).alarm

    async with remotely(engine, caller=lambda: a_caller("bob", "alarms:bob")) as alarms:
        with pytest.raises(InvalidOption, match="must be new for each alarm"):
            await alarms.set(an_alarm(), own_id=hers.id)


@pytest.fixture
def servers(settings: Settings) -> Iterator[Served]:
    found = Served(settings)
    yield found
    found.stop()


async def test_tokens_have_alarms_of_their_own(engine: Engine, servers: Served) -> None:
    """Through whole servers, with the door, the rules and the tokens as they are."""
    scopes = {"shop": "alarms:shop", "agent": "alarms:agent", "ops": "operate", "root": "admin", "web": "submit"}
    secrets = {name: (await engine.tokens.create(f"t-{name}", [scope]))[1] for name, scope in scopes.items()}
    through = servers.start()

    @asynccontextmanager
    async def as_token(name: str) -> AsyncIterator[AlarmsLink]:
        async with open_link(replace(through, token=secrets[name])) as link:
            yield link.alarms

    async with as_token("shop") as shop, as_token("agent") as agent, as_token("ops") as ops, as_token("root") as root:
        hers = (await shop.set(an_alarm(name="n"))).alarm
        its = (await agent.set(an_alarm(name="n"))).alarm
        assert (hers.owner, its.owner) == ("shop", "agent")
        assert (await shop.list_page()).alarms == [hers]
        assert (await agent.list_page()).alarms == [its]
        for alarms in (ops, root):
            assert [each.id for each in (await alarms.list_page()).alarms] == [its.id, hers.id]
        with pytest.raises(AlarmNotFound):
            await agent.cancel(hers.id)
        with pytest.raises(Forbidden):
            await agent.set(an_alarm(owner="shop"))
        with pytest.raises(Forbidden, match="lacks the scope alarms, which setting alarms needs; it has operate"):
            await ops.set(an_alarm())
        assert (await ops.cancel("n", owner="shop")).status is AlarmStatus.CANCELLED
        for alarms in (shop, agent, ops):
            with pytest.raises(Forbidden, match=r"lacks the scope (admin|alarms), "):
                await alarms.rotate_secret()
        for alarms, owner in ((agent, "shop"), (ops, "shop"), (shop, "agent")):
            with pytest.raises(Forbidden, match="lacks the scope alarms"):
                await alarms.secrets(owner)
            with pytest.raises(Forbidden, match="lacks the scope alarms"):
                await alarms.rotate_secret(owner=owner)
        assert await shop.secrets() == await root.secrets("shop") == await engine.alarms.secrets("shop")
        assert await agent.secrets() == await engine.alarms.secrets("agent") != await shop.secrets()
        [new, old] = await shop.rotate_secret(owner="shop")
        assert [old.secret] != [new.secret] == [each.secret for each in await shop.secrets()][:1]
        assert len(await agent.secrets()) == 1
    async with as_token("web") as web:
        with pytest.raises(Forbidden, match=r"lacks the scope alarms or read, .*; it has submit"):
            await web.get(hers.id)


# --- answers that are lost


class Losing(grpc.aio.ServerInterceptor):
    """Does what the first call of a method asks, and then tells nobody."""

    def __init__(self, method: str, meanwhile: Any = None) -> None:
        self._method = f"/pulse.v1.Alarms/{method}"
        self._meanwhile = meanwhile
        self.lost = 0

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if details.method != self._method or self.lost:
            return handler
        self.lost += 1

        async def lose(request: Any, context: Any) -> None:
            await handler.unary_unary(request, context)
            if self._meanwhile is not None:
                await self._meanwhile()
            await context.abort(Status.UNAVAILABLE, "the line was cut")

        return grpc.unary_unary_rpc_method_handler(lose, handler.request_deserializer, handler.response_serializer)


@pytest.mark.parametrize("name", [None, "n"])
@pytest.mark.parametrize("is_replacing", [False, True])
@pytest.mark.parametrize("when", [{"delay": MINUTE}, {"fire_at": NOON + MINUTE}])
async def test_an_alarm_whose_answer_is_lost_is_set_and_delivered_once(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, name: str | None, is_replacing: bool, when: Any
) -> None:
    """Even if it was delivered before the call is repeated."""
    if is_replacing:
        await engine.alarms.set(an_alarm(name=name or "n"))
    before = len((await engine.alarms.list_page()).alarms)

    async def meanwhile() -> None:
        await clock.advance(HOUR / 2)
        await deliver(engine)

    losing = Losing("SetAlarm", meanwhile)
    async with remotely(engine, losing) as alarms:
        done = await alarms.set(an_alarm(name=name, url=endpoint.url, **when))
        await deliver(engine)

    assert losing.lost == 1
    assert (done.is_new, done.alarm.status) == (True, AlarmStatus.FIRED)
    assert len((await engine.alarms.list_page()).alarms) == before + (not (is_replacing and name))
    assert len(endpoint.calls) == 1


REPEATED: dict[str, Callable[[AlarmsLink], Any]] = {
    "CancelAlarm": lambda on: on.cancel("n"),
    "PauseAlarm": lambda on: on.pause("n"),
    "ResumeAlarm": lambda on: on.resume("n"),
    "FireAlarm": lambda on: on.fire("n"),
}


@pytest.mark.parametrize("method", REPEATED)
async def test_a_call_whose_answer_is_lost_is_repeated_without_harm(
    engine: Engine, clock: FrozenClock, method: str
) -> None:
    await engine.alarms.set(an_alarm(name="n", cron="@hourly"))
    losing = Losing(method)

    async with remotely(engine, losing) as alarms:
        answer = await REPEATED[method](alarms)

    assert losing.lost == 1
    assert answer == await engine.alarms.get("n")


async def test_a_direct_link_has_the_alarms_of_its_engine(settings: Settings) -> None:
    async with open_link(settings) as link:
        assert isinstance(link.alarms, Alarms)
