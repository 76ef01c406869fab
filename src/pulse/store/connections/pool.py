"""How do statements reach Postgres, and what happens when a connection or a transaction fails?

Three lanes lead to the database. Most statements go through the shared one. Heartbeats have a connection of their own,
so that a lease never ends because other statements were queueing for one. The duties have one too, because they must
not wait for a lock for long.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from pulse.model.errors import (
    Conflict,
    DatabaseReadOnly,
    DatabaseUnreachable,
    InvalidDatabaseUrl,
    InvalidInput,
    PulseError,
    SchemaMismatch,
    UnsupportedDatabase,
)
from pulse.store.connections.hosts import Host, check_url, in_order, read_hosts, remember, says_which
from pulse.store.connections.redacted_url import place_of
from pulse.store.statements import Statement, load_statements
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from pulse.settings import Settings

    RawConnection = asyncpg.Connection[Any]

T = TypeVar("T")
log = logging.getLogger("pulse.database")

OLDEST_POSTGRES = 14
CONFLICT_TRIES = 5
CONNECT_PATIENCE = 5.0  # seconds until one host must have taken a connection
HOST_PATIENCE = 2.0  # the same where there are others to try
DUTY_LOCK_PATIENCE = "500ms"  # a duty is tried again; those behind it in the lane must not wait for somebody's lock
UNWRITABLE_FOR = 8.0  # seconds for which one refused write means that no write can be made
LOG_EVERY = 10.0  # seconds between two lines about one outage
SPARE_FOR = 2.0  # seconds that a connection which nobody needs is kept open

# We choose the plans of our statements, not the statistics: on a table that was empty when it was last analyzed, the
# planner would sort the whole ready set and scan the whole table (15k against 39k jobs a second). JIT and parallel
# plans are off because the cost of a disabled path would set them off.
PLAN_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "random_page_cost": "0.01",  # going to a row's place must look cheaper than any index
    "plan_cache_mode": "force_generic_plan",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}
_SET_LOCAL = "; ".join(f"set local {name} = {value}" for name, value in PLAN_SETTINGS.items())

# After these the same transaction is tried again at once, because Postgres has undone it completely. The unique
# violation is a replay that met a submit with the same key: the second time it sees who holds the key.
CONFLICTS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
)
# The connection is lost, or this server does not take writes, or no longer. A statement may have been applied all the
# same. All of ours can be repeated, because ids are minted before them and fences are checked within them. Only a claim
# whose answer was lost (or a submit that claims) leaves a trace: jobs leased to workers that do not know of them, which
# engine/jobs/lost_claims.py gives back.
LOST = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the driver's own state when the server goes down in mid-answer
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.TargetServerAttributeNotMatched,  # of several hosts none takes writes: a failover, perhaps
)

# Nobody can write anything: the disk is full or fails, or the server takes no writes.
UNWRITABLE = (
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DiskFullError,
    asyncpg.PostgresIOError,
)


class Connection:
    """One connection and the statements of our schema, called by name with named parameters."""

    __slots__ = ("_is_pooled", "_raw", "_set_local", "_statements")

    def __init__(
        self, raw: RawConnection, statements: dict[str, Statement], *, is_pooled: bool, set_local: str = ""
    ) -> None:
        self._raw = raw
        self._statements = statements
        self._is_pooled = is_pooled
        self._set_local = set_local

    async def rows(self, name: str, /, **parameters: object) -> list[asyncpg.Record]:
        statement = self._statements[name]
        values = [parameters[parameter] for parameter in statement.parameters]
        if self._is_pooled and not self._raw.is_in_transaction():
            async with self.transaction():
                return await self._raw.fetch(statement.sql, *values)
        return await self._raw.fetch(statement.sql, *values)

    def text(self, name: str) -> str:
        """Return the SQL of a statement, for callers that have to run it as text, such as several commands at once."""
        return self._statements[name].sql

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._raw.transaction(isolation="read_committed"):
            if self._is_pooled:  # nothing outlives a transaction there, so the plans are pinned in each
                await self._raw.execute(_SET_LOCAL + self._set_local)
            yield

    async def execute(self, sql: str) -> None:
        """Run text that is not one of the named statements: migrations and tests."""
        await self._raw.execute(sql)

    async def fetch(self, sql: str, *values: object) -> list[asyncpg.Record]:
        return await self._raw.fetch(sql, *values)


class Lane:
    """Keeps up to `size` connections. Each is opened when it is first needed; the one that was used last is used first.

    The driver has a pool of its own, but giving a connection back to it takes a task: 30 µs for each statement, a
    tenth of what a claim of a hundred jobs costs this process. Nothing that we set outlives a transaction, so a
    connection goes back as it is, and a connection whose work was cut short is closed instead.
    """

    def __init__(
        self,
        settings: Settings,
        size: int,
        statements: dict[str, Statement],
        session: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._statements = statements
        self._session = dict(session or {})  # settings of its connections, beside those that all have
        self._set_local = "".join(f"; set local {name} = '{value}'" for name, value in self._session.items())
        self._free_slots = asyncio.Semaphore(size)
        self._idle: list[tuple[RawConnection, float]] = []  # with the time since when it is idle
        self._trimming: asyncio.TimerHandle | None = None
        self._open: set[RawConnection] = set()
        self._is_closed = False

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._free_slots:
            raw = await self._checkout()
            try:
                answer = await work(self._connection(raw))
            except asyncpg.ReadOnlySQLTransactionError:  # a new session may find that this is no longer so
                self._drop(raw)
                raise
            except asyncpg.PostgresError:  # the server's answer: it is ready for the next statement
                self._give_back(raw)
                raise
            except BaseException:
                self._drop(raw)
                raise
            self._give_back(raw)
            return answer

    def _connection(self, raw: RawConnection) -> Connection:
        return Connection(raw, self._statements, is_pooled=self._settings.pgbouncer, set_local=self._set_local)

    def close(self) -> None:
        self._is_closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        for raw in list(self._open):
            self._drop(raw)

    def close_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop()[0])

    async def _checkout(self) -> RawConnection:
        if self._is_closed:
            raise ClosedLane
        while self._idle:
            idle, _ = self._idle.pop()
            if not idle.is_closed():
                return idle
            self._drop(idle)
        raw = await connect(self._settings, session=self._session)
        self._open.add(raw)
        return raw

    def add(self, raw: RawConnection) -> None:
        """Add an idle connection that was opened elsewhere with our options."""
        self._open.add(raw)
        self._give_back(raw)

    def _give_back(self, raw: RawConnection) -> None:
        if raw.is_closed() or raw.is_in_transaction() or self._is_closed:
            self._drop(raw)
        else:
            loop = asyncio.get_running_loop()
            self._idle.append((raw, loop.time()))
            if len(self._idle) > 1 and self._trimming is None:
                self._trimming = loop.call_later(SPARE_FOR, self._trim)

    def _trim(self) -> None:
        """Close the connections that nobody has needed for a while, except one, so that a burst leaves none behind."""
        self._trimming = None
        loop = asyncio.get_running_loop()
        spare = [raw for raw, since in self._idle[:-1] if loop.time() - since >= SPARE_FOR]
        self._idle = self._idle[len(spare) :]  # the longest idle come first
        for raw in spare:
            self._drop(raw)
        if len(self._idle) > 1:
            self._trimming = loop.call_later(SPARE_FOR, self._trim)

    def _drop(self, raw: RawConnection) -> None:
        self._open.discard(raw)
        raw.terminate()


class ClosedLane(asyncpg.InterfaceError):
    """The engine was stopped, and something still uses the database."""

    def __init__(self) -> None:
        super().__init__("the connection to the database was closed by this program")


class Database:
    """Runs work on one schema of one Postgres."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.statements = load_statements(settings.schema)
        self._shared = Lane(settings, settings.pool_size, self.statements)
        self._reserved = Lane(settings, 1, self.statements)  # heartbeats
        self._duties = Lane(settings, 1, self.statements, {"lock_timeout": DUTY_LOCK_PATIENCE})
        self._backoff = Backoff()
        self._refused_write: tuple[float, BaseException] | None = None  # when, and the error
        self.errors = 0  # so far: lost connections and refused statements, not conflicts
        self.has_callers = False  # a server's: they need not know where the database is and who connects
        self._logged_at = float("-inf")

    @classmethod
    async def connect(cls, settings: Settings) -> Database:
        """Connect, and refuse a server that cannot work: a standby, an old Postgres, an encoding that loses text."""
        raw = await connect_checked(settings)
        database = cls(settings)
        database._shared.add(raw)
        return database

    def _translate(self, error: BaseException, *, of_many: bool = False) -> PulseError:
        """Translate an error. Addresses and users of a server's database go to its log, not to its callers."""
        found = translate(error)
        if of_many and may_be_of_one(error) and not isinstance(found, InvalidInput):
            return Conflict(f"the database refuses this for now: {type(error).__name__}: {_message(error)}")
        if not self.has_callers or not isinstance(found, DatabaseUnreachable | InvalidDatabaseUrl):
            return found
        if time.monotonic() - self._logged_at > LOG_EVERY:
            self._logged_at = time.monotonic()
            log.warning("%s", found)
        return DatabaseUnreachable("cannot reach the database: the server's log says why")

    def close_idle(self) -> None:
        """Close idle connections, because there is nothing to do for a while."""
        for lane in (self._shared, self._reserved, self._duties):
            lane.close_idle()

    async def close(self) -> None:
        for lane in (self._shared, self._reserved, self._duties):
            lane.close()

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], *, reserved: bool = False, of_many: bool = False
    ) -> T:
        """Do one piece of work on one connection, each statement in its own transaction.

        Work is tried again at once after a conflict, and until `patience` runs out after a lost connection. It may
        therefore be done twice and must be harmless to repeat: ids are minted before it, fences are checked within it.
        If work is `of_many` items, a single item may be why the database refuses it. Such work is not tried again: it
        raises a Conflict, and the caller tries the items apart.
        """
        return await self._run_on(self._reserved if reserved else self._shared, work, of_many=of_many)

    async def run_duty(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run the work of a duty: as `run`, but give up soon if somebody holds a lock."""
        try:
            return await self._run_on(self._duties, work)
        except (Conflict, DatabaseUnreachable) as error:
            if isinstance(cause := error.__cause__, asyncpg.LockNotAvailableError):
                raise Conflict(f"somebody held a lock for longer than {DUTY_LOCK_PATIENCE}: {cause}") from cause
            raise

    async def _run_on(self, lane: Lane, work: Callable[[Connection], Awaitable[T]], *, of_many: bool = False) -> T:
        give_up_at = asyncio.get_running_loop().time() + self.settings.patience.total_seconds()
        conflicts = losses = 0
        while True:
            try:
                return await lane.run(work)
            except ClosedLane as error:
                raise self._translate(error) from error
            except CONFLICTS as error:
                conflicts += 1
                if conflicts == CONFLICT_TRIES:
                    raise Conflict(
                        f"this met {conflicts} conflicts with other transactions ({error}); try again"
                    ) from error
                await asyncio.sleep(random.uniform(0, 0.01 * conflicts))  # noqa: S311
            except (*LOST, asyncpg.PostgresError) as error:
                self._count(error)
                losses += 1
                left = give_up_at - asyncio.get_running_loop().time()
                if left <= 0 or not self._is_worth_waiting(error, lane, of_many=of_many):
                    raise self._translate(error, of_many=of_many) from error
                await asyncio.sleep(
                    min(left, self._backoff.delay(losses).total_seconds())
                )  # with a last try when patience ends

    def _is_worth_waiting(self, error: BaseException, lane: Lane, *, of_many: bool) -> bool:
        if of_many and may_be_of_one(error):
            return False
        if isinstance(error, asyncpg.LockNotAvailableError):
            return lane is not self._duties and not _is_held_row(error)
        return isinstance(error, LOST)

    def _count(self, error: BaseException) -> None:
        self.errors += 1
        if isinstance(error, UNWRITABLE):
            self._refused_write = asyncio.get_running_loop().time(), error

    async def check_writes(self, write: Callable[[Connection], Awaitable[object]]) -> None:
        """Raise if a write was just refused because none can be made, or if `write` fails now. It is tried once."""
        if self._refused_write and asyncio.get_running_loop().time() - self._refused_write[0] < UNWRITABLE_FOR:
            raise self._translate(self._refused_write[1])
        try:
            await self._shared.run(write)
        except (*LOST, asyncpg.PostgresError) as error:
            raise self._translate(error) from error

    async def run_together(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do one piece of work as `run` does, with everything in one transaction."""

        async def in_transaction(conn: Connection) -> T:
            async with conn.transaction():
                return await work(conn)

        return await self.run(in_transaction)


def connect_options(settings: Settings) -> dict[str, Any]:
    if not settings.database_url:  # the driver would look for one elsewhere
        raise InvalidDatabaseUrl("no database: set PULSE_DATABASE_URL, or start the embedded one first")
    check_url(settings.database_url)
    options: dict[str, Any] = {
        "dsn": settings.database_url,
        "timeout": CONNECT_PATIENCE,
        "command_timeout": settings.patience.total_seconds(),
        "server_settings": {"application_name": "pulse"},
    }
    if settings.pgbouncer:
        options["statement_cache_size"] = 0
    else:
        options["server_settings"] |= PLAN_SETTINGS | {"default_transaction_isolation": "read committed"}
    if len(read_hosts(settings.database_url)) > 1 and not says_which(settings.database_url):
        options["target_session_attrs"] = "read-write"  # several hosts: the one that takes writes
    return options


async def connect(
    settings: Settings, *, url: str | None = None, session: Mapping[str, str] | None = None, **changed: object
) -> RawConnection:
    """Open a connection, to `url` if it is given, with settings of its session. All our connections are opened here.

    Each of several hosts has its own deadline: one that hangs, instead of refusing, must not keep us from the next.
    """
    if url is not None:
        settings = replace(settings, database_url=url)
    options = connect_options(settings) | changed
    if session and not settings.pgbouncer:  # behind pgbouncer each transaction has to set them
        options["server_settings"] |= session
    hosts = read_hosts(options["dsn"])
    if len(hosts) < 2:
        conn: RawConnection = await asyncpg.connect(**options)
        return conn
    return await _connect_to_one_of(hosts, options, settings.patience.total_seconds())


async def _connect_to_one_of(hosts: list[Host], options: dict[str, Any], patience: float) -> RawConnection:
    """Try each host for a short time; then, if there is time left, try those that did not answer once more."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + patience
    errors: list[BaseException] = []
    left = in_order(hosts)
    for deadline in (HOST_PATIENCE, CONNECT_PATIENCE):
        silent: list[Host] = []
        for number, host in enumerate(left):
            share = max(0.001, give_up_at - clock()) / (len(left) - number)
            place = {"host": host.name, "port": host.port, "timeout": min(deadline, share)}
            try:
                conn: RawConnection = await asyncpg.connect(**options | place)
            except (*LOST, asyncpg.PostgresError) as error:
                errors.append(error)
                silent += [host] if isinstance(error, TimeoutError) else []
            else:
                remember(hosts, host)
                return conn
        left = silent if clock() < give_up_at else []
    raise max(errors, key=_tells)


def _tells(error: BaseException) -> int:
    """Return how much an error says about why no host took a connection: a refusal says more than silence."""
    return (not isinstance(error, TimeoutError)) + (not isinstance(error, LOST))


async def connect_checked(settings: Settings) -> RawConnection:
    """Open a connection, and refuse a server on which our guarantees would not hold."""
    try:
        conn = await connect(settings)
    except (*LOST, asyncpg.PostgresError, ValueError) as error:
        raise translate(error, settings) from None
    try:
        await _check_server(conn)
    except (*LOST, asyncpg.PostgresError) as error:
        conn.terminate()
        raise translate(error, settings) from None
    except BaseException:
        conn.terminate()
        raise
    return conn


async def _check_server(conn: RawConnection) -> None:
    facts = await conn.fetchrow(
        "select current_setting('server_version_num')::int as version, pg_is_in_recovery() as is_standby, "
        "current_setting('transaction_read_only') as read_only, current_setting('server_encoding') as encoding"
    )
    assert facts is not None
    if facts["version"] // 10_000 < OLDEST_POSTGRES:
        raise UnsupportedDatabase(
            f"Postgres {facts['version'] // 10_000} is too old: Pulse needs {OLDEST_POSTGRES} or newer"
        )
    if facts["is_standby"]:
        raise DatabaseReadOnly("this Postgres is a standby in recovery: give the address of the primary")
    if facts["read_only"] == "on":
        raise DatabaseReadOnly("this database is read-only (default_transaction_read_only): Pulse must write to it")
    if facts["encoding"] != "UTF8":
        raise UnsupportedDatabase(
            f"the database's encoding is {facts['encoding']}: Pulse needs UTF8, so create it with ENCODING 'UTF8'"
        )


def translate(error: BaseException, settings: Settings | None = None) -> PulseError:  # noqa: C901  a list
    """Return an error of the driver as one of ours, which says what to do about it.

    With settings the message names the database. That is for the process that connects, not for callers of a server.
    """
    match error:
        case asyncpg.ReadOnlySQLTransactionError() | asyncpg.TargetServerAttributeNotMatched():
            return DatabaseReadOnly(f"the database takes no writes: {error}; give the address of the primary")
        case asyncpg.DiskFullError() | asyncpg.PostgresIOError():
            return DatabaseReadOnly(f"the database takes no writes: {_message(error)}; look at the disk of the server")
        case asyncpg.LockNotAvailableError() if _is_held_row(error):
            return Conflict("another transaction is submitting the same id or unique key and has not ended; try again")
        case asyncpg.LockNotAvailableError():
            return DatabaseUnreachable(
                f"the database refused: {_message(error)}: another session holds a table of Pulse, or commits hang, "
                "for longer than lock_timeout allows; try again"
            )
        case asyncpg.DataError() | asyncpg.ProgramLimitExceededError():
            return InvalidInput(f"the database cannot take this value: {_message(error)}")
        # A rule that somebody added to our tables. An unknown code is one too: only a trigger can have raised it.
        case asyncpg.IntegrityConstraintViolationError() | asyncpg.PLPGSQLError() | asyncpg.UnknownPostgresError():
            return InvalidInput(f"a rule of the database refuses this: {type(error).__name__}: {_message(error)}")
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.InvalidSchemaNameError():
            return SchemaMismatch(f"the schema is missing or older than this program ({error}): run `pulse migrate`")
        case asyncpg.InvalidCatalogNameError() | asyncpg.InvalidAuthorizationSpecificationError():
            return InvalidDatabaseUrl(f"the database refused the connection: {error}; check PULSE_DATABASE_URL")
        case asyncpg.ProtocolViolationError() if "startup parameter" in str(error):
            return InvalidDatabaseUrl(f"{error}: this looks like pgbouncer, so set PULSE_PGBOUNCER=1")
        case asyncpg.InvalidSQLStatementNameError() | asyncpg.DuplicatePreparedStatementError():
            return InvalidDatabaseUrl(f"{error}: this looks like a transaction pooler, so set PULSE_PGBOUNCER=1")
        case asyncpg.ClientConfigurationError() | ValueError():  # its message may quote a part of the password
            return InvalidDatabaseUrl(
                "the database URL cannot be read: it must be postgresql://user:password@host:5432/name, with / ? # @ "
                "of the password written as %2F %3F %23 %40"
            )
        case (
            asyncpg.PostgresConnectionError()
            | asyncpg.InterfaceError()
            | asyncpg.InternalClientError()
            | OSError()
            | asyncio.TimeoutError()
        ):
            reason = str(error) or type(error).__name__
            where = place_of(settings.database_url) if settings else ""
            return DatabaseUnreachable(
                f"cannot reach the database{where}: {reason}; is it running, is the address right?"
            )
    return DatabaseUnreachable(f"the database refused: {type(error).__name__}: {_message(error)}")


def may_be_of_one(error: BaseException) -> bool:
    """Return whether a single row may be why Postgres refused a statement, so that other rows may pass without it.

    Only errors of severity ERROR count: they end the statement and not the connection, whatever code a trigger gave
    them. No row is to blame if nothing can be written, nor for a lock on a whole table, a missing table or a missing
    right, unless a trigger has met it: then Postgres says where ("PL/pgSQL function …").
    """
    if not isinstance(error, asyncpg.PostgresError) or getattr(error, "severity_en", None) != "ERROR":
        return False
    if isinstance(error, asyncpg.LockNotAvailableError | asyncpg.SyntaxOrAccessError):
        return bool(getattr(error, "context", None))
    return not isinstance(error, UNWRITABLE)


def _is_held_row(error: BaseException) -> bool:
    """Return whether a statement gave up waiting for a row or a key that another transaction holds.

    For those, and only for those, Postgres adds where it was ("while inserting index tuple …"), in whatever language.
    A lock on a whole table, and the lock that commits with a notification queue for, are not the caller's doing.
    """
    return isinstance(error, asyncpg.LockNotAvailableError) and bool(getattr(error, "context", None))


def _message(error: BaseException) -> str:
    """Return the message of an error without its detail, which may quote a whole row with its payload."""
    return str(getattr(error, "message", None) or error)
