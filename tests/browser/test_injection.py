"""Does anything that somebody else wrote run on a page? Every field, on every page, loaded and swapped in.

The pages' policy forbids what slips through, so that is no proof: a script that was only blocked is found here, too,
and so is markup that the policy allows, such as an attribute that htmx obeys.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import asyncpg
import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Page, expect

from pulse.doors.dashboard.app import ACTIONS, VIEWS
from pulse.model.alarms import NewAlarm
from pulse.model.jobs import Outcome
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from tests.browser.conftest import House, Visit, Visiting, open_house
from tests.factories import a_new_job, a_report, submit_one

# As names, which have 200 characters at most. Each breaks out of a text, and of an attribute in quotes of both kinds.
NAMES = (
    """x'"></a></h1></option><script>pwned(1)</script><img src=/pwned onerror=pwned(2)>\u202e{{7*7}}${7*7}""",
    """x'"><div hx-get=/pwned hx-trigger=load></div><i id=content data-live=/pwned hx-on::load=pwned(3)>a</i>""",
    """javascript:pwned(4)//' onmouseover='pwned(5)' onfocus=pwned(6) autofocus x="\u2066""",
    """--></textarea></pre></title><svg/onload=pwned(7)><style>@import'/pwned';*{background:url(/pwned)}</style>""",
)
# As longer texts.
TEXTS = (
    *NAMES,
    """<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=/pwned onerror=pwned(8)&gt;">""",
    """<noscript><p title="</noscript><img src=/pwned onerror=pwned(9)>"><template><img src=/pwned></template>""",
    """<iframe srcdoc="<script>parent.pwned(10)</script>"></iframe><object data=/pwned></object><embed src=/pwned>""",
    """<form id=trouble action=/pwned><input name=attributes><button>x</button></form><a name=htmx href=/pwned>x</a>""",
    """"}' data-points='{"times": 1}' hx-headers='js:{"x": pwned(11)}' hx-vals="js:{x: pwned(12)}" """,
    """<base href=/pwned/><meta http-equiv=refresh content="0;url=/pwned"><link rel=stylesheet href=/pwned>""",
    """<a href="javascript:pwned(13)">x</a><details open ontoggle=pwned(14)></details></body></html><script src=/pwned>
    """,
    "\x1b[31m\x1b]0;pwned\x07\u202e\u200f\u2028</script>\r\ndata: <img src=/pwned>\r\n\r\nevent: signed-out\r\ndata: x",
)
TEXT = "\n".join(TEXTS)
JSON = json.dumps({TEXT: [TEXT], "x": "</pre>" + TEXT})
HOUR = timedelta(hours=1)
MANY = 2_000  # characters of a reason

WATCH = """
addEventListener("securitypolicyviolation", (event) => pwned(`blocked ${event.violatedDirective} ${event.sample}`));
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => pwned(name);
"""
# Whatever no template of ours has.
FOREIGN = """() => [...document.querySelectorAll("*")].filter((each) =>
    each.matches("script:not([src^='/static/']), iframe, object, embed, base, math, svg, style, template, noscript, i,"
      + "img:not([src^='/static/']), meta[http-equiv], [style]:not(.canvas *), [srcdoc], [action*=pwned],"
      + "[href*='/pwned'], [src*='/pwned']")
    || (each.protocol && !["http:", "https:"].includes(each.protocol))
    || [...each.attributes].some(({name, value}) => /^on|^hx-on|^hx-(vals|vars|ext)/.test(name)
        || (/^hx-(get|post|target|trigger|include|select)|^data-live$/.test(name) && value.startsWith("/pwned")))
  ).map((each) => each.outerHTML.slice(0, 200))"""


