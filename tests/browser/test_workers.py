"""Does one see who is connected, and who of them is of another release?"""

from __future__ import annotations

import pytest
from playwright.async_api import expect

import pulse
from pulse.engine.dispatch.worker_stream import Pool, WorkerStream
from tests.browser.conftest import PHONE, House, Visit, Visiting


async def sit_down(house: House, *streams: WorkerStream) -> None:
    await house.engine.workers.duty(lambda: list(streams))()


@pytest.mark.parametrize("kind", ["light", "phone"])
async def test_workers(house: House, visiting: Visiting, kind: str) -> None:
    ours = WorkerStream(f"shop/mail-{kind}", [Pool(("mail", "sms"), 10)], version=f"pulse-python/{pulse.__version__}")
    old = WorkerStream(f"shop/images-{kind}", [Pool(("images",), 4)], version="pulse-python/0.0.9")
    await sit_down(house, ours, old)
    visit: Visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {}))

    page = await visit.go("/workers")

    await expect(page.get_by_role("row", name=f"shop/mail-{kind}")).to_contain_text("0 / 10")
    await expect(page.get_by_role("row", name=f"shop/images-{kind}")).to_contain_text("other release")
    await expect(page.locator(".tag")).to_have_count(1)
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"workers-{kind}")


async def test_nobody_and_then_somebody(house: House, visit: Visit) -> None:
    page = await visit.go("/workers")
    await expect(page.get_by_text("No worker is connected.")).to_be_visible()

    await sit_down(house, WorkerStream("shop/late", [Pool(("mail",), 1)], version="go/1"))

    await expect(page.get_by_role("row", name="shop/late")).to_be_visible()
