"""Signing in and out, as people do it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from pulse.settings import Settings
from tests.browser.conftest import PHONE, House, Visiting, open_house
from tests.factories import submit_one


async def test_signing_in_acting_and_signing_out(house: House, migrated: Settings, visiting: Visiting) -> None:
    _, secret = await house.engine.tokens.create("ada", ["operate"])
    await submit_one(house.engine)
    async with open_house(migrated) as closed:
        visit = await visiting(closed)
        visit.watch.expected.append("status of 401")  # of the wrong token
        page = await visit.go("/?range=day")
        await expect(page).to_have_url(re.compile(r"/sign-in\?next="))
        await visit.check_access()
        await visit.shot("sign-in")

        await page.get_by_label("Token").fill("pulse_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_have_text("this token is not known here")

        await page.get_by_label("Token").fill(secret)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="The last day")).to_be_visible()
        await page.get_by_role("button", name="Pause mail").click()
        await visit.said("mail is paused")

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await page.go_back()
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_the_sign_in_page_fits_a_phone(house: House, migrated: Settings, visiting: Visiting) -> None:
    await house.engine.tokens.create("ada", ["operate"])
    async with open_house(migrated) as closed:
        visit = await visiting(closed, viewport=PHONE, color_scheme="dark")
        await visit.go("/")
        await visit.check_fits()
        await visit.check_access()
        await visit.shot("sign-in-phone")


@pytest.mark.parametrize("width", [390, 320])
async def test_the_header_has_two_lines_on_a_phone(
    house: House, migrated: Settings, visiting: Visiting, width: int
) -> None:
    _, secret = await house.engine.tokens.create("ada-of-the-night-watch", ["read"])
    async with open_house(migrated) as closed:
        visit = await visiting(closed, viewport={"width": width, "height": 844}, java_script_enabled=False)
        page = await visit.go("/workers")
        await page.get_by_label("Token").fill(secret)
        await page.keyboard.press("Enter")

        links = page.get_by_role("navigation", name="Main").get_by_role("link")
        await expect(links).to_have_count(5)
        assert len({(await link.bounding_box() or {})["y"] for link in await links.all()}) == 1
        assert (await page.locator("header.top").bounding_box() or {})["height"] < 90
        await expect(links.last).to_be_in_viewport(ratio=1)  # the page one is on
        await expect(page.get_by_role("button", name="Sign out")).to_be_in_viewport(ratio=1)
        await visit.check_fits()
        await visit.shot(f"header-{width}")


async def test_whoever_is_revoked_while_looking_is_shown_the_door(
    house: House, migrated: Settings, visiting: Visiting
) -> None:
    _, secret = await house.engine.tokens.create("ada", ["operate"])
    async with open_house(migrated) as closed:
        visit = await visiting(closed)
        page = await visit.go("/")
        await page.get_by_label("Token").fill(secret)
        await page.keyboard.press("Enter")
        await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
        await closed.server._engine.tokens.revoke("ada")
        await submit_one(house.engine, topic="sudden")  # so that there is news
        await expect(page.get_by_label("Token")).to_be_visible()


async def test_keys_lead_to_the_pages(visiting: Visiting) -> None:
    visit = await visiting()
    page = await visit.go("/")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page).to_have_url(visit.house.url + "/")


async def test_the_theme_is_the_readers_choice_and_kept(visiting: Visiting) -> None:
    visit = await visiting(color_scheme="light")
    page = await visit.go("/")
    await page.get_by_role("button", name="Light or dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