class Prey:
    """A window whose pages must not do what others wrote."""

    def __init__(self, visit: Visit) -> None:
        self.visit, self.page = visit, visit.page
        self.fell: list[str] = []

    async def arm(self) -> None:
        await self.visit.context.expose_function("pwned", lambda what: self.fell.append(f"ran: {what}"))
        await self.visit.context.add_init_script(WATCH)
        self.watch(self.page)
        self.visit.watch.expected.append("Failed to load resource")  # a page that refuses

    def watch(self, page: Page) -> None:
        async def close(dialog: Dialog) -> None:
            self.fell.append(f"asked: {dialog.message}")
            await dialog.dismiss()

        page.on("dialog", close)
        page.on("request", lambda request: self.check_request(request.url))

    def check_request(self, url: str) -> None:
        if urlsplit(url).path.startswith("/pwned"):
            self.fell.append(f"requested: {url}")

    async def go(self, path: str) -> int:
        """The status of the answer."""
        answer = await self.page.goto(self.visit.house.url + path)
        await self.check(self.page, path)
        assert answer
        assert answer.status < 500, path
        return answer.status

    async def check(self, page: Page, where: str) -> None:
        await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        self.fell += [f"on {where}: {each}" for each in await page.evaluate(FOREIGN)]
        shown = await page.content()
        assert not re.search("[\x00-\x08\x0b-\x1f\u200f\u2028\u202e\u2066]", shown), f"letters that steer, on {where}"
        assert self.fell == []


@pytest_asyncio.fixture(loop_scope="session")
async def prey(visit: Visit) -> Prey:
    found = Prey(visit)
    await found.arm()
    return found


# --- what others write


async def change(house: House, sql: str, *given: object) -> None:
    conn = await asyncpg.connect(house.engine.settings.database_url)
    try:
        await conn.execute(sql, *given)
    finally:
        await conn.close()


async def plant(house: House) -> dict[str, list[str]]:
    """Into every field of everything, and past the checks of the engine where it has some. By kind: their ids."""
    jobs = [str((await plant_jobs(house, name))[number]) for number, name in enumerate(NAMES)]  # one of each state
    schedules = [await plant_schedule(house, name) for name in NAMES][::3]
    alarms = [await plant_alarm(house, name) for name in NAMES][::3]
    await change(house, "update pulse.schedules set error = $1, status = 'BROKEN', next_run_at = null where name = $2",
                 TEXT, NAMES[0])  # fmt: skip
    await change(house, "update pulse.schedules set app = $1 where name = $1", NAMES[1])
    await change(house, "insert into pulse.workers (name, server, version, topics, slots, busy, connected_at, seen_at) "
                        "select name, name, 'pulse-python/' || name, array[name], 4, 1, now(), now() "
                        "from unnest($1::text[]) as name", NAMES)  # fmt: skip
    return {"job": jobs, "schedule": schedules, "alarm": alarms}


async def plant_jobs(house: House, name: str) -> list[Any]:
    """One that is dead, one that runs, and one that waits; in a topic that is paused."""
    jobs = house.engine.jobs
    given = {"task": name, "topic": name, "tags": (name,), "payload": JSON, "trace": {TEXT: TEXT, "parent": TEXT}}
    dead, running, done = [await submit_one(house.engine, **given, unique_key=f"{name}{n}") for n in range(3)]
    claims = {claim.id: claim for claim in await house.engine.claims.claim(name, worker=name, slots=3)}
    await house.engine.claims.report([a_report(claims[dead], Outcome.DISCARD, error=TEXT, traceback=TEXT)])
    await house.engine.claims.report([a_report(claims[done], result=JSON)])
    waiting = await submit_one(house.engine, **given)
    await jobs.pause(name, reason=TEXT[:MANY])
    await change(house, "update pulse.jobs set progress = $1::text::jsonb where id = $2", JSON, running)
    return [dead, running, done, waiting]


async def plant_schedule(house: House, name: str) -> str:
    schedules = house.engine.schedules
    job = a_new_job(task=name, topic=name, tags=(name,), payload=JSON)
    made, _ = await schedules.create(NewSchedule(name=name, job=job, every=HOUR))
    await schedules.trigger(made.id)
    await change(house, "update pulse.fires set reason = $1 where schedule_id = $2", TEXT, made.id)
    if name != NAMES[-1]:  # which stays in the calendar
        await schedules.pause(made.id, reason=TEXT[:MANY])
        await change(house, "update pulse.schedules set tz = $1 where id = $2", name, made.id)
    return str(made.id)


