"""Can an operator find a job, see what became of it, and act on it or on many?"""

from __future__ import annotations

import re
from datetime import timedelta
from uuid import UUID

import pytest
from playwright.async_api import Route, expect

from pulse.model.jobs import JobStatus, Outcome, Progress
from tests.browser.conftest import PHONE, House, Visit, Visiting
from tests.factories import a_new_job, a_report, claim_one, submit_one

HOUR = timedelta(hours=1)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m'\"&"
HOSTILE_NAME = "<img src=x onerror=alert(1)>\u202e'\"&"
TRACEBACK = """Traceback (most recent call last):
  File "shop/mail.py", line 14, in send
    smtp.send_message(letter)
TimeoutError: the mail server did not answer within 10 s"""


async def some_jobs(house: House) -> dict[str, UUID]:
    """One in each state, with all that a job can have."""
    jobs, claims, ids = house.engine.jobs, house.engine.claims, {}
    ids["dead"] = await submit_one(
        house.engine, task="send_receipt", topic="mail", tags=("vip", "eu"), unique_key="order-42", max_attempts=1,
        payload='{"order": 42, "to": "ada@example.org", "lines": [{"sku": "A-1", "count": 3}]}',
    )  # fmt: skip
    claim = await claim_one(house.engine, worker="shop/mail-1")
    error = "TimeoutError: the mail server did not answer within 10 s"
    await claims.report([a_report(claim, Outcome.FAIL, error=error, traceback=TRACEBACK)])
    ids["done"] = await submit_one(house.engine, task="send_receipt", topic="mail")
    await claims.report([a_report(await claim_one(house.engine), result='{"sent": true}')])
    ids["running"] = await submit_one(house.engine, task="resize", topic="images")
    claim = await claim_one(house.engine, "images", worker="shop/images-2")
    await claims.progress([Progress(id=claim.id, lease_id=claim.lease_id, value='{"done": 30, "of": 120}')])
    ids["retrying"] = await submit_one(house.engine, task="sync", topic="crm")
    await claims.report(
        [a_report(await claim_one(house.engine, "crm"), Outcome.FAIL, error="502 Bad Gateway", delay=HOUR)]
    )
    ids["later"] = await submit_one(house.engine, task="report", delay=HOUR)
    ids["cancelled"] = await submit_one(house.engine, task="send_receipt", topic="mail")
    await jobs.cancel(ids["cancelled"], reason="a duplicate")
    ids["waiting"] = await submit_one(house.engine, task="send_receipt", topic="mail", priority=5)
    await house.engine.duties.tally()
    return ids


async def status_of(house: House, job_id: UUID) -> JobStatus:
    return (await house.engine.jobs.get(job_id)).status


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
async def test_jobs_and_one_of_them(house: House, visiting: Visiting, kind: str) -> None:
    ids = await some_jobs(house)
    visit: Visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {"color_scheme": kind}))

    page = await visit.go("/jobs")
    await expect(page.locator("table.jobs tbody tr")).to_have_count(7)
    await expect(page.get_by_role("link", name="dead lettered 1")).to_be_visible()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"jobs-{kind}")

    await visit.go(f"/jobs/{ids['dead']}")
    await expect(page.get_by_text("attempt 1 failed")).to_be_visible()
    await page.get_by_text("Traceback", exact=True).click()
    await expect(page.get_by_text("smtp.send_message(letter)")).to_be_visible()
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"job-{kind}")


async def test_a_running_job_shows_its_progress_and_its_end_by_itself(house: House, visit: Visit) -> None:
    job_id = await submit_one(house.engine)
    claim = await claim_one(house.engine)
    page = await visit.go(f"/jobs/{job_id}")
    await page.get_by_label("Reason for cancelling").fill("half typed")

    await house.engine.claims.progress([Progress(id=claim.id, lease_id=claim.lease_id, value='{"done": 3, "of": 12}')])
    await expect(page.locator("progress")).to_have_attribute("value", "3")
    await expect(page.get_by_label("Reason for cancelling")).to_have_value("half typed")
    await expect(page.get_by_label("Reason for cancelling")).to_be_focused()
    await visit.shot("job-running")

    await house.engine.claims.report([a_report(claim, result='{"sent": true}')])
    await expect(page.get_by_text("completed by attempt 1")).to_be_visible()
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


async def test_each_action_on_a_job(house: House, visit: Visit) -> None:
    ids = await some_jobs(house)

    page = await visit.go(f"/jobs/{ids['later']}")
    await page.get_by_role("button", name="Run now").click()
    await visit.said("as soon as a worker has a free slot")
    assert await status_of(house, ids["later"]) is JobStatus.PENDING
    await expect(page.get_by_role("button", name="Run now")).to_have_count(0)

    await page.get_by_label("Reason for cancelling").fill("not needed")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("dialog").get_by_role("button", name="No").click()
    assert await status_of(house, ids["later"]) is JobStatus.PENDING
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("dialog").get_by_role("button", name="Yes").click()
    await visit.said("cancelled")
    assert (await house.engine.jobs.get(ids["later"])).last_error == "cancelled: not needed"

    await visit.go(f"/jobs/{ids['dead']}")
    await page.get_by_role("button", name="Replay").click()
    await visit.said("sent back to work")
    assert await status_of(house, ids["dead"]) is JobStatus.PENDING


