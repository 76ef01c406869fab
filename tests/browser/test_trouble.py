"""What does a page do when what it shows goes away?"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import expect

from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.browser.conftest import Visiting, open_house
from tests.factories import submit_one
from tests.system.test_outages import Server


@pytest.fixture
def postgres() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    server = Server(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_page_says_that_the_database_is_away_and_goes_on_by_itself(
    postgres: Server, migrated: Settings, visiting: Visiting
) -> None:
    own = replace(migrated, database_url=postgres.dsn, patience=timedelta(seconds=2))
    await migrate(own)
    async with open_house(own) as house:
        visit = await visiting(house)
        page = await visit.go("/")
        await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))

        postgres.kill()
        await expect(page.locator("#trouble")).to_contain_text("The page shows an older state")
        await expect(page.get_by_text("All is well.")).to_be_visible()  # what was seen before stays
        await visit.shot("database-away")

        postgres.revive()
        await expect(page.locator("#trouble")).to_be_hidden(timeout=15_000)
        await submit_one(house.engine, topic="after")
        await expect(page.get_by_role("row", name=re.compile("^after"))).to_be_visible()


async def test_a_page_says_that_the_server_is_away(migrated: Settings, visiting: Visiting) -> None:
    async with open_house(migrated) as house:
        visit = await visiting(house)
        visit.watch.expected += ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
        page = await visit.go("/")
        await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
        await house.server.drain()
        await expect(page.locator("#trouble")).to_contain_text("The server cannot be reached")
        await page.close()


async def test_a_page_that_cannot_be_kept_fresh_says_so_and_stays(
    migrated: Settings, visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.guard.MAX_OF_MANY", 0)
    async with open_house(migrated) as house:
        page = await (await visiting(house)).go("/")
        await expect(page.locator("#trouble")).to_contain_text("This page stays as it was loaded")
        await expect(page.locator("#trouble")).to_contain_text("Your address has 0 pages open that update themselves")
        await expect(page.get_by_text("All is well.")).to_be_visible()
        await page.close()
