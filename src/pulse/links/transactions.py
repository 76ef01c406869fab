"""How are jobs enqueued through the caller's own connection, so that they commit and roll back with the caller's work?

No driver is imported here: a caller with a connection has imported its driver, which the connection's class tells.
Each driver runs the same statement in its own way. Only text goes in, to be cast in SQL, and only text and booleans
come out, so that the caller's codecs, adapters and row factories make no difference. SQLAlchemy and Django run the
statement themselves and are never unwrapped, since they keep track of transactions and savepoints.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from pulse.model.errors import (
    InvalidInput,
    InvalidSettings,
    LeaseLost,
    PulseError,
    SchemaMismatch,
    TransactionFailed,
    UnknownConnection,
)
from pulse.model.jobs import check_size
from pulse.model.text import check_json
from pulse.settings import SCHEMA_NAME

if TYPE_CHECKING:
    from pulse.model.jobs import Lease, NewJob

T = TypeVar("T")
Conn = Any  # the caller's connection
Rows = Any  # a sequence of sequences, of the driver's own types

SUPPORTED = (
    "a connection of psycopg, psycopg2 or asyncpg, a Session, Connection, AsyncSession or AsyncConnection of "
    "SQLAlchemy, or Django's connection"
)

# Sorted by place, because ids are minted row by row and break ties in the order of a topic.
ENQUEUE = """
select cast({schema}.enqueue(job ->> 'task', job -> 'payload', job -> 'options') as text)
from jsonb_array_elements(cast(cast({0} as text) as jsonb)) with ordinality as item (job, place)
order by place
"""
FENCE = "select {schema}.fence(cast(cast({0} as text) as uuid), cast(cast({1} as text) as bigint))"
COMPLETE = """
select {schema}.complete(cast(cast({0} as text) as uuid), cast(cast({1} as text) as bigint),
    cast(cast({2} as text) as jsonb))
"""


class Call(NamedTuple):
    """A statement and its values."""

    sql: str
    schema: str
    values: tuple[str, ...]
    twin: str = "aenqueue"  # the method to use instead with an asynchronous connection

    def with_placeholders(self, style: str) -> str:
        """Return the statement with placeholders in the style of a driver: `%s`, `${}` or `:v{}`."""
        placeholders = (style.format(number) for number in range(1, len(self.values) + 1))
        return self.sql.format(*placeholders, schema=_quote(self.schema))


def enqueue_through(conn: object, jobs: Sequence[NewJob], *, schema: str = "pulse", notify: bool = True) -> list[UUID]:
    """Enqueue in the transaction that is open on a synchronous connection: one statement, ids in the order given.

    For an id or a unique key that a job has already, the id of that job is returned. An error of the database fails the
    transaction.
    """
    return _ids(run_through(conn, _enqueue(jobs, schema, notify=notify))) if jobs else []


async def aenqueue_through(
    conn: object, jobs: Sequence[NewJob], *, schema: str = "pulse", notify: bool = True
) -> list[UUID]:
    """Enqueue like `enqueue_through`, for every kind of connection. A synchronous one blocks the event loop."""
    return _ids(await arun_through(conn, _enqueue(jobs, schema, notify=notify))) if jobs else []


def fence_through(conn: object, lease: Lease, *, schema: str = "pulse") -> Awaitable[None]:
    """Raise LeaseLost unless the lease is current. If it is, it stays so until the caller's transaction ends.

    On a synchronous connection this is done on return, and awaiting the result does nothing.
    """
    return _run_if_current(conn, lease, Call(FENCE, schema, _values(lease)))


def complete_through(conn: object, lease: Lease, result: str, *, schema: str = "pulse") -> Awaitable[None]:
    """Complete the job with the caller's transaction, or raise LeaseLost. The result is JSON text.

    On a synchronous connection this is done on return, and awaiting the result does nothing.
    """
    # The result is checked here, because an error of the database would fail the caller's transaction.
    return _run_if_current(conn, lease, Call(COMPLETE, schema, (*_values(lease), check_json("result", result))))


# --- jobs as pulse.enqueue expects them


def _enqueue(jobs: Sequence[NewJob], schema: str, *, notify: bool) -> Call:
    check_size("jobs", jobs)
    items = [
        {"task": job.task, "payload": msgspec.Raw(job.payload), "options": _options(job) | {"notify": notify}}
        for job in jobs
    ]
    return Call(ENQUEUE, schema, (msgspec.json.encode(items).decode(),))


def _options(job: NewJob) -> dict[str, object]:
    """Return the options of a job. One that was not given is null, which pulse.enqueue ignores."""
    names = (name for name in job.__struct_fields__ if name not in ("task", "payload"))
    return {name: _plain(getattr(job, name)) for name in names} | {"topic": job.routed_topic}


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value


def _values(lease: Lease) -> tuple[str, str]:
    return str(lease.id), str(lease.lease_id)


def _ids(rows: Rows) -> list[UUID]:
    return [UUID(row[0]) for row in rows]


def _quote(schema: str) -> str:
    if not SCHEMA_NAME.fullmatch(schema):  # other names might hold characters that a driver reads as a placeholder
        raise InvalidSettings(f"schema must consist of lower-case letters, digits and _, not {schema!r}")
    return f'"{schema}"'


# --- running a statement on any supported connection


def run_through(conn: Conn, call: Call) -> Rows:
    run = _find(SYNC, conn)
    if run is None:
        raise _wrong_connection(conn, call.twin)
    with _translate_errors(call.schema):
        return run(conn, call)


def _wrong_connection(conn: Conn, twin: str) -> InvalidInput:
    if _find(ASYNC, conn) is None:
        return UnknownConnection(conn, SUPPORTED)
    return InvalidInput(f"{type(conn).__name__} is an asynchronous connection: use {twin}, and await it")


async def arun_through(conn: Conn, call: Call) -> Rows:
    run = _find(ASYNC, conn)
    if run is None:
        return run_through(conn, call)
    with _translate_errors(call.schema):
        return await run(conn, call)


def _run_if_current(conn: Conn, lease: Lease, call: Call) -> Awaitable[None]:
    if _find(ASYNC, conn) is not None:
        return _arun_if_current(conn, lease, call)
    _check_current(lease, run_through(conn, call))
    return AlreadyDone()


async def _arun_if_current(conn: Conn, lease: Lease, call: Call) -> None:
    _check_current(lease, await arun_through(conn, call))


def _check_current(lease: Lease, rows: Rows) -> None:
    if not rows[0][0]:
        raise LeaseLost(lease.id)


class AlreadyDone:
    """An awaitable for something that is done already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _psycopg(conn: Conn, call: Call) -> Rows:
    with conn.cursor(row_factory=_plain_rows) as cursor:
        cursor.execute(call.with_placeholders(_psycopg_style(cursor)), call.values)
        return cursor.fetchall()


