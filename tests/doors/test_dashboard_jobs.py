"""Are the pages of jobs, topics and workers right in what they answer: status, escaping, limits, who may?"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest

from pulse.engine.dispatch.worker_stream import Pool, WorkerStream
from pulse.engine.engine import Engine
from pulse.model.jobs import JobStatus, Outcome
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from tests.doors.http_client import Http, segment, served_http
from tests.factories import a_new_job, a_report, claim_one, submit_one

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m'\"&"
HOSTILE_NAME = "<img src=x onerror=alert(1)>\u202e'\"&{{7*7}}"


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def read(http: Http, path: str, status: int = 200) -> str:
    answer = await http.client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


async def post(http: Http, path: str, **form: str) -> httpx.Response:
    """As a form of one of our pages is sent."""
    [word] = re.findall(r'"x-pulse-csrf": "(\w+)"', await read(http, "/"))
    return await http.client.post(path, data=form, headers={"x-pulse-csrf": word, "hx-request": "true"})


async def dead_letter(engine: Engine, **given: object) -> object:
    job_id = await submit_one(engine, **given)
    await engine.claims.report([a_report(await claim_one(engine, str(given.get("topic", "mail"))), Outcome.DISCARD)])
    return job_id


NONSENSE = {
    "status=nonsense": "must be one of",
    "status=%27%3B%20drop%20table%20jobs%3B--": "must be one of",
    "since=yesterday": "must be an age",
    "until=99999999999d": "must be an age",
    "since=0001-01-01T00:00%2B14:00": "must be an age",
    "topic=%00": "printable text",
    "tag=" + "x" * 300: "at most",
    "task=" + "x" * 3_000: "at most",
    "error=" + "x" * 1_500: "1 to 200 characters",
    "after=nonsense": "page with the same filter",
    "schedule=nightly": "must be the id of a schedule",
    "error=%ED%A0%80%00": "cannot be stored",
}


@pytest.mark.parametrize("query", NONSENSE)
async def test_nonsense_in_a_filter_is_explained_on_the_page(http: Http, query: str) -> None:
    text = await read(http, f"/jobs?{query}", status=400)

    assert NONSENSE[query] in text
    assert 'role="search"' in text, "what was typed can be corrected"


async def test_sql_in_a_filter_is_text(http: Http, engine: Engine) -> None:
    await submit_one(engine)

    for name in ("topic", "task", "tag", "error"):
        assert "No job matches" in await read(http, f"/jobs?{name}={segment(chr(39) + ' or 1=1; drop table jobs; --')}")
    assert len((await engine.jobs.list_page()).jobs) == 1


async def test_an_id_leads_to_its_job_and_a_job_that_is_gone_is_not_found(http: Http, engine: Engine) -> None:
    job_id = await submit_one(engine)

    found = await http.client.get("/jobs", params={"error": f" {job_id} "})

    assert (found.status_code, found.headers["location"]) == (303, f"/jobs/{job_id}")
    assert "retention has removed it" in await read(http, f"/jobs/{uuid4()}", status=404)
    assert "is not the id of a job" in await read(http, "/jobs/nonsense", status=404)


async def test_everything_a_user_or_worker_writes_is_shown_as_text(http: Http, engine: Engine) -> None:
    payload = f'{{"x": "{"<script>alert(2)</script>" * 40_000}"}}'
    given = {"task": HOSTILE_NAME, "topic": HOSTILE_NAME, "tags": (HOSTILE_NAME,), "unique_key": HOSTILE}
    job_id = await submit_one(engine, payload=payload, trace={HOSTILE: HOSTILE, "parent": HOSTILE}, **given)
    claim = await claim_one(engine, HOSTILE_NAME, worker=HOSTILE_NAME)
    await engine.claims.report([a_report(claim, Outcome.DISCARD, error=HOSTILE, traceback=HOSTILE * 100)])
    await engine.jobs.pause(HOSTILE_NAME, reason=HOSTILE)
    stream = WorkerStream(HOSTILE_NAME, [Pool((HOSTILE_NAME,), 3)], version=HOSTILE_NAME)
    await engine.workers.duty(lambda: [stream])()

    paths = ["/", "/jobs", f"/jobs?topic={segment(HOSTILE_NAME)}&status=dead_lettered", f"/jobs/{job_id}", "/workers"]
    paths += [f"/topics/{segment(HOSTILE_NAME)}", f"/jobs/bulk?status=dead_lettered&topic={segment(HOSTILE_NAME)}"]
    for path in paths:
        text = await read(http, path)
        assert "&lt;img src=x onerror=alert(1)&gt;" in text, path
        assert not re.search(r"<script>|<img src=x|\u202e|\x1b|alert\(2\)</script>", text), path
        assert "{{7*7}}" in text, path
        assert len(text) < 200_000, path


async def test_a_page_of_many_is_followed_by_the_next(http: Http, engine: Engine) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(70)])

    first = await read(http, "/jobs?status=pending")
    [following] = re.findall(r'href="([^"]*after=[^"]*)">Next page', first)
    second = await read(http, following.replace("&amp;", "&"))

    shown = [re.findall(r'id="job-([\w-]+)"', text) for text in (first, second)]
    assert [len(ids) for ids in shown] == [50, 20]
    assert len(set(shown[0]) | set(shown[1])) == 70
    assert "First page" in second


async def test_a_search_that_found_nothing_yet_can_go_on(
    http: Http, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.engine.jobs.lists.SCAN_LIMIT", 50)
    monkeypatch.setattr("pulse.doors.dashboard.jobs.list.PATIENCE", 0)
    await submit_one(engine, tags=("rare",))
    await engine.jobs.submit([a_new_job() for _ in range(60)])

    text = await read(http, "/jobs?tag=rare")

    assert "No match found so far" in text
    [following] = re.findall(r'href="([^"]*after=[^"]*)">Go on searching', text)
    assert len(re.findall(r'id="job-', await read(http, following.replace("&amp;", "&")))) == 1


async def test_the_jobs_of_a_schedule_are_listed_also_once_it_is_gone(http: Http, engine: Engine) -> None:
    made, _ = await engine.schedules.create(NewSchedule(name="nightly", cron="@yearly", job=a_new_job()))
    fire = await engine.schedules.trigger(made.id)
    other = await submit_one(engine)
    page = f"/jobs?schedule={made.id}"
    assert page in await read(http, "/schedules/nightly")
    await engine.schedules.delete(made.id)

    text = await read(http, f"{page}&status=pending")

    assert f"/jobs/{fire.job_id}" in text
    assert str(other) not in text
    assert "Order: newest first" in text
    assert page in await read(http, f"/jobs/{fire.job_id}")


async def test_an_error_is_searched_in_the_newest_failures(http: Http, engine: Engine) -> None:
    await dead_letter(engine)
    await submit_one(engine)

    text = await read(http, "/jobs?error=NOT+wanted")

    assert "searched in dead letters, the newest first" in text
    assert len(re.findall(r'id="job-', text)) == 1


async def test_two_operators_and_one_job(http: Http, engine: Engine) -> None:
    later, dead = await submit_one(engine, delay=timedelta(hours=1)), await dead_letter(engine)

    waiting = "is waiting for a worker, so it cannot be replayed"
    for job_id, deed, status, said in [
        (later, "run-now", JobStatus.PENDING, "is already waiting for a worker"),
        (dead, "replay", JobStatus.PENDING, waiting),
        (dead, "cancel", JobStatus.CANCELLED, "is already cancelled"),
    ]:
        first = await post(http, f"/jobs/{job_id}/{deed}")
        job = await engine.jobs.get(job_id)  # type: ignore[arg-type]
        second = await post(http, f"/jobs/{job_id}/{deed}")

        assert (first.status_code, job.status) == (204, status)
        assert second.status_code == 409
        assert said in second.headers["hx-trigger"]
        assert await engine.jobs.get(job_id) == job, "and nothing changed"  # type: ignore[arg-type]


async def test_a_bulk_touches_what_was_there_at_the_preview_and_says_what_had_changed(
    http: Http, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.jobs.bulk.STEP", 2)
    jobs = [await submit_one(engine, topic="mail", tags=("a",)) for _ in range(5)]
    preview = await read(http, "/jobs/bulk?status=pending&topic=mail")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
    late = await submit_one(engine, topic="mail")

    steps: list[str] = []
    while fields and len(steps) < 5:
        answer = await post(http, "/jobs/bulk", reason="sent twice", **fields)
        assert answer.status_code == 200, answer.headers
        steps.append(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", answer.text)).strip())
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer.text))
        fields.pop("reason", None)

    assert "5 pending jobs" in re.sub(r"\s+", " ", preview)
    assert [step.split(" cancelled")[0] for step in steps] == ["2 of 5", "4 of 5", "5"]
    assert {(await engine.jobs.get(job)).last_error for job in jobs} == {"cancelled: sent twice"}
    assert (await engine.jobs.get(late)).status is JobStatus.PENDING


async def test_dead_letters_are_replayed_together_but_not_those_that_died_later(http: Http, engine: Engine) -> None:
    first, second = await submit_one(engine), await submit_one(engine)
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])
    preview = await read(http, "/jobs/bulk?error=wanted")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])

    answer = await post(http, "/jobs/bulk", **fields)

    assert "1 replayed" in answer.text
    assert (await engine.jobs.get(first)).status is JobStatus.PENDING
    assert (await engine.jobs.get(second)).status is JobStatus.DEAD_LETTERED


async def test_running_jobs_are_cancelled_together_but_not_those_that_were_claimed_later(
    http: Http, engine: Engine
) -> None:
    first, second = await submit_one(engine), await submit_one(engine)
    await claim_one(engine)
    preview = await read(http, "/jobs/bulk?status=running")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', preview))
    await claim_one(engine)

    answer = await post(http, "/jobs/bulk", **fields)

    assert "1 cancelled" in answer.text
    assert (await engine.jobs.get(first)).status is JobStatus.CANCELLED
    assert (await engine.jobs.get(second)).status is JobStatus.RUNNING


@pytest.mark.parametrize("form", [{}, {"before": "soon"}, {"before": "2026-01-01T00:00:00"}])
async def test_a_bulk_without_its_preview_is_refused(http: Http, engine: Engine, form: dict[str, str]) -> None:
    job_id = await submit_one(engine)

    answer = await post(http, "/jobs/bulk", status="pending", **form)

    assert answer.status_code == 400
    assert (await engine.jobs.get(job_id)).status is JobStatus.PENDING


async def test_a_bulk_needs_a_state(http: Http) -> None:
    for query in ("", "?status=completed", "?status=cancelled"):
        assert "choose a state" in await read(http, f"/jobs/bulk{query}", status=400)


async def test_a_topic_that_nobody_knows_is_empty_and_one_that_cannot_be_is_refused(http: Http) -> None:
    assert "No dead letters." in await read(http, "/topics/unknown")
    assert "must be printable text" in await read(http, "/topics/a%0Ab", status=400)
    assert "must be one of" in await read(http, "/topics/mail?range=century", status=400)


async def test_a_job_cancelled_while_it_ran_still_tells_who_had_it(http: Http, engine: Engine) -> None:
    job_id = await submit_one(engine)
    await claim_one(engine, worker="shop/mail-1")
    await engine.jobs.cancel(job_id, reason="a duplicate")

    page = await read(http, f"/jobs/{job_id}")

    assert "attempt 1 began" in page
    assert "shop/mail-1" in page


async def test_a_server_that_ends_takes_its_workers_off_the_page(settings: Settings, engine: Engine) -> None:
    async with served_http(settings) as leaving:
        workers = leaving.server._engine.workers
        await workers.duty(lambda: [WorkerStream("shop/w1", [Pool(("mail",), 1)])])()
        assert [worker.name for worker in await engine.workers.list()] == ["shop/w1"]

    assert await engine.workers.list() == []
