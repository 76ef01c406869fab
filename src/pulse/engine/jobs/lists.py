"""Which index does a list of jobs use, and where does the next page begin?

Every state has its natural order: waiting jobs as they will be claimed, scheduled ones by when they fall due, dead
letters and finished ones most recent first, the jobs of one schedule and all jobs newest first. Each order is an index,
so a page costs the same at ten million rows. Conditions that the index does not cover are checked on a limited number
of rows.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

import msgspec

from pulse.model.errors import InvalidFilter, InvalidOption
from pulse.model.ids import bucket_of_topic, by_bucket
from pulse.model.jobs import FINISHED, PAGE_LIMIT, JobFilter, JobStatus
from pulse.store.jobs import lists

if TYPE_CHECKING:
    from pulse.store.connections.pool import Connection

SCAN_LIMIT = 5_000  # rows read for one page when the index does not cover the whole filter
REACH = 20_000  # rows read for one page of all topics: with hundreds of topics the page may be short
FIRST_ID, LAST_ID = UUID(int=0), UUID(int=(1 << 128) - 1)
FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
LAST_INSTANT = datetime.max.replace(tzinfo=UTC)

_compact = msgspec.msgpack.Encoder(uuid_format="bytes")

T = TypeVar("T")


class Read(Protocol[T]):
    """A statement that reads jobs of one bucket, or parts of them."""

    async def __call__(self, conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, T]: ...


class Order(NamedTuple):
    """One list statement: its fixed parameters, the key after which the first page begins, and the fields of a filter
    that its index covers."""

    statement: str
    fixed: Mapping[str, object]
    start: dict[str, Any]
    covered: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return [name.removeprefix("after_") for name in self.start]

    def has_to_filter(self, wanted: JobFilter) -> bool:
        """Tell whether the filter has conditions that the index does not cover."""
        return msgspec.structs.replace(wanted, **dict.fromkeys(self.covered)) != JobFilter()


BY_FINISH = {"after_finished_at": LAST_INSTANT, "after_id": LAST_ID}
BY_TURN = {"after_urgency": -101, "after_ready_at": FIRST_INSTANT, "after_id": FIRST_ID}
BY_DUE = {"after_run_at": FIRST_INSTANT, "after_id": FIRST_ID}
BY_CLAIM = {"after_claimed_at": FIRST_INSTANT, "after_id": FIRST_ID}


def choose_order(wanted: JobFilter, buckets: int) -> Order:
    """Return the order whose index covers the filter best."""
    searched = [bucket_of_topic(wanted.topic, buckets)] if wanted.topic else list(range(buckets))
    if wanted.schedule_id is not None:
        fixed = {"buckets": searched, "schedule_id": wanted.schedule_id}
        return Order("list_of_schedule", fixed, {"after_id": LAST_ID}, ("schedule_id",))
    if wanted.topic and (order := _order_of_topic(wanted, searched[0])):
        return order
    match wanted.status:
        case JobStatus.SCHEDULED | JobStatus.RETRYING:
            return Order("list_due", {"buckets": searched}, BY_DUE)
        case JobStatus.RUNNING:
            return Order("list_running", {"buckets": searched}, BY_CLAIM, ("status",))
        case JobStatus.PENDING:
            return Order("list_all_pending", {"reach": REACH}, BY_TURN, ("status",))
        case JobStatus.DEAD_LETTERED:
            return Order("list_dead", {"buckets": searched}, BY_FINISH, ("status",))
        case JobStatus.COMPLETED | JobStatus.CANCELLED:
            fixed = {"status": str(wanted.status), "reach": REACH}
            return Order("list_all_finished", fixed, BY_FINISH, ("status",))
    return Order("list_newest", {"buckets": searched}, {"after_id": LAST_ID})


def _order_of_topic(wanted: JobFilter, bucket: int) -> Order | None:
    """Return an order whose index begins with the topic, or None."""
    one_topic = {"bucket": bucket, "topic": wanted.topic}
    if wanted.status is JobStatus.PENDING:
        return Order("list_pending", one_topic, BY_TURN, ("topic", "status"))
    if wanted.status in FINISHED:
        return Order("list_finished", one_topic | {"status": str(wanted.status)}, BY_FINISH, ("topic", "status"))
    return None


async def list_ids(
    conn: Connection, wanted: JobFilter, *, after: str | None, limit: int, buckets: int
) -> tuple[list[UUID], str | None]:
    """Return the ids of one page, in order, and where the next page begins."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidOption("limit", limit, f"be a whole number from 1 to {PAGE_LIMIT}")
    order = choose_order(wanted, buckets)
    scan = max(SCAN_LIMIT, limit) if order.has_to_filter(wanted) else limit
    key = read_cursor(after, order) if after else order.start
    rows = await lists.list_ids(
        conn,
        order.statement,
        **order.fixed,
        **key,
        filter=msgspec.json.encode(wanted).decode(),
        scan=scan,
        limit=limit,
    )
    matching = [row for row in rows if row["matches"]]
    ids = [row["id"] for row in matching]
    if len(matching) == limit:
        return ids, write_cursor(matching[-1], order)
    if not rows or not await _is_more_behind(conn, order, rows[-1], scan):
        return ids, None
    return ids, write_cursor(rows[-1], order)


async def _is_more_behind(conn: Connection, order: Order, last: Any, scan: int) -> bool:  # noqa: ANN401
    """Tell whether the list goes on after the last row that was read."""
    key = {f"after_{column}": last[column] for column in order.columns}
    rows = await lists.list_ids(conn, order.statement, **order.fixed, **key, filter="{}", scan=1, limit=1)
    return bool(rows)


async def read_in_order(conn: Connection, read: Read[T], ids: list[UUID]) -> list[T]:
    found = await read_each(conn, read, ids)
    return [found[job_id] for job_id in ids if job_id in found]


async def read_each(conn: Connection, read: Read[T], ids: Sequence[UUID]) -> dict[UUID, T]:
    """Return those of the jobs that exist, from all buckets."""
    found: dict[UUID, T] = {}
    for bucket, bucket_ids in by_bucket(ids):
        found |= await read(conn, bucket=bucket, ids=bucket_ids)
    return found


def write_cursor(row: Any, order: Order) -> str:  # noqa: ANN401
    """Return the key of a row in at most 48 characters, which a person can copy from a line of eighty."""
    values = [_checksum(order), *(row[column] for column in order.columns)]
    return base64.urlsafe_b64encode(_compact.encode(values)).decode().rstrip("=")


def read_cursor(text: str, order: Order) -> dict[str, Any]:
    """Return the key in a cursor. Refuse a text that is none, and a cursor of another list."""
    kinds = GenericAlias(tuple, (int, *(type(value) for value in order.start.values())))
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        checksum, *key = msgspec.msgpack.decode(raw, type=kinds)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        checksum, key = None, []
    if checksum != _checksum(order):
        raise InvalidFilter("after must be the `next` of a page with the same filter: this one is of another list")
    return dict(zip(order.start, key, strict=True))


def _checksum(order: Order) -> int:
    """Return a checksum that distinguishes the lists, and is shorter than their names."""
    return zlib.crc32(order.statement.encode())
