"""The README's example does what the README says, in a folder of its own."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from pulse import Pulse
from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.conftest import recreate_database
from tests.sdk.apps_here import working
from tests.waiting import connected, until

README = (Path(__file__).parents[2] / "README.md").read_text()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str]


async def test_what_you_write_does_what_it_says(worker_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as it stands, with an order and a session around it."""
    [example] = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "send_receipt" in block]
    url = await recreate_database(f"readme_{worker_id}")
    await migrate(Settings(database_url=url))
    declarations, uses = example.split("job = await", 1)
    shop = ModuleType("readme_shop")
    monkeypatch.setitem(sys.modules, shop.__name__, shop)  # a process would look for the app there
    names: dict[str, Any] = shop.__dict__
    names["order"] = Order(id=uuid4(), email="a@b.c")
    exec(declarations, names)
    app: Pulse = names["app"]
    app.settings = Settings(database_url=url)
    body = textwrap.indent(f"job = await{uses}\nreturn sent", "    ")
    exec(f"async def use():\n{body}", names)
    database = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with database.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)

    async with connected(url) as raw, working(app), AsyncSession(database) as names["session"]:
        assert await names["use"]() is True
        stored = (await names["session"].execute(select(Order.email))).scalars().all()
        await until(lambda: _has_done(raw, {"COMPLETED": 2, "SCHEDULED": 1}))
    await database.dispose()

    assert stored == ["a@b.c"]


async def _has_done(conn: asyncpg.Connection, wanted: dict[str, int]) -> bool:
    rows = await conn.fetch("select status, count(*) from pulse.jobs group by status")
    return {row["status"]: row["count"] for row in rows} == wanted


def test_the_sql_example_submits_what_the_task_takes(worker_id: str) -> None:
    [example] = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    url = asyncio.run(recreate_database(f"readme_{worker_id}"))
    asyncio.run(migrate(Settings(database_url=url)))

    async def run() -> asyncpg.Record:
        conn = await asyncpg.connect(url)
        await conn.execute("create table orders (id uuid, email text)")
        await conn.execute(example)
        [job] = await conn.fetch(
            "select task, topic, payload ->> 'to' as receiver, payload ->> 'order_id' as id from pulse.jobs"
        )
        await conn.close()
        return job

    job = asyncio.run(run())

    assert (job["task"], job["topic"], job["receiver"]) == ("tasks.send_receipt", "mail", "ada@example.com")
    assert str(UUID(job["id"])) == job["id"]
