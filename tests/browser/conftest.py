"""A server, a browser, and pages that are watched: whatever a page does that it must not do fails the test.

One browser for all tests of a process and one server for those of a file, in one event loop; every test has a context
of its own, so no cookies, and empty tables. Screenshots are kept in `build/screenshots`, or where PULSE_SCREENSHOTS
says.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from pulse.engine.engine import Engine, open_engine
from pulse.server import Server, open_server
from pulse.settings import Settings
from tests.conftest import TABLES

ROOT = Path(__file__).parents[2]
SCREENSHOTS = Path(os.environ.get("PULSE_SCREENSHOTS", ROOT / "build" / "screenshots"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = (Path(__file__).parent / "axe.js").read_text()
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]

expect.set_options(timeout=20_000)  # milliseconds: machines that run tests stand still for seconds at times


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine: apt-get install chromium"))


@dataclass
class House:
    """A running server with a dashboard, and a way to put things into its database."""

    server: Server
    engine: Engine  # of the test's own, whose duties are not running

    @property
    def url(self) -> str:
        return f"http://{self.server.http_address}"


# Not for all tests of a process: while others run, nobody would read what it is told, until the database waits for it.
@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def standing(migrated: Settings) -> AsyncIterator[House]:
    await empty_tables(migrated)  # of tokens above all: a server that finds some wants them from everybody
    async with open_house(replace(migrated, alarm_networks="127.0.0.0/8")) as house:  # alarms may call this machine
        yield house


@asynccontextmanager
async def open_house(settings: Settings, **changes: Any) -> AsyncIterator[House]:
    """A server of one's own, for tests that stop it or need other settings."""
    listening = replace(settings, listen="127.0.0.1:0", http_listen="127.0.0.1:0", **changes)
    async with open_server(listening) as server, open_engine(settings) as engine:
        yield House(server, engine)


@pytest_asyncio.fixture(loop_scope="session")
async def house(standing: House, migrated: Settings) -> House:
    """The server, over empty tables."""
    await empty_tables(migrated)
    return standing


async def empty_tables(settings: Settings) -> None:
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("; ".join(f"delete from pulse.{table}" for table in TABLES))
    await conn.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        await browser.close()


class Watch:
    """What pages must not do: complain, break, or ask another host."""

    def __init__(self, house_url: str) -> None:
        self._house_url = house_url
        self.problems: list[str] = []
        self.expected: list[str] = []  # parts of complaints that a test provokes

    def follow(self, page: Page) -> None:
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"broke: {error}"))
        page.on("request", lambda request: self._check(request.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"{kind}: {text}")

    def _check(self, url: str) -> None:
        if not url.startswith((self._house_url, "data:", "blob:", "about:")):
            self.problems.append(f"asked {url}")

    def unexpected(self) -> list[str]:
        return [problem for problem in self.problems if not any(part in problem for part in self.expected)]


@dataclass
class Visit:
    """One person's browser window."""

    page: Page
    watch: Watch
    house: House
    context: BrowserContext

    async def go(self, path: str) -> Page:
        await self.page.goto(self.house.url + path)
        return self.page

    async def shot(self, name: str) -> None:
        """Kept for people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True, animations="disabled")

    async def check_access(self) -> None:
        """By axe: nothing that keeps people from using the page."""
        await self.page.evaluate(AXE)
        found = await self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations"
            ".filter(each => ['serious', 'critical'].includes(each.impact))"
            ".map(each => each.id + ': ' + each.nodes.map(node => node.html).slice(0, 3).join(' | ')))"
        )
        assert found == []

    async def check_fits(self) -> None:
        """Nothing sticks out at the side."""
        assert await self.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    async def said(self, text: str | re.Pattern[str]) -> None:
        """The page tells what was done."""
        await self.page.locator("#said p", has_text=text).first.wait_for()


Visiting = Callable[..., Any]


@pytest_asyncio.fixture(loop_scope="session")
async def visiting(browser: Browser, house: House) -> AsyncIterator[Visiting]:
    """`await visiting()` is a new window; `await visiting(color_scheme="dark", viewport=…)` another kind of one."""
    async with AsyncExitStack() as stack:
        watches: list[Watch] = []

        async def visit(at: House = house, **options: Any) -> Visit:
            context = await browser.new_context(**options)
            stack.push_async_callback(context.close)
            watch = Watch(at.url)
            watches.append(watch)
            page = await context.new_page()
            page.set_default_timeout(30_000)
            watch.follow(page)
            return Visit(page, watch, at, context)

        yield visit
    for watch in watches:
        assert watch.unexpected() == []


@pytest_asyncio.fixture(loop_scope="session")
async def visit(visiting: Visiting) -> Visit:
    found: Visit = await visiting()
    return found


PHONE = {"width": 390, "height": 844}