async def plant_alarm(house: House, name: str) -> str:
    new = NewAlarm(owner=name, name=name, label=name, url="http://127.0.0.1:9/", delay=HOUR, payload=JSON,
                   headers={"x-a": TEXTS[0][:40]})  # fmt: skip
    made = (await house.engine.alarms.set(new)).alarm
    await change(house, "update pulse.alarms set last_error = $1, url = $2, tz = $3, failure_count = 1, "
                        "idempotency_key = $3, headers = $4 where id = $5",
                 TEXT, TEXT[:MANY], name, json.dumps({name: name}), made.id)  # fmt: skip
    await change(house, "insert into pulse.deliveries "
                        "values ($1, 1, now(), 1, 'failed', now(), '1 s', 500, $2, $2, $2)",
                 made.id, TEXT)  # fmt: skip
    return str(made.id)


# --- pages


def paths(view: str, planted: dict[str, list[str]]) -> list[str]:
    """Where a view is found, for each thing that it may be about, and with a query full of nonsense."""
    kind = "job" if view.startswith("/jobs/") else "alarm" if view.startswith("/alarms/") else "schedule"
    ids = [*planted[kind], quote(NAMES[0], safe="")]
    if view.startswith("/topics/"):
        ids = [quote(NAMES[0], safe=""), quote(NAMES[3], safe="")]
    if view == "/jobs/bulk":
        return [f"{view}?status=pending", f"{view}?status=dead-lettered", *(f"{view}?{query}" for query in QUERIES)]
    where = [view.replace("{id}", each).replace("{name}", each).replace("{topic}", each) for each in ids]
    plain = list(dict.fromkeys(where))
    return [*plain, *(f"{plain[0]}?{query}" for query in QUERIES[: 1 if "{" in view else None])]


FIELDS = (
    *("topic", "task", "tag", "since", "until", "error", "status", "range", "after", "next", "tz", "text", "owner"),
    *("kind", "cron", "every", "run_at", "delay", "fire_at", "starts_at", "max_occurrences", "start", "end", "like"),
)
FILTERS = ("topic", "task", "tag", "text", "owner")
QUERIES = (
    urlencode(dict.fromkeys(FIELDS, NAMES[0])),  # refused
    urlencode(dict.fromkeys(FILTERS, NAMES[1]) | {"status": "pending", "error": TEXT[:MANY], TEXT: TEXT})
    + "&<script>pwned(20)</script>='\"><b>&kind=cron&cron=<b>",
)


@pytest.mark.slow
async def test_on_no_page_runs_what_others_wrote(house: House, prey: Prey) -> None:
    planted = await plant(house)
    drawn = set()
    for view in VIEWS:
        for path in paths(view.path, planted):
            assert "{" not in path, f"what is {view.path} about?"
            drawn |= {view.path} if await prey.go(path) == 200 else set()
            await prey.page.mouse.move(300, 300)

    assert drawn == {view.path for view in VIEWS}
    assert prey.fell == []


async def test_every_planted_text_is_seen_on_some_page(house: House, prey: Prey) -> None:
    """Or the test before would prove nothing."""
    planted = await plant(house)
    dead, running = planted["job"][:2]
    pages = {
        "/": "Resume x'\">",
        f"/jobs/{dead}": "onerror=pwned(8)",
        f"/jobs/{running}": "srcdoc=",
        f"/schedules/{planted['schedule'][0]}": "{{7*7}}",
        f"/schedules/{planted['schedule'][0]}/edit": "x'\"></a></h1>",
        f"/alarms/{planted['alarm'][0]}": "onerror=pwned(8)",
        f"/alarms/{planted['alarm'][0]}/edit": "<form id=trouble",
        "/workers": "x'\"></a></h1>",
        "/schedules/calendar": "onload=pwned(7)",
    }
    for path, text in pages.items():
        await prey.go(path)
        values = "[document.body.innerText, ...[...document.querySelectorAll('input, textarea, [aria-label]')]"
        shown = await prey.page.evaluate(values + ".map((each) => (each.value || '') + each.ariaLabel)].join(' ')")
        assert text in shown, path