async def _psycopg_async(conn: Conn, call: Call) -> Rows:
    async with conn.cursor(row_factory=_plain_rows) as cursor:
        await cursor.execute(call.with_placeholders(_psycopg_style(cursor)), call.values)
        return await cursor.fetchall()


def _plain_rows(_cursor: object) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return tuple


def _psycopg_style(cursor: object) -> str:
    """Return the style of placeholders. A connection may be set to make cursors that use Postgres's own style."""
    return "${}" if _find({("psycopg", "RawCursorMixin"): True}, cursor) else "%s"


def _psycopg2(conn: Conn, call: Call) -> Rows:
    with conn.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:  # its rows are tuples
        cursor.execute(call.with_placeholders("%s"), call.values)
        return cursor.fetchall()


async def _asyncpg(conn: Conn, call: Call) -> Rows:
    return await conn.fetch(call.with_placeholders("${}"), *call.values)


def _sqlalchemy(conn: Conn, call: Call) -> Rows:
    return conn.execute(*_as_text(call)).all()


async def _sqlalchemy_async(conn: Conn, call: Call) -> Rows:
    return (await conn.execute(*_as_text(call))).all()


def _as_text(call: Call) -> tuple[object, dict[str, str]]:
    values = {f"v{number}": value for number, value in enumerate(call.values, 1)}
    return sys.modules["sqlalchemy"].text(call.with_placeholders(":v{}")), values


def _django(conn: Conn, call: Call) -> Rows:
    with conn.cursor() as cursor:
        cursor.execute(call.with_placeholders("%s"), call.values)
        return cursor.fetchall()


# The package and the name of a class. Subclasses are found, too.
Name = tuple[str, str]
SYNC: dict[Name, Callable[[Conn, Call], Rows]] = {
    ("psycopg", "Connection"): _psycopg,
    ("psycopg2", "connection"): _psycopg2,
    ("sqlalchemy", "Session"): _sqlalchemy,
    ("sqlalchemy", "scoped_session"): _sqlalchemy,
    ("sqlalchemy", "Connection"): _sqlalchemy,
    ("django", "ConnectionProxy"): _django,
    ("django", "BaseDatabaseWrapper"): _django,
}
ASYNC: dict[Name, Callable[[Conn, Call], Awaitable[Rows]]] = {
    ("psycopg", "AsyncConnection"): _psycopg_async,
    ("asyncpg", "Connection"): _asyncpg,
    ("asyncpg", "PoolConnectionProxy"): _asyncpg,
    ("sqlalchemy", "AsyncSession"): _sqlalchemy_async,
    ("sqlalchemy", "async_scoped_session"): _sqlalchemy_async,
    ("sqlalchemy", "AsyncConnection"): _sqlalchemy_async,
}


def _find(table: dict[Name, T], thing: object) -> T | None:
    """Return the entry for the class of a thing. A wrapper that traces calls names the wrapped class in `__class__`."""
    kinds = (*type(thing).__mro__, *thing.__class__.__mro__)
    names = ((kind.__module__.partition(".")[0], kind.__name__) for kind in kinds)
    return next((table[name] for name in names if name in table), None)


# --- errors


@contextmanager
def _translate_errors(schema: str) -> Iterator[None]:
    """Raise errors of Pulse instead of those of a driver, where Pulse has one that says more."""
    try:
        yield
    except Exception as error:
        if translated := _translate(error, schema):
            raise translated from error
        raise


# The errors of frameworks that refuse to go on with a failed transaction, without asking the database.
REFUSALS = {("sqlalchemy", "PendingRollbackError"): True, ("django", "TransactionManagementError"): True}


def _translate(error: Exception, schema: str) -> PulseError | None:
    if _find(REFUSALS, error):
        return TransactionFailed()
    *_, cause = _causes(error)
    match _sqlstate(cause):
        case "25P02":
            return TransactionFailed()
        case "22023":
            return InvalidInput(_message(cause))
        case "42883" | "42P01" | "3F000":
            return SchemaMismatch(
                f"schema {schema!r} is missing or older than this program ({_message(cause)}): run `pulse migrate`"
            )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Iterate from the error of a framework down to that of the driver."""
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _sqlstate(error: BaseException) -> object:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _message(error: BaseException) -> str:
    """Return the message of the database, without the context that psycopg adds."""
    return getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
