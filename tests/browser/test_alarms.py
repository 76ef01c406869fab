"""Can an operator see which URLs are woken and what came of it, and steer it, in a browser?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from playwright.async_api import expect

from pulse.model.alarms import Alarm, NewAlarm
from tests.browser.conftest import PHONE, House, Visit, Visiting
from tests.browser.test_schedules import HOSTILE, PAYLOAD, change, never_asked

URL = "http://127.0.0.1:9/wake"
HOUR = timedelta(hours=1)


async def set_one(house: House, **given: Any) -> Alarm:
    if not {"fire_at", "cron"} & given.keys():
        given["delay"] = given.get("delay", HOUR)
    return (await house.engine.alarms.set(NewAlarm(**{"owner": "shop", "url": URL} | given))).alarm


async def log(
    house: House, alarm: Alarm, outcome: str, status: int | None, error: str | None, answer: str = ""
) -> None:
    conn = await asyncpg.connect(house.engine.settings.database_url)
    await conn.execute(
        "insert into pulse.deliveries select $1, coalesce(max(lease_id), 0) + 1, now(), count(*) + 1, $2, now(), "
        "'120 ms', $3, $4, $5, null from pulse.deliveries where alarm_id = $1",
        *(alarm.id, outcome, status, error, answer),
    )
    await conn.close()


async def some_alarms(house: House) -> Alarm:
    await set_one(house, name="trial-ends:41", label="Trial of Ada ends")
    await set_one(house, name="digest", cron="0 8 * * 1", tz="Europe/Berlin", owner="mail")
    failing = await set_one(
        house, name="trial-ends:42", label="Trial of Bob ends", payload='{"user": 42}', headers={"x-token": "hunter2"}
    )
    await set_one(house, name="over", owner="mail")
    await house.engine.alarms.cancel("over", owner="mail")
    await change(house, "update pulse.alarms set failure_count = 2, last_error = 'HTTP 503 Service Unavailable' "
                        "where name = 'trial-ends:42'")  # fmt: skip
    await log(house, failing, "failed", 503, "HTTP 503 Service Unavailable", "upstream is down")
    await log(house, failing, "failed", None, "no answer within 10 s")
    return failing


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
async def test_the_alarms_and_one_of_them(house: House, visiting: Visiting, kind: str) -> None:
    failing = await some_alarms(house)
    visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {"color_scheme": kind}))

    page = await visit.go("/alarms")
    await expect(page.get_by_role("row", name="trial-ends:42")).to_contain_text("failing")
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"alarms-{kind}")

    await page.get_by_role("link", name="trial-ends:42").click()
    await expect(page.get_by_text("upstream is down")).to_be_hidden()
    await page.get_by_text("Response", exact=True).click()
    await log(house, failing, "delivered", 200, None)
    await expect(page.get_by_role("row", name=re.compile("delivered"))).to_be_visible()
    await expect(page.get_by_text("upstream is down")).to_be_visible()  # what was opened stays open
    assert "hunter2" not in await page.content()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"alarm-{kind}")


async def test_it_is_paused_resumed_fired_and_cancelled(house: House, visiting: Visiting) -> None:
    alarm = await set_one(house, name="tea")
    visit, other = await visiting(), await visiting()
    page, beside = await visit.go(f"/alarms/{alarm.id}"), await other.go(f"/alarms/{alarm.id}")

    await page.get_by_role("button", name="Pause").click()
    await visit.said("tea is paused")
    await expect(beside.get_by_role("button", name="Resume")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await visit.said("tea is resumed")
    await page.get_by_role("button", name="Fire now").click()
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("tea is delivered now")
    await expect(page.get_by_role("row", name=re.compile("failed"))).to_be_visible()  # nobody is at home there
    await page.get_by_role("button", name="Cancel it").click()
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("tea is cancelled")
    await expect(beside.get_by_text("cancelled", exact=True)).to_be_visible()
    await expect(beside.get_by_role("button", name="Fire now")).to_have_count(0)


async def test_an_alarm_is_set_and_set_again(house: House, visit: Visit) -> None:
    page = await visit.go("/alarms/new")
    visit.watch.expected.append("400")

    await page.get_by_label("Owner").fill("shop")
    await page.get_by_label("Name", exact=True).fill("tea")
    await page.get_by_label("Delay", exact=True).fill("90")
    await expect(page.locator(".so-far li")).to_have_count(1)
    await page.get_by_label("URL").fill("http://169.254.169.254/latest")
    await page.get_by_role("button", name="Set it").click()
    await expect(page.locator("[data-refusal]")).to_contain_text("169.254.169.254")
    await visit.check_access()
    await visit.check_fits()
    await visit.shot("alarm-new")
    await page.get_by_label("URL").fill(URL)
    await page.get_by_role("button", name="Set it").click()
    await visit.said("the alarm is set")

    await page.get_by_role("link", name="Edit").click()
    await page.get_by_label("By a cron expression").check()
    await page.get_by_label("Expression", exact=True).press_sequentially("@hou")
    await expect(page.get_by_text("unknown descriptor")).to_be_visible()
    await page.get_by_label("Expression", exact=True).press_sequentially("rly")
    await expect(page.get_by_text("every hour on the hour")).to_be_visible()
    await visit.check_access()
    await visit.shot("alarm-edit")
    await page.get_by_role("button", name="Set it again").click()
    await visit.said("the alarm is set again")
    alarm = await house.engine.alarms.get("tea", owner="shop")
    assert (alarm.cron, alarm.revision, alarm.url) == ("@hourly", 2, URL)


async def test_labels_payloads_and_answers_of_others_are_only_text(house: House, visit: Visit) -> None:
    alarm = await set_one(house, owner=HOSTILE, name=HOSTILE, label=HOSTILE + "\x1b[31m", payload=PAYLOAD)
    await log(house, alarm, "failed", 500, HOSTILE, "</pre>" + HOSTILE)
    await change(house, f"update pulse.alarms set last_error = $x${HOSTILE}$x$, url = $x$javascript:{HOSTILE}$x$")
    heard = never_asked(visit.page)

    for path in ("/alarms", f"/alarms/{alarm.id}", f"/alarms/{alarm.id}/edit", f"/alarms/new?like={alarm.id}"):
        page = await visit.go(path)
        assert await page.locator("main img, main script").count() == 0
        assert await page.locator("a[href^=javascript]").count() == 0
        assert "\u202e" not in await page.locator("main").inner_html()
    await visit.go(f"/alarms/{alarm.id}")
    await expect(visit.page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.page.get_by_role("button", name="Pause").click()
    await visit.said("onerror=alert(1)>\\u202e is paused")
    await visit.check_fits()
    await visit.shot("alarm-hostile")

    assert heard == []