@pytest.mark.slow
async def test_nothing_runs_that_is_swapped_in(house: House, prey: Prey) -> None:
    """While the page is open: the stream's parser is another one, and htmx goes over what came."""
    pages = [prey.page, *[await prey.visit.context.new_page() for _ in range(4)]]
    waits = {"/": "a", "/jobs": "a", "/schedules": "a", "/alarms": "a", "/workers": "th"}
    for page, path in zip(pages, waits, strict=True):
        if page is not prey.page:
            prey.visit.watch.follow(page)
            prey.watch(page)
        await page.goto(prey.visit.house.url + path)
        await expect(page.locator("#pulse-state")).to_have_class(re.compile("live"))

    await plant(house)

    for page, (path, element) in zip(pages, waits.items(), strict=True):
        await expect(page.locator(f"main {element}", has_text="pwned(2)").first).to_be_visible()
        await prey.check(page, path)
    await submit_one(house.engine, topic=NAMES[2])  # rows change places, and are found by their ids
    await house.engine.jobs.resume(NAMES[2])
    await submit_one(house.engine, topic=NAMES[3], task="last")
    await expect(pages[1].locator("main a", has_text="last").first).to_be_visible()
    for page, path in zip(pages, waits, strict=True):
        await prey.check(page, path)


# --- forms

SEND = """([path, fields]) => {
    const form = document.createElement("form");
    [form.method, form.action] = ["post", path];
    for (const [name, value] of Object.entries(fields)) {
        const field = document.createElement("textarea");
        [field.name, field.value] = [name, value];
        form.append(field);
    }
    document.body.append(form);
    HTMLFormElement.prototype.submit.call(form);
}"""
WORD = "JSON.parse(document.body.getAttribute('hx-headers'))['x-pulse-csrf']"


@pytest.mark.slow
async def test_nothing_runs_of_a_form_that_is_refused_or_told(house: House, prey: Prey) -> None:
    """Each form without a script, so that the answer is a page; what was done is told on the next."""
    planted = await plant(house)
    await prey.go("/")
    page = prey.page
    word = await page.evaluate(WORD)
    fields = {name: TEXTS[number % len(TEXTS)] for number, name in enumerate((*FIELDS, "name", "label", "headers"))}
    for action in ACTIONS:
        kind = "job" if "/jobs" in action.path else "alarm" if "/alarms" in action.path else "schedule"
        own = quote(NAMES[1], safe="") if "{topic}" in action.path else planted[kind][0]
        async with page.expect_navigation():
            path = re.sub(r"\{\w+\}", own, action.path)
            await page.evaluate(SEND, [path, fields | {"reason": TEXT[:MANY], "csrf": word}])
        await prey.check(page, path)


async def test_nothing_runs_that_a_cookie_a_path_or_a_header_brings(house: House, prey: Prey) -> None:
    in_no_form_of_ours = "%3Cscript%3Epwned(21)%3C/script%3E"
    for text in (*TEXTS[:3], in_no_form_of_ours):
        value = text if text is in_no_form_of_ours else quote(text, safe="")
        await prey.visit.context.add_cookies([{"name": "pulse_said", "value": value, "url": prey.visit.house.url}])
        await prey.go("/zones-of-others/" + quote(text))
        await prey.go("/workers")
        await expect(prey.page.locator("#said p")).to_have_count(0 if text is in_no_form_of_ours else 1)
        await prey.check(prey.page, "/workers")


async def test_nothing_runs_before_one_has_signed_in(house: House, migrated: Settings, visiting: Visiting) -> None:
    await house.engine.tokens.create("ada", ["admin"])
    async with open_house(replace(migrated, http_hosts="")) as closed:
        prey = Prey(await visiting(closed))
        await prey.arm()
        for text in TEXTS[:3]:
            await prey.go("/sign-in?" + urlencode({"next": "/" + text, text: text}))
            page = prey.page
            await prey.go("/topics/" + quote(text, safe="") + "?" + urlencode({"range": text}))
            await page.get_by_label("Token").fill(text[:200])
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("alert")).to_be_visible()
            await prey.check(page, "/sign-in")
