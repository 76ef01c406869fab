"""Does a stream know at every moment how much its worker can take, and give back what never left?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.dispatch.worker_stream import (
    MESSAGE_SIZE,
    POOLS_LIMIT,
    SLOTS_LIMIT,
    TOPICS_LIMIT,
    AssignmentBatch,
    DrainNotice,
    Pool,
    ReplacedNotice,
    WorkerStream,
)
from pulse.model.errors import InvalidName, InvalidOption
from pulse.model.jobs import Claim, Lease

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def a_claim(number: int = 1, topic: str = "mail", payload: str = "{}") -> Claim:
    rest: list[Any] = [NOON, NOON, NOON, None, None, None]
    return Claim(UUID(int=number), 1, "w1", topic, topic, payload, 1, 3, 0, 0, *rest)


@pytest.fixture
def stream() -> WorkerStream:
    return WorkerStream("w1", [Pool(("mail", "both"), 10), Pool(("render", "both"), 2)])


def test_credit_is_what_is_free_in_every_pool_a_topic_needs(stream: WorkerStream) -> None:
    assert [stream.credit(topic) for topic in ("mail", "render", "both", "other")] == [10, 2, 2, 0]


def test_what_is_handed_over_is_taken_off_at_once(stream: WorkerStream) -> None:
    stream.assign([a_claim(1), a_claim(2, "both")], claimed_at=0)

    assert [stream.credit(topic) for topic in ("mail", "render", "both")] == [8, 1, 1]


async def read(stream: WorkerStream, messages: int = 1) -> None:
    for _ in range(messages):
        assert await stream.next(within=1) is not None


async def test_an_update_counts_from_what_the_worker_had_read(stream: WorkerStream) -> None:
    stream.assign([a_claim(1), a_claim(2)], claimed_at=0)
    stream.assign([a_claim(3)], claimed_at=0)
    await read(stream, 2)

    stream.update(received=1, free=[8, 2], number=1)
    assert stream.credit("mail") == 7, "the third is still on its way"
    stream.update(received=2, free=[9, 2], number=2)
    assert stream.credit("mail") == 9, "two of three have ended"


async def test_an_update_that_was_overtaken_is_passed_over(stream: WorkerStream) -> None:
    stream.assign([a_claim(1)], claimed_at=0)
    await read(stream)
    stream.update(received=1, free=[10, 2], number=5)

    stream.update(received=1, free=[3, 0], number=4)

    assert stream.credit("mail") == 10


def test_nobody_has_read_what_was_not_sent(stream: WorkerStream) -> None:
    """Or a worker that reads nothing could have everything claimed for it."""
    stream.assign([a_claim(1)], claimed_at=0)

    with pytest.raises(InvalidOption, match="received must be at most 0, the last message sent on this stream"):
        stream.update(received=1, free=[10, 2], number=1)
    assert stream.credit("mail") == 9


def test_a_repeated_update_changes_nothing(stream: WorkerStream) -> None:
    stream.assign([a_claim(1)], claimed_at=0)
    for _ in range(2):
        stream.update(received=0, free=[10, 2], number=1)

    assert stream.credit("mail") == 9


def test_credit_never_promises_more_than_there_was(stream: WorkerStream) -> None:
    stream.assign([a_claim(n) for n in range(10)], claimed_at=0)

    assert stream.credit("mail") == 0
    stream.update(received=0, free=[5, 2], number=1)
    assert stream.credit("mail") <= 0


async def test_messages_come_in_order_and_silence_says_nothing(stream: WorkerStream) -> None:
    stream.assign([a_claim(1)], claimed_at=3.5)
    stream.cancel(Lease(UUID(int=1), 1))

    first, second = await stream.next(within=1), await stream.next(within=1)
    assert isinstance(first, AssignmentBatch)
    assert (first.sequence, first.claimed_at, second and second.sequence) == (1, 3.5, 2)
    assert await stream.next(within=0.001) is None


async def test_a_large_batch_goes_in_several_messages(stream: WorkerStream) -> None:
    payload = '"' + "x" * (MESSAGE_SIZE // 2) + '"'
    stream.assign([a_claim(n, payload=payload) for n in range(3)], claimed_at=0)

    messages = [await stream.next(within=0.1) for _ in range(3)]

    assert [len(message.claims) for message in messages if isinstance(message, AssignmentBatch)] == [1, 1, 1]
    assert stream.credit("mail") == 7


async def test_what_never_left_is_given_back_when_it_goes(stream: WorkerStream) -> None:
    stream.assign([a_claim(1)], claimed_at=0)
    await stream.next(within=1)
    stream.assign([a_claim(2), a_claim(3)], claimed_at=0)

    assert [lease.id.int for lease in stream.close()] == [2, 3]
    assert stream.close() == []


@pytest.mark.parametrize(("is_replaced", "last"), [(False, DrainNotice), (True, ReplacedNotice)])
async def test_one_that_is_dismissed_gets_what_was_meant_for_it_and_then_the_last_message(
    stream: WorkerStream, is_replaced: bool, last: type
) -> None:
    stream.assign([a_claim(1)], claimed_at=0)

    stream.end(is_replaced=is_replaced)

    assert stream.credit("mail") == 0
    assert isinstance(await stream.next(within=1), AssignmentBatch)
    assert isinstance(await stream.next(within=1), last)


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([], "from 1 to"),
        ([Pool(("a",), 1)] * (POOLS_LIMIT + 1), "from 1 to"),
        ([Pool((), 1)], "at least one topic"),
        ([Pool(("a",), SLOTS_LIMIT + 1)], "from 0 to"),
        ([Pool(("a",), -1)], "from 0 to"),
        ([Pool(tuple(f"t{n}" for n in range(TOPICS_LIMIT + 1)), 1)], "at most"),
    ],
)
def test_absurd_pools_are_refused(pools: list[Pool], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        WorkerStream("w1", pools)


def test_a_topic_must_have_a_name() -> None:
    with pytest.raises(InvalidName):
        WorkerStream("w1", [Pool(("*",), 1)])


@pytest.mark.parametrize(
    ("received", "free", "said"),
    [
        (0, [1], "each of the 2 pools"),
        (1, [1, 1], "received must be at most 0, the last message sent on this stream"),
        (0, [1, 10**9], "from 0 to"),
    ],
)
def test_absurd_updates_are_refused(stream: WorkerStream, received: int, free: list[int], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        stream.update(received=received, free=free, number=1)
    assert stream.credit("mail") == 10
