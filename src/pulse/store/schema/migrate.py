"""How is the schema made and changed, and which releases work with which schema?

Numbered files are applied one statement at a time, and each statement can be run again. Several processes may do this
at once: there is no lock, so a statement that loses a race is simply tried again and finds its work done. A file that
was cut short is run again from its start.

Each file states the oldest code that still works on the schema after it (`works with code from: N`, where N is the
newest migration that this code knows), and this release states the oldest schema that it works on. Within that range
old and new processes run side by side; outside it they say so and stop.
"""

from __future__ import annotations

import asyncio
import re
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from pulse.model.errors import InvalidSettings, SchemaMismatch
from pulse.store.connections.pool import LOST, Connection, connect, connect_checked, translate
from pulse.store.statements import in_schema

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pulse.settings import Settings

OLDEST_SCHEMA = 14  # the oldest that this release works on
RACE_TRIES = 50
# Never queue behind a long transaction, with everybody else queueing behind us. SET LOCAL, because behind a pooler a
# setting of the session would reach other clients.
LOCK_PATIENCE = "set local lock_timeout = '2s';\n"

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_WORKS_FROM = re.compile(r"^-- works with code from: (\d+)$", re.MULTILINE)

# The errors of a statement when another process does the same at the same instant.
RACES = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateFunctionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.InternalServerError,  # "tuple concurrently updated": two CREATE OR REPLACE at once
)


class Migration(NamedTuple):
    version: int
    name: str
    works_from: int
    statements: list[str]


class SchemaState(NamedTuple):
    version: int  # 0 if there is no schema
    works_from: int
    buckets: int


def load_migrations() -> list[Migration]:
    return [_read(int(match[1]), match[2], source.read_text()) for match, source in _find_files()]


def _find_files() -> list[tuple[re.Match[str], Traversable]]:
    """Return the files of the migrations in their order, with the parts of their names."""
    folder = files("pulse.store.schema").joinpath("migrations")
    found = [(match, source) for source in folder.iterdir() if (match := _FILE.fullmatch(source.name))]
    return sorted(found, key=lambda each: int(each[0][1]))


def _read(version: int, name: str, text: str) -> Migration:
    works_from = _WORKS_FROM.search(text)
    assert works_from, f"migration {version} does not say which code it works with"
    return Migration(version, name, int(works_from[1]), split(text))


def split(text: str) -> list[str]:
    """Split a text into statements. One ends with a semicolon at the end of a line, not in a comment or a $$ body."""
    statements: list[str] = []
    lines: list[str] = []
    is_open = False
    for line in text.splitlines():
        lines.append(line)
        if line.startswith("--"):
            continue
        is_open ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not is_open:
            statements.append("\n".join(lines).strip())
            lines = []
    return statements


def newest() -> int:
    """Return the version of the last migration. Every start asks for it, so it does not read the files themselves."""
    return int(_find_files()[-1][0][1])


def render(settings: Settings) -> str:
    """Return all migrations as one script, for people who apply DDL with a tool of their own."""
    parts = [statement for migration in load_migrations() for statement in _steps(migration, settings)]
    return in_schema("\n\n".join([*_foundation(settings), *parts]), settings.schema) + "\n"


def _foundation(settings: Settings) -> list[str]:
    return [
        f'create schema if not exists "{settings.schema}";',
        (
            "create table if not exists pulse.migrations (version int primary key, name text not null, "
            "works_from int not null, applied_at timestamptz not null default now());"
        ),
    ]


def _steps(migration: Migration, settings: Settings) -> list[str]:
    record = (
        f"insert into pulse.migrations (version, name, works_from) "  # noqa: S608  numbers and names of our own
        f"values ({migration.version}, '{migration.name}', {migration.works_from}) on conflict do nothing;"
    )
    install = f"insert into pulse.installation (buckets) values ({settings.buckets}) on conflict do nothing;"  # noqa: S608
    return [*migration.statements, *([install] if migration.version == 1 else []), record]


