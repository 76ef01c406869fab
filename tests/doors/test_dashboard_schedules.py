"""Are schedules shown as they are, and is what a form says what is made?"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields

from pulse.doors.dashboard.schedules.retry_fields import KINDS
from pulse.engine.engine import Engine
from pulse.engine.schedules.use_cases import Schedules
from pulse.model.jobs import Outcome, RetryPolicy
from pulse.model.schedules import CatchUp, Declared, NewSchedule, Overlap, Schedule, ScheduleStatus
from pulse.model.workers import Presence
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.workers import note_workers
from tests.doors.dashboard_client import URL, drawn, make, page, post, refused, set_one
from tests.doors.http_client import Http, served_http
from tests.factories import a_new_job, a_report, claim_one, submit_one

ODD_NAMES = ["a/fires", "new", "preview", "calendar", "..", "a b", "100%", "café/ü", "?x=1#y", "%2F", "a/b/pause"]
MADE = {"name": "daily", "kind": "cron", "cron": "0 9 * * 1-5", "tz": "Europe/Berlin", "task": "report"}
ONCE = {"owner": "ada", "kind": "delay", "delay": "1h", "url": URL}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def test_any_name_leads_to_its_schedule(http: Http, engine: Engine) -> None:
    for name in ODD_NAMES:
        await make(engine, name)

    links = re.findall(r'<th scope="row"><a href="([^"]+)">([^<]+)<', await page(http, "/schedules"))

    assert sorted(unescape(name) for _, name in links) == sorted(ODD_NAMES)
    for link, name in links:
        assert f"<h1>{name}</h1>" in await page(http, unescape(link))


async def test_filters_find_what_they_say(http: Http, engine: Engine, conn: Connection) -> None:
    for name in ("invoices/eu", "invoices/us", "old Invoices", "other"):
        await make(engine, name)
    await engine.schedules.pause("other")
    await conn.execute("update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'no such zone' "
                           "where name = 'invoices/us'")  # fmt: skip

    async def found(query: str) -> list[str]:
        return re.findall(r'<th scope="row"><a[^>]*>([^<]+)<', await page(http, f"/schedules?{query}"))

    assert await found("text=invoices*") == ["invoices/eu", "invoices/us"]
    assert await found("text=INVOICES") == ["invoices/eu", "invoices/us", "old Invoices"]
    assert await found("status=broken") == ["invoices/us"]
    assert await found("status=paused") == ["other"]
    assert await found("status=active") == ["invoices/eu", "old Invoices"]
    assert await found("topic=mail&task=mail&text=other") == ["other"]
    assert await found("topic=nobody") == []
    assert "invoices/us is broken: no such zone" in await page(http, "/schedules")


NONSENSE = [
    *("/schedules?status=nonsense", "/schedules?topic=" + "x" * 300, "/schedules?text=" + "x" * 3_000),
    *(
        "/schedules/calendar?tz=Atlantis",
        "/alarms?status=';drop",
        "/alarms?after=x",
        "/schedules?after=%00",
        "/alarms?owner=%00",
    ),
]


async def test_a_filter_that_is_nonsense_is_explained(http: Http) -> None:
    for path in NONSENSE:
        assert "Not possible" in await page(http, path, 400)


async def test_what_is_gone_says_so(http: Http) -> None:
    assert "Not found" in await page(http, "/schedules/gone", 404)
    assert "Not found" in await page(http, "/alarms/00000000-0000-0000-0000-000000000000", 404)
    assert "Not found" in await page(http, "/alarms/nonsense", 404)


async def test_a_form_makes_what_it_says(http: Http, engine: Engine) -> None:
    said = {
        "topic": "reports",
        "payload": '{"to": "ada"}',
        "priority": "5",
        "max_attempts": "2",
        "timeout": "10m",
        "tags": "eu, daily",
        "result_ttl": "2d",
        "retry_kind": "exponential",
        "retry_base": "5s",
        "retry_factor": "1.5",
        "retry_delays": "1s",  # of another kind: not looked at
        "retry_max_delay": "1h",
        "retry_jitter": "0.2",
        "starts_at": "2030-01-01T00:00",
        "ends_at": "2031-01-01T00:00:30",
        "max_occurrences": "7",
        "jitter": "2s",
        "catch_up": "replay",
        "replay_limit": "9",
        "overlap": "buffer_one",
    }

    answer = await post(http, "/schedules/new", **MADE | said)

    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/schedules/daily")
    made = await engine.schedules.get("daily")
    assert made.timed.starts_at == datetime(2029, 12, 31, 23, tzinfo=UTC)
    assert made.timed.ends_at == datetime(2030, 12, 31, 23, 0, 30, tzinfo=UTC)
    assert (made.timed.cron, made.timed.tz) == ("0 9 * * 1-5", "Europe/Berlin")
    assert (made.max_occurrences, made.jitter, made.catch_up, made.replay_limit, made.overlap) == (
        *(7, timedelta(seconds=2), "replay", 9, "buffer_one"),
    )
    assert made.job == a_new_job(
        task="report",
        topic="reports",
        priority=5,
        max_attempts=2,
        timeout=timedelta(minutes=10),
        result_ttl=timedelta(days=2),
        retry=RetryPolicy(kind="exponential", base=5, factor=1.5, max_delay=3600, jitter=0.2),
        tags=("eu", "daily"),
    )
    shown = await page(http, "/schedules/daily")
    assert "5s, then 1.5 times the previous wait; at most 1h, ± 20%" in shown
    assert "kept for 2d" in shown


async def test_a_form_takes_a_large_payload_and_refuses_one_too_large(http: Http, engine: Engine) -> None:
    large = json.dumps([{"to": f"ada {number}", "漢": 1.5} for number in range(10_000)], ensure_ascii=False)

    assert (await post(http, "/schedules/new", **MADE, payload=large)).status_code == 204
    assert json.loads((await engine.schedules.get("daily")).job.payload) == json.loads(large)
    answer = await post(http, "/schedules/new", **MADE | {"name": "larger"}, payload=large + " " * (1 << 20))
    assert answer.status_code == 413
    assert "use the API or the command line for a larger payload" in answer.headers["hx-trigger"]


FAULTS = [
    ({"cron": "0 9 *"}, "expected exactly 5 fields"),
    ({"cron": ""}, "cron must not be empty"),
    ({"kind": "sometimes"}, "must be one of"),
    ({"payload": "{"}, "payload is not JSON"),
    ({"tz": "Europe/Berln"}, "did you mean"),
    ({"priority": "high"}, "priority must be a whole number"),
    ({"priority": "101"}, "from -100 to 100"),
    ({"jitter": "soon"}, "not a duration"),
    ({"result_ttl": "a while"}, "not a duration"),
    ({"retry_kind": "hope"}, "must be one of quadratic, exponential, fixed, list"),
    ({"retry_kind": "list"}, "must be given for the kind list"),
    ({"retry_kind": "list", "retry_delays": "1s, soon"}, "not a duration"),
    ({"retry_jitter": "much"}, "must be a number such as 2 or 0.1"),
    ({"retry_jitter": "2"}, "a share from 0 to 1"),
    ({"starts_at": "tomorrow"}, "must be an instant such as"),
    ({"starts_at": "2030-03-31T02:30"}, "does not exist in Europe/Berlin"),
    ({"task": ""}, "task must have 1 to 200 characters"),
    ({"name": ""}, "schedule must have 1 to 200 characters"),
]


async def test_a_form_with_a_fault_is_refused_with_the_reason(http: Http) -> None:
    for fault, why in FAULTS:
        assert why in await refused(http, "/schedules/new", **MADE | fault)


async def test_a_form_offers_every_policy_there_is(http: Http) -> None:
    """One that it did not know would be drawn as another, and sent as a change."""
    shown = await page(http, "/schedules/new")
    for field, values in (("catch_up", CatchUp), ("overlap", Overlap), ("retry_kind", KINDS)):
        [options] = re.findall(rf'<select name="{field}">(.*?)</select>', shown)
        assert re.findall(r'value="(\w+)"', options) == list(values)


def suggested(text: str, name: str) -> list[str]:
    [options] = re.findall(rf'<datalist id="{name}">(.*?)</datalist>', text)
    return [unescape(value) for value in re.findall(r'<option value="([^"]*)"', options)]


async def test_a_form_suggests_the_tasks_and_topics_there_are(
    http: Http, engine: Engine, conn: Connection, settings: Settings
) -> None:
    for outcome in (Outcome.COMPLETE, Outcome.DISCARD):
        await submit_one(engine, task=f"to {outcome.lower()}", topic="mail")
        await engine.claims.report([a_report(await claim_one(engine), outcome)])
    await submit_one(engine, task="resize", topic="images")
    await make(engine, "daily", job=a_new_job(task="report", topic="reports"))
    worker = Presence(name="w", version="1", topics=["idle"], slots=1, busy=0, age=timedelta())
    await note_workers(conn, server="s", workers=[worker])

    for path in ("/schedules/new", "/schedules/daily/edit"):
        shown = await page(http, path)
        assert suggested(shown, "tasks") == ["report", "resize", "to complete", "to discard"]
        assert suggested(shown, "topics") == ["idle", "images", "mail", "reports"]
    assert '<option value="resize">of topic images</option>' in shown

    _, secret = await engine.tokens.create("ops", ["read", "submit:images"])
    async with served_http(settings) as closed:
        await closed.client.post("/sign-in", data={"secret": secret})
        mine = await page(closed, "/schedules/new")
    assert (suggested(mine, "tasks"), suggested(mine, "topics")) == (["resize"], ["images"])


async def test_what_nobody_touched_stays_to_the_microsecond(http: Http, engine: Engine) -> None:
    at = datetime(2030, 5, 1, 9, 30, 15, 123456, tzinfo=UTC)
    job = a_new_job(tags=("a,b", "\u202ec"), payload='{"x": "\u202e", "y": [1, 2]}', timeout=timedelta(seconds=1.5))
    before, _ = await engine.schedules.create(NewSchedule(name="odd", job=job, run_at=at, tz="Asia/Kolkata"))

    untouched = await drawn(http, "/schedules/odd/edit")
    assert (await post(http, "/schedules/odd/edit", **untouched)).headers["hx-redirect"] == "/schedules/odd"
    assert await engine.schedules.get("odd") == before
    await post(http, "/schedules/odd/edit", **untouched | {"priority": "3"})

    after = await engine.schedules.get("odd")
    assert (after.timed, after.job.priority, after.job.tags) == (before.timed, 3, before.job.tags)
    assert after.job.payload == before.job.payload


async def test_a_form_changes_the_timetable(http: Http, engine: Engine) -> None:
    await make(engine, "daily", every=timedelta(hours=1))
    form = await drawn(http, "/schedules/daily/edit")
    assert (form["kind"], form["every"]) == ("interval", "1h")

    await post(http, "/schedules/daily/edit", **form | {"kind": "cron", "cron": "@daily", "tz": "Asia/Tokyo"})

    timed = (await engine.schedules.get("daily")).timed
    assert (timed.kind, timed.cron, timed.every, timed.tz) == ("cron", "@daily", None, "Asia/Tokyo")


async def test_a_form_changes_the_waits_and_nothing_else(http: Http, engine: Engine) -> None:
    waits = RetryPolicy(kind="list", delays=(1.5, 60), max_delay=90)
    job = a_new_job(retry=waits, result_ttl=timedelta(hours=1))
    before = await make(engine, "daily", job=job)
    form = await drawn(http, "/schedules/daily/edit")
    assert (form["retry_kind"], form["retry_delays"], form["result_ttl"]) == ("list", "1s500ms, 1m", "1h")

    await post(http, "/schedules/daily/edit", **form | {"priority": "3"})
    assert (await engine.schedules.get("daily")).job == replace_fields(before.job, priority=3)
    form = await drawn(http, "/schedules/daily/edit")
    await post(http, "/schedules/daily/edit", **form | {"retry_delays": "1s500ms, 2m", "result_ttl": ""})
    changed = (await engine.schedules.get("daily")).job
    assert (changed.retry, changed.result_ttl) == (replace_fields(waits, delays=(1.5, 120)), None)
    form = await drawn(http, "/schedules/daily/edit")
    await post(http, "/schedules/daily/edit", **form | {"retry_kind": "quadratic", "retry_max_delay": "1d"})
    assert (await engine.schedules.get("daily")).job.retry is None  # the default has no row of its own


async def test_what_somebody_else_changed_is_not_overwritten(http: Http, engine: Engine) -> None:
    await make(engine, "daily")
    form = await drawn(http, "/schedules/daily/edit")
    await engine.schedules.edit("daily", {"priority": 9})

    assert "changed by somebody else" in await refused(http, "/schedules/daily/edit", **form | {"priority": "1"})
    assert (await engine.schedules.get("daily")).job.priority == 9


async def test_a_schedule_that_moves_while_its_form_is_read_is_left_alone(
    http: Http, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await make(engine, "report")
    get = Schedules.get

    async def get_before_it_moves(schedules: Schedules, name: Any) -> Schedule:
        found = await get(schedules, name)
        await engine.schedules.edit(found.id, {"topic": f"{found.job.routed_topic}-2"})
        return found

    monkeypatch.setattr(Schedules, "get", get_before_it_moves)
    seen = {"seen": own.updated_at.isoformat(), "kind": "interval", "every": "2h"}
    assert "was moved to another topic meanwhile" in await refused(http, "/schedules/report/edit", **seen)


async def test_what_code_declares_is_not_edited_here(http: Http, engine: Engine) -> None:
    new = NewSchedule(name="declared", job=a_new_job(), every=timedelta(hours=1))
    await engine.schedules.sync("shop", [Declared(schedule=new)])
    own = await engine.schedules.get("declared")

    shown = await page(http, "/schedules/declared")
    assert "The code of <b>shop</b> declares this schedule" in shown
    assert "/delete" not in shown
    assert "<form class=" not in (await page(http, "/schedules/declared/edit"))
    seen = {"seen": own.updated_at.isoformat(), "kind": "interval", "every": "2h"}
    assert "declared in code" in await refused(http, "/schedules/declared/edit", **seen)
    assert "declared in code" in await refused(http, f"/schedules/{own.id}/delete")


TYPED = [
    ("kind=cron&cron=0 9 * * 1-5&tz=Europe/Berlin", "at 09:00 on Monday to Friday, Europe/Berlin"),
    ("kind=cron&cron=0 9 *", "expected exactly 5 fields"),
    ("kind=cron&cron=", "cron must not be empty"),
    ("kind=cron&cron=" + "9" * 5_000, "characters"),
    ("kind=interval&every=90m", "every 1h30m"),
    ("kind=interval&every=9x", "not a duration"),
    ("kind=once&run_at=2001-01-01T00:00", "not in the future"),
    ("kind=once&run_at=2035-01-01T00:00", "2035-01-01"),
    ("kind=cron&cron=0 0 30 2 *", "yields no future time"),
    ("kind=<script>", "must be one of"),
]


async def test_an_expression_is_read_while_it_is_typed(http: Http) -> None:
    for query, said in TYPED:
        text = unescape(await page(http, f"/schedules/preview?{query}"))

        assert said in text
        assert "<script>" not in await page(http, f"/schedules/preview?{query}")


async def test_the_week_is_bounded_however_often_things_fire(http: Http, engine: Engine) -> None:
    await make(engine, "every second", every=timedelta(seconds=1))
    await make(engine, "hourly", cron="0 * * * *")
    await make(engine, "nightly", cron="30 2 * * *")
    await make(engine, "twice", cron="0 6 * * *", max_occurrences=2)
    await make(engine, "later", run_at=datetime.now(UTC) + timedelta(days=8))

    text = await page(http, "/schedules/calendar?tz=Asia/Tokyo")

    assert re.search(r">every second</a>\s*<span[^>]*>every 1s · 60[45],\d{3} times", text)
    assert re.search(r">hourly</a>\s*<span[^>]*>every hour on the hour, UTC · 168 times", text)
    assert text.count("nightly</a>") == 7
    assert len(re.findall(r"11:30</span> <a[^>]*>nightly", text)) == 7
    assert text.count("twice</a>") == 2
    assert "later</a>" not in text


async def test_a_backfill_looks_first(http: Http, engine: Engine, conn: Connection) -> None:
    made = await make(engine, "hourly", cron="0 * * * *", tz="Europe/Berlin")
    path, stretch = f"/schedules/{made.id}/backfill", {"start": "2026-01-01T00:00", "end": "2026-01-01T03:00"}

    dry = await page(http, f"{path}?start=2026-01-01T00:00&end=2026-01-01T03:00")
    assert "3 jobs would be made" in dry
    assert re.findall(r'<span class="mono">([^<]+)</span> <span class="soft">([^<]+)</span>', dry) == [
        ("Thu 2026-01-01 00:00:00", "+01:00"),
        ("Thu 2026-01-01 02:00:00", "+01:00"),
    ]
    assert (await engine.schedules.fires("hourly")).fires == []
    assert (await post(http, path, **stretch)).headers["hx-redirect"] == "/schedules/hourly"
    assert len((await engine.schedules.fires("hourly")).fires) == 3
    assert "nothing to make up for" in await page(http, f"{path}?start=2026-01-01T00:00&end=2026-01-01T03:00")
    assert "From and Until must both be given" in await page(http, f"{path}?start=2026-01-01T00:00")
    assert "end must be now or earlier" in await page(http, f"{path}?start=2026-01-01T00:00&end=2200-01-01T03:00")


async def test_the_log_has_pages(http: Http, engine: Engine) -> None:
    await make(engine, "hourly", cron="0 * * * *")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    await engine.schedules.backfill("hourly", start=start, end=start + timedelta(hours=60), limit=100)

    first = await page(http, "/schedules/hourly")
    [following] = re.findall(r'<a href="([^"]+)">Next page', first)

    assert first.count('<tr id="fire-') == 50
    assert (await page(http, unescape(following))).count('<tr id="fire-') == 10


async def test_an_action_is_for_the_schedule_that_was_looked_at(http: Http, engine: Engine) -> None:
    """Not for another that has its name by now."""
    first = await make(engine, "daily")
    await engine.schedules.delete("daily")
    await make(engine, "daily")

    assert "no schedule" in await refused(http, f"/schedules/{first.id}/pause")
    assert (await engine.schedules.get("daily")).paused_at is None


async def test_a_disabled_schedule_can_be_deleted(http: Http, engine: Engine) -> None:
    new = NewSchedule(name="declared", job=a_new_job(), every=timedelta(hours=1))
    await engine.schedules.sync("shop", [Declared(schedule=new)])
    await engine.schedules.sync("shop", [])
    own = await engine.schedules.get("declared")

    assert own.status is ScheduleStatus.DISABLED
    assert (await post(http, f"/schedules/{own.id}/delete")).headers["hx-redirect"] == "/schedules"


# --- rights


async def test_an_operator_sees_and_tends_but_makes_nothing(settings: Settings, engine: Engine) -> None:
    made, alarm = await make(engine, "daily"), await set_one(engine)
    _, secret = await engine.tokens.create("ops", ["operate"])
    async with served_http(settings) as http:
        await http.client.post("/sign-in", data={"secret": secret})
        shown, one = await page(http, "/schedules"), await page(http, "/schedules/daily")
        await page(http, "/schedules/new", 403)
        await page(http, "/alarms/new", 403)

        assert "New schedule" not in shown
        assert ">Edit<" not in one
        assert f"/schedules/{made.id}/delete" in one
        assert f"/alarms/{alarm.id}/fire" in await page(http, f"/alarms/{alarm.id}")
        assert "lacks the scope" in await refused(http, "/schedules/new", **MADE)
        assert "lacks the scope" in await refused(http, f"/schedules/{made.id}/edit", seen=made.updated_at.isoformat())
        assert "lacks the scope alarms, which setting alarms needs" in await refused(http, "/alarms/new", **ONCE)
        assert (await post(http, f"/schedules/{made.id}/pause", reason="x")).status_code == 204


async def test_whoever_may_submit_to_one_topic_makes_schedules_of_that_one(settings: Settings, engine: Engine) -> None:
    await make(engine, "daily")
    others = await set_one(engine, owner="eve", name="tea")
    _, secret = await engine.tokens.create("ops", ["operate", "submit:reports", "alarms:ada"])
    async with served_http(settings) as http:
        await http.client.post("/sign-in", data={"secret": secret})

        assert (await post(http, "/schedules/new", **MADE | {"name": "mine", "topic": "reports"})).status_code == 204
        assert "lacks the scope submit:mail" in await refused(
            http, "/schedules/new", **MADE | {"name": "x", "task": "mail"}
        )
        await page(http, "/schedules/daily/edit", 403)
        mine = await drawn(http, "/schedules/mine/edit")
        assert "lacks the scope submit:mail" in await refused(http, "/schedules/mine/edit", **mine | {"topic": "mail"})
        assert (await post(http, "/alarms/new", **ONCE)).status_code == 204
        assert "lacks the scope alarms:eve" in await refused(http, "/alarms/new", **ONCE | {"owner": "eve"})
        await page(http, f"/alarms/{others.id}/edit", 403)
        assert "lacks the scope" in await refused(http, f"/alarms/{others.id}/edit", **ONCE | {"seen": "1"})
