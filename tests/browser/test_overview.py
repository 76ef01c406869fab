"""Does the first page tell whether all is well, and keep telling it?"""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from pulse.model.jobs import Outcome
from tests.browser.conftest import PHONE, House, Visit, Visiting
from tests.factories import a_report, claim_one, submit_one

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"


async def some_work(house: House) -> None:
    for number in range(5):
        await submit_one(house.engine)
        claim = await claim_one(house.engine)
        await house.engine.claims.report([a_report(claim, Outcome.DISCARD if number == 0 else Outcome.COMPLETE)])
    await submit_one(house.engine, topic="waiting")
    await house.engine.duties.tally()


async def test_an_empty_house_is_well(visit: Visit) -> None:
    page = await visit.go("/")

    await expect(page.get_by_text("All is well.")).to_be_visible()
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.check_access()
    await visit.shot("overview-empty")


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
async def test_the_overview_shows_what_happens(house: House, visiting: Visiting, kind: str) -> None:
    await some_work(house)
    options = {"viewport": PHONE} if kind == "phone" else {"color_scheme": kind}
    visit = await visiting(**options)

    page = await visit.go("/")

    await expect(page.get_by_text("1 dead letter in mail")).to_be_visible()
    await expect(page.get_by_text("no worker is connected for waiting")).to_be_visible()
    await expect(page.get_by_role("row", name=re.compile("^mail"))).to_be_visible()
    await expect(page.locator("figure.chart canvas")).to_have_count(4)
    await expect(page.locator("#chart-wait .u-label")).to_have_text(["Time", "half within", "95 % within"])
    await expect(page.locator(".figure")).to_have_count(12)  # which leaves no gap in rows of two, three or six
    lines = "labels => labels.map(label => label.getClientRects().length)"
    assert set(await page.locator(".figure span").evaluate_all(lines)) == {1}
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"overview-{kind}")


async def test_it_updates_itself(house: House, visit: Visit) -> None:
    page = await visit.go("/")
    await expect(page.get_by_text("All is well.")).to_be_visible()

    await submit_one(house.engine, topic="sudden")

    await expect(page.get_by_role("row", name=re.compile("^sudden"))).to_be_visible()


async def test_a_topic_is_paused_and_resumed(house: House, visit: Visit) -> None:
    await submit_one(house.engine, topic="mail/a b")
    page = await visit.go("/")

    await page.get_by_role("button", name="Pause mail/a b").click()
    await visit.said("mail/a b is paused")
    assert [pause.topic for pause in await house.engine.jobs.pauses()] == ["mail/a b"]

    await expect(page.get_by_role("button", name="Resume mail/a b")).to_have_text("Resume")  # though it has the focus
    await page.get_by_role("button", name="Resume mail/a b").click()
    await visit.said("mail/a b is resumed")
    assert await house.engine.jobs.pauses() == []


async def test_charts_show_a_day_and_a_week(house: House, visit: Visit) -> None:
    await some_work(house)
    page = await visit.go("/")
    for each in ("day", "week"):
        await page.get_by_role("link", name=each, exact=True).click()
        await expect(page.get_by_role("heading", name=f"The last {each}")).to_be_visible()
        await expect(page.locator("figure.chart canvas")).to_have_count(4)
