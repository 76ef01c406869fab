"""Do arguments survive the way through JSON, and is a wrong call refused where it is made?"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from pulse.model.errors import InvalidArguments, InvalidPayload, InvalidResult, InvalidTask
from pulse.model.redaction import Redaction
from pulse.sdk import arguments
from pulse.sdk.arguments import Arguments, Result


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Item(msgspec.Struct):
    name: str
    price: Decimal


class Address(pydantic.BaseModel):
    street: str
    number: int


@dataclass
class Weight:
    grams: float


class Length(pydantic.BaseModel):
    metres: float


def made(function: Callable[..., Any]) -> Arguments:
    return Arguments("shop.task", function, takes_context=False)


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    parameters = made(function)
    given, named = parameters.unpack(parameters.pack(args, kwargs))
    return function(*given, **named)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 3),
        (float, 1.5),
        (bool, True),
        (str, "ä\u2028"),
        (bytes, b"\x00\xff"),
        (datetime, datetime(2030, 1, 31, 9, tzinfo=UTC)),
        (date, date(2030, 1, 31)),
        (timedelta, timedelta(minutes=5)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("19.99")),
        (Color, Color.RED),
        (Point, Point(1, 2)),
        (Item, Item("tea", Decimal("2.50"))),
        (Address, Address(street="Hill", number=3)),
        (list[Address], [Address(street="Hill", number=3)]),
        (dict[str, Point], {"a": Point(1)}),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (int | None, None),
        (Any, {"deep": [1, None, {"x": "y"}]}),
    ],
    ids=str,
)
def test_an_argument_comes_back_as_its_annotation_says(kind: Any, value: Any) -> None:
    def task(value: Any) -> Any:
        return value

    task.__annotations__ = {"value": kind}

    found = round_trip(task, value)

    assert found == value
    assert type(found) is type(value)


def test_every_way_to_take_arguments_works() -> None:
    def task(a: int, b: int = 2, /, c: int = 3, *rest: int, d: int = 4, **more: int) -> Any:
        return a, b, c, rest, d, more

    assert round_trip(task, 1) == (1, 2, 3, (), 4, {})
    assert round_trip(task, 1, 5, 6, 7, 8, d=9, e=10) == (1, 5, 6, (7, 8), 9, {"e": 10})


def test_a_payload_is_an_object_that_other_languages_can_write() -> None:
    def task(order_id: UUID, *, to: str = "nobody") -> Any:
        return order_id, to

    assert made(task).pack((UUID(int=7),), {"to": "a@b.c"}) == (
        '{"order_id":"00000000-0000-0000-0000-000000000007","to":"a@b.c"}'
    )
    assert made(task).unpack('{"order_id": "00000000-0000-0000-0000-000000000007"}') == ((), {"order_id": UUID(int=7)})


def test_a_default_is_the_functions_and_is_not_written_down() -> None:
    def task(n: int = 1, when: datetime | None = None) -> Any:
        return n, when

    assert made(task).pack((), {}) == "{}"
    assert round_trip(task) == (1, None)


def test_a_context_without_its_annotation_is_told_how_to_be_given_one() -> None:
    def plain(ctx, x: int) -> None: ...  # type: ignore[no-untyped-def]
    def spread(context, x: int, *rest: int) -> None: ...  # type: ignore[no-untyped-def]
    def annotated(ctx: int, x: int) -> None: ...

    missing = r"missing a required argument: 'x'"
    with pytest.raises(InvalidArguments, match=f"{missing}; to be given the context, write `ctx: Context`$"):
        made(plain).pack((1,), {})
    with pytest.raises(InvalidArguments, match=f"{missing}; it takes .*; to be given .*, write `context: Context`$"):
        made(spread).pack((1,), {})
    with pytest.raises(InvalidArguments, match=f"{missing}$"):
        made(annotated).pack((1,), {})
    with pytest.raises(InvalidArguments, match=r"int.*str"):
        made(plain).pack((1, "a"), {})


def place(order_id: int, *, to: str, address: Address | None = None) -> None:
    """Something to call wrongly."""


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {"to": "x"}, "missing a required argument: 'order_id'"),
        ((1,), {}, "missing a required argument: 'to'"),
        ((1, 2), {"to": "x"}, "too many positional arguments"),
        ((1,), {"to": "x", "order_id": 2}, "multiple values for argument 'order_id'"),
        ((1,), {"to": "x", "color": "red"}, r"unknown argument 'color'; it takes \(order_id: "),
        ((), {"to": "x", "oder_id": 1}, r"unknown argument 'oder_id'; did you mean 'order_id'\? it takes \(order_id: "),
        ((1,), {"to": "x", "order": 2}, "unknown argument 'order'; it takes "),
        (("1",), {"to": "x"}, "argument 'order_id': expected int, got str"),
        ((1,), {"to": 5}, "argument 'to': expected str, got int"),
        ((1,), {"to": "x", "address": {"street": "Hill"}}, "argument 'address': .*number"),
        ((1,), {"to": object()}, "argument 'to' cannot be written as JSON: object"),
        (
            (float("nan"),),
            {"to": "x"},
            r"argument 'order_id' must be a finite number, not nan \(JSON has no such number\)",
        ),
    ],
)
def test_a_wrong_call_names_the_parameter(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message) as refused:
        made(place).pack(args, kwargs)
    assert str(refused.value).startswith("shop.task: ")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "argument 'value' must be a finite number, not nan"),
        (-math.inf, "argument 'value' must be a finite number, not -inf"),
        ([1.5, {"price": math.inf}], r"argument 'value' \(in \[1\].price\) must be a finite number, not inf"),
        (Weight(math.nan), r"argument 'value' \(in grams\) must be a finite number, not nan"),
        (Length(metres=math.nan), r"argument 'value' \(in metres\) must be a finite number, not nan"),
    ],
    ids=str,
)
def test_a_number_that_json_has_not_is_refused(value: Any, said: str) -> None:
    def task(first: Any, value: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=said):
        made(task).pack((None, value), {})


def test_null_may_be_sent_and_a_text_may_say_so() -> None:
    def task(value: Any) -> Any:
        return value

    value = {"none": None, "text": "null", "number": 1.5, "raw": msgspec.Raw(b"null")}

    assert round_trip(task, value) == value | {"raw": None}


def test_a_payload_without_null_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(value: Any) -> Any:
        return value

    monkeypatch.setattr(arguments, "_find_not_finite", lambda _: pytest.fail("it was"))

    assert round_trip(task, {"number": 1.5, "text": "x"}) == {"number": 1.5, "text": "x"}


def test_a_payload_someone_else_wrote_wrongly_names_the_parameter_too() -> None:
    with pytest.raises(InvalidArguments, match="there is no parameter 'two'"):
        made(place).unpack('{"order_id": 1, "to": "x", "two": 2}')
    with pytest.raises(InvalidArguments, match="expected object"):
        made(place).unpack("[1]")


def test_a_value_that_contains_itself_is_refused() -> None:
    def task(value: Any) -> None: ...

    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises((InvalidArguments, InvalidPayload), match="value"):
        made(task).pack((loop,), {})


def test_a_type_that_json_cannot_hold_is_refused_when_first_used() -> None:
    def task(lock: Callable[[], int]) -> None: ...

    with pytest.raises((InvalidTask, InvalidArguments)):
        made(task).pack((lambda: 1,), {})


def test_an_annotation_that_names_nothing_is_said() -> None:
    def task(value: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidTask, match="Missing"):
        made(task).pack((1,), {})


def test_a_result_comes_back_as_its_annotation_says() -> None:
    def task() -> Address:
        raise NotImplementedError

    result = Result("shop.task", task)

    assert result.unpack(result.pack(Address(street="Hill", number=3)), UUID(int=7)) == Address(street="Hill", number=3)
    assert result.unpack(None, UUID(int=7)) is None


def test_a_result_that_does_not_fit_its_annotation_names_task_and_job() -> None:
    def task() -> list[int]:
        raise NotImplementedError

    with pytest.raises(InvalidResult) as refused:
        Result("shop.task", task).unpack('[1,"x"]', UUID(int=7))

    assert str(refused.value) == (
        f"the result of job {UUID(int=7)} must be what task 'shop.task' is annotated to return: "
        "expected int, got str at [1]"
    )


def test_a_refused_result_does_not_quote_what_is_redacted() -> None:
    class Pin(pydantic.BaseModel):
        pin: int

    def task() -> Any: ...

    task.__annotations__ = {"return": Pin}
    result = Result("shop.task", task, redaction=lambda: Redaction(["pin"]))

    with pytest.raises(InvalidResult) as refused:
        result.unpack('{"pin": "very secret"}', UUID(int=7))

    assert "very secret" not in str(refused.value)


def test_a_result_that_is_not_json_is_refused() -> None:
    def task() -> Any: ...

    with pytest.raises(InvalidResult, match="object is not JSON"):
        Result("shop.task", task).pack(object())
    with pytest.raises(InvalidResult, match="1 MiB"):
        Result("shop.task", task).pack("x" * (1 << 20))
    with pytest.raises(InvalidResult, match=r"JSON: it \(in \[0\]\) must be a finite number, not nan"):
        Result("shop.task", task).pack([math.nan])