async def test_of_two_operators_the_second_is_told(house: House, visit: Visit) -> None:
    job_id = await submit_one(house.engine, delay=HOUR)
    visit.watch.expected += ["409", "ERR_FAILED"]
    # no stream from the start, or the page could hear of the other's click before ours
    await visit.page.route("**/live/**", lambda route: route.abort())
    page = await visit.go(f"/jobs/{job_id}")
    await house.engine.jobs.cancel(job_id, reason="by the other")

    await page.evaluate("htmx.trigger(document.querySelector('form[hx-post$=run-now]'), 'submit')")

    await visit.said("is cancelled, so it cannot be run ahead of its time")
    assert (await house.engine.jobs.get(job_id)).last_error == "cancelled: by the other"


async def test_a_filter_is_typed_while_the_list_goes_on(house: House, visit: Visit) -> None:
    await some_jobs(house)
    page = await visit.go("/jobs?status=pending")
    field = page.get_by_label("Task")
    await field.fill("send_rec")

    added = await submit_one(house.engine, task="send_receipt", topic="mail")
    await expect(page.locator(f"#job-{added}")).to_be_visible()
    await expect(field).to_have_value("send_rec")
    await expect(field).to_be_focused()
    await field.fill("send_receipt")
    await field.press("Enter")

    await expect(page.locator("table.jobs tbody tr")).to_have_count(2)
    await expect(page).to_have_url(re.compile("task=send_receipt.*status=pending"))
    await page.get_by_role("link", name="dead lettered").click()
    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)


async def test_an_id_is_pasted_and_nonsense_is_explained(house: House, visit: Visit) -> None:
    job_id = await submit_one(house.engine)
    page = await visit.go("/jobs")

    await page.keyboard.press("/")
    await page.keyboard.insert_text(f" {job_id}")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/jobs/{job_id}$"))

    visit.watch.expected.append("400")
    await visit.go("/jobs?since=yesterday&topic=mail")
    await expect(page.get_by_role("alert").filter(has_text="must be an age")).to_be_visible()
    await expect(page.get_by_label("Submitted since")).to_have_value("yesterday")
    await visit.check_access()
    await visit.shot("jobs-nonsense")


async def test_many_are_cancelled_step_by_step(house: House, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.jobs.bulk.STEP", 10)
    await house.engine.jobs.submit([a_new_job(priority=number) for number in range(35)])
    page = await visit.go("/jobs?status=pending&topic=mail")

    await page.get_by_role("link", name="Cancel these…").click()
    await expect(page.get_by_role("heading", name="Cancel 35 pending jobs")).to_be_visible()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot("bulk")
    late = await submit_one(house.engine)
    steps: list[str] = []

    async def fail_the_second(route: Route) -> None:
        steps.append(route.request.url)
        await (route.abort() if len(steps) == 2 else route.continue_())

    await page.route("**/jobs/bulk", fail_the_second)
    visit.watch.expected += ["ERR_FAILED", "htmx:"]
    await page.get_by_role("button", name="Cancel all").click()

    await visit.said("cannot be reached")
    await page.unroute("**/jobs/bulk")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_text("35 cancelled.")).to_be_visible()
    await visit.shot("bulk-done")
    await page.get_by_role("link", name="Back to the list").click()
    await expect(page.locator(f"#job-{late}")).to_be_visible()
    await expect(page.locator("table.jobs tbody tr")).to_have_count(1)


@pytest.mark.parametrize("kind", ["light", "phone"])
async def test_a_topic(house: House, visiting: Visiting, kind: str) -> None:
    await some_jobs(house)
    visit: Visit = await visiting(**({"viewport": PHONE} if kind == "phone" else {}))
    page = await visit.go("/")
    await page.get_by_role("row", name=re.compile("^mail")).get_by_role("link", name="mail").click()

    await expect(page.locator("figure.chart canvas")).to_have_count(4)
    await expect(page.get_by_text("1 dead letter in mail")).to_be_visible()
    await page.get_by_label("Reason for pausing").fill("printer broken")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("printer broken")).to_be_visible()
    await visit.check_access()
    await visit.check_fits()
    await visit.shot(f"topic-{kind}")
    await page.get_by_role("button", name="Resume").click()
    await visit.said("mail is resumed")
    assert await house.engine.jobs.pauses() == []


async def test_hostile_texts_do_nothing(house: House, visit: Visit) -> None:
    dialogs: list[str] = []

    async def refuse(dialog: object) -> None:
        dialogs.append(str(dialog))
        await dialog.dismiss()  # type: ignore[attr-defined]

    visit.page.on("dialog", refuse)
    given = {"task": HOSTILE_NAME, "topic": HOSTILE_NAME, "tags": (HOSTILE_NAME,), "unique_key": HOSTILE}
    payload = '{"x": "' + "<script>alert(1)</script>" * 40_000 + '"}'
    job_id = await submit_one(house.engine, payload=payload, trace={HOSTILE: HOSTILE}, **given)
    claim = await claim_one(house.engine, HOSTILE_NAME, worker=HOSTILE_NAME)
    await house.engine.claims.report([a_report(claim, Outcome.DISCARD, error=HOSTILE, traceback=HOSTILE)])
    await house.engine.jobs.pause(HOSTILE_NAME, reason=HOSTILE)

    page = await visit.go("/jobs")
    await page.get_by_role("row", name=re.compile("onerror")).get_by_role("link").first.click()
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.check_fits()
    await visit.shot("job-hostile")
    await page.get_by_role("link", name=re.compile("^<img src=x")).first.click()
    await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))
    await visit.check_fits()
    await visit.go(f"/jobs?error={'%3Cscript%3Ealert(1)%3C/script%3E'}")
    await expect(page.locator(f"#job-{job_id}")).to_be_visible()

    assert dialogs == []
    assert await page.locator("#content script, #content img").count() == 0
