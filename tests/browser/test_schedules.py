"""Can an operator see what fires when, and steer it, in a browser?"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from playwright.async_api import Dialog, Page, expect

from pulse.model.jobs import Outcome, RetryPolicy
from pulse.model.schedules import Declared, NewSchedule, Schedule
from tests.browser.conftest import PHONE, House, Visit, Visiting
from tests.factories import a_new_job, a_report, claim_one

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
PAYLOAD = '{"</pre><script>alert(2)</script>": "\\u001b[31m \u202e \' onload=alert(3) \\""}'
HOUR = timedelta(hours=1)


async def make(house: House, name: str, **given: Any) -> Schedule:
    if not {"every", "cron", "run_at"} & given.keys():
        given["every"] = HOUR
    job = given.pop("job", a_new_job())
    return (await house.engine.schedules.create(NewSchedule(name=name, job=job, **given)))[0]


async def change(house: House, sql: str) -> None:
    conn = await asyncpg.connect(house.engine.settings.database_url)
    await conn.execute(sql)
    await conn.close()


async def some_schedules(house: House) -> None:
    await make(house, "billing/invoices", cron="0 9 * * 1-5", tz="Europe/Berlin")
    await make(house, "cache/warm", every=timedelta(minutes=5), job=a_new_job(task="warm_cache", topic="cache"))
    await make(house, "report/monthly", cron="30 2 1 * *", job=a_new_job(task="monthly_report"))
    await make(house, "cleanup/nightly", cron="0 3 * * *", job=a_new_job(task="cleanup"))
    await make(house, "launch", run_at=datetime.now(UTC) + timedelta(days=2), job=a_new_job(task="announce"))
    await house.engine.schedules.pause("cleanup/nightly", reason="the disk is being replaced")
    declared = NewSchedule(name="shop/prices", job=a_new_job(task="prices"), cron="*/20 * * * *")
    await house.engine.schedules.sync("shop", [Declared(schedule=declared)])
    await make(house, "zone/gone", cron="0 1 * * *", job=a_new_job(task="sync"))
    await change(house, "update pulse.schedules set status = 'BROKEN', next_run_at = null, error = "
                        "'unknown time zone ''Atlantis''' where name = 'zone/gone'")  # fmt: skip


def never_asked(page: Page) -> list[str]:
    """What scripts of others have said. Closed at once, so that a test that fails ends."""
    heard: list[str] = []

    async def hear(dialog: Dialog) -> None:
        heard.append(dialog.message)
        await dialog.dismiss()

    page.on("dialog", hear)
    return heard


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
async def test_the_list_and_the_week(house: House, visiting: Visiting, kind: str) -> None:
    await some_schedules(house)
    visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {"color_scheme": kind}))

    page = await visit.go("/schedules")
    await expect(page.get_by_role("row", name="billing/invoices")).to_contain_text(
        "at 09:00 on Monday to Friday, Europe/Berlin"
    )
    await expect(page.get_by_text("zone/gone is broken: unknown time zone")).to_be_visible()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"schedules-{kind}")

    await page.get_by_role("link", name="Next week").click()
    await expect(page.locator(".day").first).to_be_visible()
    await expect(page.get_by_text("every 5m · 2,0")).to_be_visible()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"schedules-week-{kind}")


async def test_a_filter_keeps_what_is_typed_while_the_list_lives(house: House, visit: Visit) -> None:
    await some_schedules(house)
    page = await visit.go("/schedules")
    field = page.get_by_label("Name or task")
    await field.press_sequentially("invo")

    await make(house, "a new one")
    await expect(page.get_by_role("row", name=re.compile("^a new one"))).to_be_visible()

    await expect(field).to_have_value("invo")
    await expect(field).to_be_focused()
    await field.press("Enter")
    await expect(page.get_by_role("row", name="billing/invoices")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("kind", ["light", "phone"])
async def test_one_schedule_with_its_log(house: House, visiting: Visiting, kind: str) -> None:
    berlin = await make(
        house, "a/b ü", cron="30 2 * * *", tz="Europe/Berlin", job=a_new_job(topic="mail", tags=("eu",))
    )
    end = datetime.now(UTC) - timedelta(days=1)
    await house.engine.schedules.backfill(berlin.id, start=end - timedelta(days=3), end=end, limit=10)
    claim = await claim_one(house.engine)
    await house.engine.claims.report([a_report(claim, Outcome.DISCARD)])
    await change(house, f"insert into pulse.fires values ('{berlin.id}', now() - interval '9 days', 'SKIPPED', "
                        "'timetable', now(), 4, now() - interval '5 days', null, null, 'paused')")  # fmt: skip
    visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {}))

    page = await visit.go("/schedules/a%2Fb%20%C3%BC")

    await expect(page.get_by_role("heading", name="a/b ü")).to_be_visible()
    await expect(page.locator("ol.upcoming li")).to_have_count(10)
    await expect(page.get_by_text("dead lettered")).to_be_visible()
    await expect(page.get_by_text("4 together")).to_be_visible()
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"schedule-{kind}")


async def test_it_is_paused_resumed_triggered_and_deleted(house: House, visiting: Visiting) -> None:
    await make(house, "daily")
    visit, other = await visiting(), await visiting()
    page, beside = await visit.go("/schedules/daily"), await other.go("/schedules/daily")

    await page.get_by_text("Pause …").click()
    await page.get_by_label("Why").fill("holidays")
    await page.get_by_role("button", name="Pause").click()
    await visit.said("daily is paused")
    await expect(beside.get_by_text("holidays")).to_be_visible()  # the other operator sees it at once
    await page.get_by_role("button", name="Resume").click()
    await visit.said("daily is resumed")
    await page.get_by_role("button", name="Trigger now").click()
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("daily has made job")
    await expect(page.locator("tr", has_text="trigger")).to_contain_text("pending")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("daily is deleted")
    await expect(page.get_by_role("heading", name="Schedules")).to_be_visible()

    other.watch.expected.append("404")
    await beside.get_by_role("button", name="Trigger now").click()
    await beside.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await other.said("no schedule")


async def test_the_past_is_made_up_for_after_a_look(house: House, visiting: Visiting) -> None:
    await make(house, "hourly", cron="0 * * * *", tz="Asia/Kolkata")
    visit = await visiting(timezone_id="America/New_York")
    page = await visit.go("/schedules/hourly")

    await page.get_by_text("Make up for the past").click()
    await page.get_by_label("From").fill("2026-01-01T00:00")
    await page.get_by_label("Until").fill("2026-01-01T03:00")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.get_by_text("3 jobs would be made (times in Asia/Kolkata)")).to_be_visible()
    await expect(page.locator("#backfill li").first).to_have_text("first Thu 2026-01-01 00:00:00 +05:30")
    await visit.check_access()
    await visit.shot("schedule-backfill")
    await page.get_by_role("button", name="Make 3 jobs").click()

    await visit.said("3 jobs made for the past")
    await expect(page.locator("tr", has_text="backfill")).to_have_count(3)


@pytest.mark.parametrize("kind", ["light", "phone"])
async def test_a_schedule_is_made_with_a_look_ahead_while_typing(house: House, visiting: Visiting, kind: str) -> None:
    visit = await visiting(timezone_id="Asia/Tokyo", **({"viewport": PHONE} if kind == "phone" else {}))
    page = await visit.go("/schedules/new")

    await page.get_by_label("Name").fill("weekdays")
    await page.get_by_label("Expression", exact=True).press_sequentially("0 9 * *")
    await expect(page.get_by_text("expected exactly 5 fields (minute, hour")).to_be_visible()
    await page.get_by_label("Expression", exact=True).press_sequentially(" 1-5")
    await page.get_by_role("button", name="Mine").click()
    await expect(page.get_by_text("at 09:00 on Monday to Friday, Asia/Tokyo")).to_be_visible()
    await expect(page.locator(".so-far li")).to_have_count(5)
    await page.get_by_label("Task").fill("greet")
    await page.get_by_label("Payload").fill("{'no': json}")
    await page.get_by_text("Waits between attempts").first.click()
    await expect(page.get_by_role("textbox", name="First wait")).to_be_visible()
    await page.get_by_label("After the nth failure").select_option("list")
    await expect(page.get_by_role("textbox", name="First wait")).to_be_hidden()
    await page.get_by_label("Waits, separated by commas").fill("10s, 1m")
    visit.watch.expected.append("400")
    await page.get_by_role("button", name="Create it").click()
    await expect(page.locator("[data-refusal]")).to_contain_text("payload is not JSON")
    await expect(page.get_by_label("Name")).to_have_value("weekdays")  # nothing that was typed is lost
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"schedule-new-{kind}")
    await page.get_by_label("Payload").fill('{"to": "all"}')
    await page.get_by_role("button", name="Create it").click()

    await visit.said("weekdays is created")
    made = await house.engine.schedules.get("weekdays")
    assert (made.timed.cron, made.timed.tz, made.job.payload) == ("0 9 * * 1-5", "Asia/Tokyo", '{"to": "all"}')
    assert made.job.retry == RetryPolicy(kind="list", delays=(10, 60))


async def test_a_schedule_is_edited(house: House, visit: Visit) -> None:
    await make(house, "daily", every=timedelta(minutes=90))
    page = await visit.go("/schedules/daily")
    await page.get_by_role("link", name="Edit").click()

    await expect(page.get_by_text("every 1h30m")).to_be_visible()
    await page.get_by_label("Once").check()
    await page.get_by_label("At", exact=True).fill("2035-01-01T09:30")
    await expect(page.get_by_text("2035-01-01 09:30:00").first).to_be_visible()
    await visit.check_access()
    await visit.shot("schedule-edit")
    await page.get_by_role("button", name="Save").click()

    await visit.said("daily is changed: run_at")
    assert (await house.engine.schedules.get("daily")).timed.run_at == datetime(2035, 1, 1, 9, 30, tzinfo=UTC)


async def test_names_payloads_and_errors_of_others_are_only_text(house: House, visit: Visit) -> None:
    job = a_new_job(task=HOSTILE, topic=HOSTILE, tags=(HOSTILE,), payload=PAYLOAD)
    own = await make(house, HOSTILE, job=job)
    await house.engine.schedules.pause(own.id, reason=HOSTILE)
    await change(house, f"update pulse.schedules set error = $x${HOSTILE}\x1b[31m$x$, app = $x${HOSTILE}$x$")
    await change(house, f"insert into pulse.fires values ('{own.id}', now(), 'SKIPPED', 'timetable', now(), 1, now(), "
                        f"null, null, $x${HOSTILE}$x$)")  # fmt: skip
    heard = never_asked(visit.page)

    for path in ("/schedules", f"/schedules/{own.id}", f"/schedules/{own.id}/edit", "/schedules?text=" + HOSTILE):
        page = await visit.go(path)
        assert await page.locator("main img, main script").count() == 0
        await expect(page.locator("main")).to_contain_text("onerror=alert(1)>\\u202e")
    page = await visit.go(f"/schedules/{own.id}")
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await page.get_by_role("button", name="Trigger now").click()
    await expect(page.get_by_role("dialog")).to_contain_text("<img src=x")
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("onerror=alert(1)>\\u202e has made job")
    await visit.check_fits()
    await visit.shot("schedule-hostile")

    assert heard == []