async def migrate(settings: Settings) -> list[Migration]:
    """Apply the missing migrations, and return them."""
    conn = await connect_checked(settings)
    try:
        state = await read_state(conn, settings.schema)
        if state.version and state.buckets != settings.buckets and settings.buckets != 1:
            raise InvalidSettings(
                f"this schema was made with {state.buckets} buckets, which is part of every job's id: "
                f"unset PULSE_BUCKETS, or make a new schema with {settings.buckets}"
            )
        missing = [migration for migration in load_migrations() if migration.version > state.version]
        if missing:
            for sql in _foundation(settings):
                await _apply(conn, sql, settings.schema)
        for migration in missing:
            for sql in _steps(migration, settings):
                await _apply(conn, sql, settings.schema)
    except (*LOST, asyncpg.PostgresError) as error:
        raise translate(error, settings) from error
    else:
        return missing
    finally:
        conn.terminate()


async def _apply(conn: asyncpg.Connection, sql: str, schema: str) -> None:
    for tries in range(1, RACE_TRIES + 1):
        try:
            await conn.execute(LOCK_PATIENCE + in_schema(sql, schema))
        except RACES:
            if tries == RACE_TRIES:
                raise
            await asyncio.sleep(0.02 * tries)
        else:
            return


async def check(settings: Settings) -> SchemaState:
    """Read the version of the schema, and refuse one that this release does not work with."""
    return _checked(await read_age(settings), settings.schema)


async def check_over(conn: Connection, schema: str) -> SchemaState:
    """Do as `check` does, over a connection that is open."""
    return _checked(await read_state(conn, schema), schema)


def _checked(state: SchemaState, schema: str) -> SchemaState:
    if problem := mismatch(state, schema):
        raise SchemaMismatch(problem)
    return state


async def read_age(settings: Settings) -> SchemaState:
    conn = await _connect(settings)
    try:
        return await read_state(conn, settings.schema)
    except (*LOST, asyncpg.PostgresError) as error:
        raise translate(error, settings) from error
    finally:
        conn.terminate()


def mismatch(state: SchemaState, schema: str) -> str | None:
    """Return why this release does not work with that schema, or None if it does."""
    if state.version == 0:
        return f"the database has no schema {schema!r} yet: run `pulse migrate`"
    if state.version < OLDEST_SCHEMA:
        return (
            f"schema {schema!r} is at version {state.version}, and this release works with {OLDEST_SCHEMA} and "
            "newer: run `pulse migrate`"
        )
    if state.works_from > newest():
        return (
            f"schema {schema!r} is at version {state.version}, which needs a release that knows version "
            f"{state.works_from}; this one knows {newest()}: upgrade pulse-postgres"
        )
    return None


async def read_state(conn: asyncpg.Connection | Connection, schema: str) -> SchemaState:
    """Read the state of the schema, which may not exist."""
    [found] = await conn.fetch("select to_regclass($1) is not null as is_there", f'"{schema}".migrations')
    if not found["is_there"]:
        return SchemaState(0, 0, 0)
    [row] = await conn.fetch(
        in_schema("select max(version) as version, max(works_from) as works_from from pulse.migrations", schema)
    )
    if row["version"] is None:
        return SchemaState(0, 0, 0)
    [installation] = await conn.fetch(in_schema("select buckets from pulse.installation", schema))
    return SchemaState(row["version"], row["works_from"], installation["buckets"])


async def _connect(settings: Settings) -> asyncpg.Connection:
    try:
        return await connect(settings)
    except (*LOST, asyncpg.PostgresError, ValueError) as error:
        raise translate(error, settings) from None


async def drop_schema(settings: Settings) -> None:
    """Drop the schema with all its jobs. This is for schemas of benchmarks and tests."""
    conn = await _connect(settings)
    try:
        await conn.execute(f'drop schema if exists "{settings.schema}" cascade')
    finally:
        conn.terminate()
