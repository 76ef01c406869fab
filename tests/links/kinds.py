"""The ways in which a program holds a connection: each opened, used and ended as its own users do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import Any

import asyncpg
import django
import django.conf
import psycopg
import psycopg2
from django.db import connection as django_connection
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session


async def done(answer: Any) -> Any:
    """Synchronous and asynchronous twins have the same methods; only the answers of one must be awaited."""
    return await answer if isawaitable(answer) else answer


class Kind:
    """A connection that was opened, and its transactions. Most begin one by themselves."""

    is_async = False
    conn: Any

    async def open(self, url: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        await done(self.conn.close())

    async def do(self, work: Callable[[], Any]) -> Any:
        """Do something with the connection where it may be done, and await it if that is called for."""
        return await done(work())

    async def begin(self) -> None: ...

    async def run(self, sql: str) -> None:
        await done(self.conn.execute(sql))

    async def commit(self) -> None:
        await done(self.conn.commit())

    async def rollback(self) -> None:
        await done(self.conn.rollback())

    async def savepoint(self) -> Callable[[], Any]:
        """What undoes everything from here on."""
        await self.run("savepoint here")
        return lambda: self.run("rollback to savepoint here")


class Psycopg(Kind):
    async def open(self, url: str) -> None:
        self.conn = psycopg.connect(url)


class AsyncPsycopg(Kind):
    is_async = True

    async def open(self, url: str) -> None:
        self.conn = await psycopg.AsyncConnection.connect(url)


class Psycopg2(Kind):
    async def open(self, url: str) -> None:
        self.conn = psycopg2.connect(url)

    async def run(self, sql: str) -> None:
        with self.conn.cursor() as cursor:
            cursor.execute(sql)


class Asyncpg(Kind):
    is_async = True

    async def open(self, url: str) -> None:
        self.conn = await asyncpg.connect(url)

    async def begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def savepoint(self) -> Callable[[], Any]:
        nested = self.conn.transaction()
        await nested.start()
        return nested.rollback  # type: ignore[no-any-return]


class AsyncpgPool(Asyncpg):
    async def open(self, url: str) -> None:
        self._pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
        self.conn = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.conn)
        await self._pool.close()


class Alchemy(Kind):
    def __init__(self, driver: str, make: Callable[[Any], Any]) -> None:
        self._address, self._make = f"postgresql+{driver}://", make

    def _engine(self, url: str) -> Any:
        connect = psycopg2.connect if "psycopg2" in self._address else psycopg.connect
        return create_engine(self._address, creator=lambda: connect(url), poolclass=NullPool)

    async def open(self, url: str) -> None:
        self.engine = self._engine(url)
        self.conn = await done(self._make(self.engine))

    async def close(self) -> None:
        await super().close()
        await done(self.engine.dispose())

    async def run(self, sql: str) -> None:
        await done(self.conn.execute(text(sql)))

    async def savepoint(self) -> Callable[[], Any]:
        nested = await done(self.conn.begin_nested())
        return lambda: done(nested.rollback())


class AsyncAlchemy(Alchemy):
    is_async = True

    def _engine(self, url: str) -> Any:
        connect: Any = asyncpg.connect if "asyncpg" in self._address else psycopg.AsyncConnection.connect
        return create_async_engine(self._address, async_creator=lambda: connect(url), poolclass=NullPool)


class Django(Kind):
    """In a thread of its own: Django's connection belongs to a thread, and refuses one with an event loop."""

    async def open(self, url: str) -> None:
        if not django.conf.settings.configured:
            at = conninfo_to_dict(url)
            names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
            address = {name: at.get(given, "") for name, given in names.items()}
            database = {"ENGINE": "django.db.backends.postgresql", **address}
            django.conf.settings.configure(DATABASES={"default": database}, LOGGING_CONFIG=None)
            django.setup()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.conn = django_connection

    async def do(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        await self.do(lambda: self.conn.close())
        self._thread.shutdown()

    async def begin(self) -> None:
        self._atomic = django_transaction.atomic()
        await self.do(self._atomic.__enter__)

    async def run(self, sql: str) -> None:
        def execute() -> None:
            with self.conn.cursor() as cursor:
                cursor.execute(sql)

        await self.do(execute)

    async def commit(self) -> None:
        await self.do(lambda: self._atomic.__exit__(None, None, None))

    async def rollback(self) -> None:
        await self.do(lambda: django_transaction.set_rollback(True))
        await self.commit()

    async def savepoint(self) -> Callable[[], Any]:
        name = await self.do(django_transaction.savepoint)
        return lambda: self.do(lambda: django_transaction.savepoint_rollback(name))


def _connect(engine: Any) -> Any:
    return engine.connect()


KINDS: dict[str, Callable[[], Kind]] = {
    "psycopg": Psycopg,
    "psycopg async": AsyncPsycopg,
    "psycopg2": Psycopg2,
    "asyncpg": Asyncpg,
    "asyncpg pool": AsyncpgPool,
    "Session over psycopg": lambda: Alchemy("psycopg", Session),
    "Session over psycopg2": lambda: Alchemy("psycopg2", Session),
    "Connection over psycopg": lambda: Alchemy("psycopg", _connect),
    "Connection over psycopg2": lambda: Alchemy("psycopg2", _connect),
    "AsyncSession over psycopg": lambda: AsyncAlchemy("psycopg", AsyncSession),
    "AsyncSession over asyncpg": lambda: AsyncAlchemy("asyncpg", AsyncSession),
    "AsyncConnection over psycopg": lambda: AsyncAlchemy("psycopg", _connect),
    "AsyncConnection over asyncpg": lambda: AsyncAlchemy("asyncpg", _connect),
    "Django": Django,
}
