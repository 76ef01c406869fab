"""What does a newcomer see after `make demo`?"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace

import pytest
from playwright.async_api import expect

from pulse.settings import Settings
from tests.browser.conftest import Visiting, open_house


@pytest.mark.slow
async def test_a_first_look_after_the_demo(migrated: Settings, visiting: Visiting) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pulse.cli.main", "demo", "--database-url", str(migrated.database_url)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await demo.wait() == 0

    async with open_house(replace(migrated, schema="pulse_demo")) as house:
        visit = await visiting(house)
        page = await visit.go("/")
        await expect(page.get_by_role("row", name="mail")).to_be_visible()
        await expect(page.get_by_text(re.compile(r"\d+ dead letters in"))).to_be_visible()
        await expect(page.locator("#chart-throughput")).to_contain_text("completed 4,")
        await visit.check_access()
        await visit.shot("first-look")
