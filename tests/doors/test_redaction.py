"""Does a marked field show anywhere: at a door, in an error, in a log, in a row other than its own?"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from pulse.doors.access import LOCAL
from pulse.doors.echo import Echo, serve_echo
from pulse.doors.mcp.tools import TOOLS, AlarmList, AlarmSet, JobQuery, ToolContext
from pulse.engine.engine import open_engine
from pulse.links.direct import DirectLink
from pulse.links.remote.jobs import open_remote_engine
from pulse.model.errors import InvalidArguments, InvalidPayload
from pulse.model.jobs import JobFilter, JobStatus, NewJob, Outcome, Report
from pulse.model.redaction import MASK
from pulse.sdk.app import Pulse
from pulse.sdk.logs import JsonFormatter, TextFormatter
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from tests.doors.command_line import call
from tests.doors.http_client import Http, served_http
from tests.endpoint import Endpoint, open_endpoint
from tests.sdk.apps import with_secrets

REDACT = "password,card.number,PIN"
NUMBER = 7777123499
SECRET = {
    "password": "CANARY 'top' ïn\nquotes",
    "card": {"number": "CANARY-nested", "name": "Ada"},
    "people": [{"Password": "CANARY-in-a-list"}, [{"password": {"any": ["CANARY-deep"]}}]],
    "pin": NUMBER,
    "user": "ada",
}
CANARIES = ("CANARY", "canary", str(NUMBER), f"{NUMBER:,}")
TASKS = list(with_secrets.app.tasks)
QUICK: dict[str, Any] = {
    "processes": 1,
    "grace": timedelta(),
    "lease": timedelta(seconds=3),
    "heartbeat": timedelta(seconds=0.3),
    "tick": timedelta(seconds=0.05),
}
ROWS = "jobs", "attempts", "schedules", "fires", "alarms", "deliveries", "workers", "deploys", "counts"


def leaks(text: str) -> bool:
    return any(canary in text for canary in CANARIES)


@contextmanager
def logged() -> Iterator[list[io.StringIO]]:
    """Everything any logger says, as text and as JSON."""
    streams = []
    root, level = logging.getLogger(), logging.getLogger().level
    handlers = []
    for formatter in (TextFormatter(), JsonFormatter()):
        handler = logging.StreamHandler(stream := io.StringIO())
        handler.setFormatter(formatter)
        root.addHandler(handler)
        handlers.append(handler)
        streams.append(stream)
    root.setLevel(logging.INFO)
    try:
        yield streams
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)


class Scene:
    """Jobs that have failed, a schedule that has fired one, an alarm whose URL answers with what it was sent; and all
    that can be seen of them, by where it was seen."""

    def __init__(self, settings: Settings, http: Http, endpoint: Endpoint) -> None:
        self.settings, self.http, self.endpoint = settings, http, endpoint
        self.seen: dict[str, str] = {}
        self.ids: list[str] = []

    async def play(self) -> None:
        for task in TASKS:
            answer = await self.ask("POST", "/v1/jobs", {"task": task, "payload": SECRET, "max_attempts": 1})
            self.ids.append(answer["id"])
        made = {"name": "nightly", "task": TASKS[0], "payload": SECRET, "cron": "0 3 * * *", "max_attempts": 1}
        await self.ask("POST", "/v1/schedules", made)
        self.ids.append((await self.ask("POST", "/v1/schedules/nightly/trigger"))["job_id"])
        alarm = {"name": "tea", "delay_seconds": 0.01, "url": self.endpoint.url, "payload": SECRET, "max_failures": 0}
        await self.ask("POST", "/v1/alarms", alarm)
        worker = Worker(with_secrets.app, settings=replace(self.through_the_server, **QUICK))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(20):
            while not await self.is_over():
                await asyncio.sleep(0.05)
        worker.stop()
        await asyncio.wait_for(running, 15)

    @property
    def through_the_server(self) -> Settings:
        return replace(self.settings, server_url=f"grpc://{self.http.server.address}")

    async def is_over(self) -> bool:
        jobs = [(await self.http.done("GET", f"/v1/jobs/{job_id}"))["status"] for job_id in self.ids]
        alarm = (await self.http.done("GET", "/v1/alarms/tea"))["status"]
        return {*jobs} == {"DEAD_LETTERED"} and alarm == "failed"

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        response = await self.http.ask(method, path, body)
        assert response.status_code < 300, response.text
        self.seen[f"{method} {path}"] = response.text
        return response.json()

    async def look(self) -> None:
        await self.look_over_http()
        async with open_remote_engine(self.through_the_server) as engine:
            await self.look_at_values("grpc", engine)
        async with open_engine(self.settings) as engine:
            await self.look_at_values("direct", engine)
            await self.look_over_mcp(ToolContext(DirectLink(engine), LOCAL, "local"))
        await self.look_by_command()

    async def look_over_http(self) -> None:
        job = self.ids[0]
        of_jobs = ["/v1/jobs", *(f"/v1/jobs/{each}{more}" for each in self.ids for more in ("", "/attempts"))]
        of_schedules = ["/v1/schedules", *(f"/v1/schedules/nightly{more}" for more in ("", "/fires", "/preview"))]
        of_alarms = ["/v1/alarms", "/v1/alarms/tea", "/v1/alarms/tea/deliveries"]
        for path in (*of_jobs, f"/v1/jobs/{job}/wait", *of_schedules, *of_alarms, "/v1/topics", "/v1/workers"):
            await self.ask("GET", path)
        for verb in ("pause", "resume"):
            await self.ask("POST", f"/v1/schedules/nightly/{verb}")
        await self.ask("PATCH", "/v1/schedules/nightly", {"priority": 3})

    async def look_at_values(self, way: str, engine: Any) -> None:
        job = (await engine.jobs.list_page()).jobs[0]
        values = {
            "find": await engine.jobs.list_page(),
            "get": [await engine.jobs.get(job.id)],
            "attempts": [await engine.jobs.attempts(each.id) for each in (await engine.jobs.list_page()).jobs],
            "schedule": [await engine.schedules.get("nightly"), await engine.schedules.list_page()],
            "edited": await engine.schedules.edit("nightly", {"priority": 4}),
            "alarm": [await engine.alarms.get("tea"), await engine.alarms.list_page()],
            "deliveries": await engine.alarms.deliveries("tea"),
        }
        self.seen |= {f"{way} {name}": repr(value) for name, value in values.items()}

    async def look_over_mcp(self, asking: ToolContext) -> None:
        tools = {tool.name: tool for tool in TOOLS}
        self.seen["mcp alarms"] = repr(await tools["alarm_list"].run(asking, AlarmList()))
        self.seen["mcp job"] = repr(await tools["job_status"].run(asking, JobQuery(id=self.ids[0])))

    async def look_by_command(self) -> None:
        direct = {"PULSE_DATABASE_URL": self.settings.database_url, "PULSE_REDACT": self.settings.redact}
        commands = [
            *(["jobs", "list"], ["jobs", "show", self.ids[0]]),
            *(
                ["schedules", "show", "nightly"],
                ["schedules", "list"],
                ["schedules", "edit", "nightly", "--priority", "5"],
            ),
            *(["alarms", "show", "tea"], ["alarms", "list"], ["alarms", "deliveries", "tea"]),
        ]
        for command in commands:
            for form in ([], ["--json"]):
                result = await asyncio.to_thread(call, *form, *command, **direct)
                assert result.exit_code == 0, result.output
                self.seen[" ".join(["pulse", *form, *command])] = result.output

    async def rows(self) -> dict[str, str]:
        """Every table without its payloads."""
        conn = await asyncpg.connect(self.settings.database_url)
        rows = {
            table: str(await conn.fetch(f"select to_jsonb(row) - 'payload' as row from pulse.{table} as row"))
            for table in ROWS
        }
        for table in ("jobs", "schedules", "alarms"):
            assert leaks(str(await conn.fetch(f"select payload from pulse.{table}")))
        await conn.close()
        return rows


# Those that show a payload, or an error that quotes it. The others have nothing to hide.
TELLING = (
    *("POST /v1/jobs", "POST /v1/schedules", "POST /v1/alarms", "PATCH /v1/schedules/nightly", "GET /v1/jobs"),
    *("GET /v1/schedules", "GET /v1/schedules/nightly", "GET /v1/alarms", "GET /v1/alarms/tea"),
    *("GET /v1/alarms/tea/deliveries", "grpc find", "grpc get", "grpc attempts", "grpc schedule", "grpc edited"),
    *("grpc alarm", "grpc deliveries", "direct find", "direct get", "direct attempts", "direct schedule"),
    *("direct edited", "direct alarm", "direct deliveries", "mcp alarms", "mcp job", "pulse jobs list"),
    *("pulse --json jobs list", "pulse schedules show nightly", "pulse --json schedules list", "pulse alarms show tea"),
    *("pulse --json alarms show tea", "pulse --json schedules edit nightly --priority 5", "row attempts", "row jobs"),
    *("row deliveries", "log 0", "log 1"),
)


@pytest.mark.parametrize(
    "redact", [pytest.param(REDACT, id="marked"), pytest.param("", id="not marked", marks=pytest.mark.slow)]
)
async def test_a_marked_value_is_seen_by_its_handler_and_its_url_and_nobody_else(
    settings: Settings, redact: str
) -> None:
    """Without the mark it is seen everywhere, which proves that the test looks where it would be."""
    settings = replace(settings, redact=redact, alarm_networks="127.0.0.0/8")
    with_secrets.seen.clear()

    with logged() as logs:
        async with open_endpoint() as endpoint, served_http(settings) as http:
            endpoint.status, endpoint.text = 500, f"refused: {json.dumps(SECRET)}"
            scene = Scene(settings, http, endpoint)
            await scene.play()
            await scene.look()
            seen = scene.seen | {f"row {table}": text for table, text in (await scene.rows()).items()}
    seen |= {f"log {number}": stream.getvalue() for number, stream in enumerate(logs)}

    leaked = {where for where, text in seen.items() if leaks(text)}
    assert leaked == set() if redact else leaked >= set(TELLING)
    assert not redact or {where for where in TELLING if MASK not in seen[where]} == set()
    assert [call.body["payload"] for call in endpoint.calls] == [SECRET]
    assert with_secrets.seen[0] == tuple(SECRET[name] for name in ("password", "card", "people", "pin"))


# --- one place at a time


@pytest.fixture
def marked(settings: Settings) -> Settings:
    return replace(settings, redact=REDACT, alarm_networks="127.0.0.0/8")


DAILY = {"name": "daily", "task": "mail", "cron": "0 3 * * *", "payload": SECRET}
LATER = {"name": "tea", "delay_seconds": 60, "url": "http://127.0.0.1:9/", "payload": SECRET}


async def kept(settings: Settings) -> list[Any]:
    """The payloads there are, as they are."""
    conn = await asyncpg.connect(settings.database_url)
    rows = [await conn.fetch(f"select payload from pulse.{table}") for table in ("jobs", "schedules", "alarms")]
    await conn.close()
    return [json.loads(row["payload"]) for found in rows for row in found]


async def test_what_was_read_masked_cannot_be_written_back(marked: Settings) -> None:
    async with served_http(marked) as http:
        await http.done("POST", "/v1/schedules", DAILY, status=201)
        await http.done("POST", "/v1/alarms", LATER, status=201)
        schedule = await http.done("GET", "/v1/schedules/daily")
        masked = schedule["payload"]
        tries = {
            "PATCH /v1/schedules/daily": {"payload": masked},
            "POST /v1/schedules": DAILY | {"name": "copy", "payload": masked},
            "POST /v1/alarms": LATER | {"payload": masked},
            "POST /v1/jobs": {"task": "mail", "payload": masked},
            "POST /v1/jobs/batch": {"jobs": [{"task": "mail", "payload": masked}]},
        }
        for route, body in tries.items():
            method, path = route.split(" ")
            status, code, message = await http.refused(method, path, body)
            assert (status, code) == (400, "invalid_payload"), route
            assert "give the value itself" in message
        async with open_remote_engine(replace(marked, server_url=f"grpc://{http.server.address}")) as engine:
            with pytest.raises(InvalidPayload, match="leave payload out to keep the present one"):
                await engine.schedules.edit("daily", {"payload": json.dumps(masked)})
        changed = ["schedules", "edit", "daily", "--payload", json.dumps(masked)]
        told = {"PULSE_DATABASE_URL": marked.database_url, "PULSE_REDACT": REDACT}
        refused = await asyncio.to_thread(call, *changed, **told)
        assert refused.exit_code != 0
        assert "leave payload out to keep the present one" in refused.output
    async with open_engine(marked) as engine:
        tools = {tool.name: tool for tool in TOOLS}
        with pytest.raises(InvalidPayload, match="give the value itself"):
            again = AlarmSet(name="tea", delay_seconds=9, url=LATER["url"], payload=masked)  # type: ignore[arg-type]
            await tools["alarm_set"].run(ToolContext(DirectLink(engine), LOCAL, "local"), again)

    assert masked == {
        "password": MASK,
        "card": {"number": MASK, "name": "Ada"},
        "people": [{"Password": MASK}, [{"password": MASK}]],
        "pin": MASK,
        "user": "ada",
    }
    assert await kept(marked) == [SECRET, SECRET]


async def test_what_is_compared_is_the_value_and_not_its_mask(marked: Settings) -> None:
    other = SECRET | {"password": "another"}
    key = {"idempotency-key": "once"}

    async with served_http(marked) as http:
        first = await http.done("POST", "/v1/jobs", {"task": "mail", "payload": SECRET}, status=201, headers=key)
        again = await http.done("POST", "/v1/jobs", {"task": "mail", "payload": SECRET}, headers=key)
        reused = await http.refused("POST", "/v1/jobs", {"task": "mail", "payload": other}, headers=key)
        await http.done("POST", "/v1/schedules", DAILY, status=201)
        await http.done("POST", "/v1/schedules", DAILY)
        differs = await http.refused("POST", "/v1/schedules", DAILY | {"payload": other})
        await http.done("POST", "/v1/alarms", LATER, status=201, headers=key)
        await http.done("POST", "/v1/alarms", LATER, headers=key)
        used = await http.refused("POST", "/v1/alarms", LATER | {"payload": other}, headers=key)

    assert first["id"] == again["id"]
    assert [reused[1], differs[1], used[1]] == ["idempotency_key_reused", "schedule_exists", "alarm_exists"]
    assert not leaks(f"{reused} {differs} {used}")


async def test_a_task_is_changed_without_touching_the_payload_that_one_may_not_see(marked: Settings) -> None:
    async with served_http(marked) as http:
        app = Pulse(settings=replace(marked, server_url=f"grpc://{http.server.address}"))

        @app.task
        async def old(password: str) -> None: ...

        @app.task
        async def new(password: str) -> None: ...

        await app.schedules.acreate("s", old, payload={"password": "CANARY"}, cron="0 3 * * *")
        edited = await app.schedules.aedit("s", task=new)
        await asyncio.to_thread(app.close)

    assert (edited.job.task, edited.job.payload) == (new.name, json.dumps({"password": MASK}))
    assert await kept(marked) == [{"password": "CANARY"}]


async def test_a_worker_that_does_not_know_the_setting_gives_nothing_away(marked: Settings) -> None:
    async with served_http(marked) as http:
        body = {"task": "secret.on_the_loop", "payload": SECRET, "max_attempts": 1}
        job = await http.done("POST", "/v1/jobs", body, status=201)
        unknowing = replace(marked, redact="", server_url=f"grpc://{http.server.address}", **QUICK)
        worker = Worker(with_secrets.app, settings=unknowing)
        running = asyncio.create_task(worker.run())
        ended = await http.done("GET", f"/v1/jobs/{job['id']}/wait")
        worker.stop()
        await asyncio.wait_for(running, 15)

    conn = await asyncpg.connect(marked.database_url)
    rows = str(await conn.fetch("select * from pulse.attempts")) + str(
        await conn.fetch("select last_error from pulse.jobs")
    )
    await conn.close()
    assert ended["status"] == "DEAD_LETTERED"
    assert not leaks(rows)
    assert MASK in rows


async def test_what_was_recorded_before_a_field_was_marked_is_masked_when_it_is_read(marked: Settings) -> None:
    async with open_engine(replace(marked, redact="")) as engine:
        [job] = await engine.jobs.submit([NewJob(task="mail", payload=json.dumps(SECRET), max_attempts=1)])
        [claim] = await engine.claims.claim("mail", worker="w", slots=1)
        words = f"declined {SECRET['password']} {NUMBER}"
        failed = Report(id=job.id, lease_id=claim.lease_id, outcome=Outcome.FAIL, error=words, traceback=words)
        await engine.claims.report([failed])

    async with open_engine(marked) as engine:
        seen = [await engine.jobs.get(job.id), await engine.jobs.attempts(job.id), await engine.jobs.list_page()]

    assert not leaks(repr(seen))
    assert repr(seen).count(f"declined {MASK} {MASK}") == 4


async def test_what_is_marked_cannot_be_guessed_by_searching_errors_of_before(marked: Settings) -> None:
    """Neither by what is found, nor by where the next page begins, nor by what is replayed."""
    async with open_engine(replace(marked, redact="")) as engine:
        for number in range(3):
            await engine.jobs.submit([NewJob(task="mail", payload=json.dumps(SECRET), max_attempts=1)])
            [claim] = await engine.claims.claim("mail", worker="w", slots=1)
            words = f"declined {NUMBER} of number {number}"
            failed = Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.FAIL, error=words)
            await engine.claims.report([failed])

    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(served_http(marked))
        remote = replace(marked, server_url=f"grpc://{http.server.address}")
        through = await stack.enter_async_context(open_remote_engine(remote))

        async def pages(text: str, limit: int) -> list[Any]:
            wanted = JobFilter(error=text, status=JobStatus.DEAD_LETTERED)
            listed = await http.done("GET", f"/v1/jobs?status=DEAD_LETTERED&limit={limit}&error={text}")
            drawn = (await http.ask("GET", f"/jobs?error={text}")).text
            bulk = (await http.ask("GET", f"/jobs/bulk?status=dead_lettered&error={text}")).text
            shown = [
                re.sub(r'before" value="[^"]*"|[0-9a-f]{64}', "", each.replace(text, "")) for each in (drawn, bulk)
            ]
            return [listed, await through.jobs.list_page(wanted, limit=limit), *shown]

        right, wrong = str(NUMBER), str(NUMBER + 1)
        for limit in (1, 50):
            assert await pages(right, limit) == await pages(wrong, limit)
        found = [await pages("DECLINED", 2), await pages(f"{MASK} of number 1", 50)]
        assert [len(each[0]["jobs"]) for each in found] == [2, 1]
        assert [len(each[1].jobs) for each in found] == [2, 1]
        assert all("declined" in each[2] for each in found)
        texts = (right, "number 1", "DECL")
        replayed = [(await through.jobs.replay_matching(JobFilter(error=text))).done for text in texts]

    assert replayed == [0, 1, 2]


async def test_a_call_that_is_refused_does_not_quote_what_is_marked(marked: Settings) -> None:
    app = Pulse(settings=marked)

    @app.task
    async def sign_in(password: with_secrets.Plan, user: str) -> None: ...

    with pytest.raises(InvalidArguments, match=r"invalid enum value .\[redacted\]") as refused:
        sign_in.call("CANARY-top", user="ada")  # type: ignore[arg-type]

    assert not leaks(str(refused.value))


async def test_an_echo_shows_a_wake_without_what_is_marked(marked: Settings) -> None:
    shown: list[Any] = []
    wake = {"alarm_id": "1", "payload": SECRET, "attempt": 1}

    echo = Echo(shown.append, redaction=marked.redaction)
    async with serve_echo(echo, port=0) as port, httpx.AsyncClient() as client:
        for content in (json.dumps(wake).encode(), b'{"password": "CANARY', b"\xff no JSON"):
            await client.post(f"http://127.0.0.1:{port}/", content=content)

    assert len(shown) == 3
    assert not leaks(repr(shown))
    assert shown[0].payload["card"] == {"number": MASK, "name": "Ada"}


async def test_in_a_transaction_of_ones_own_it_is_the_same(marked: Settings) -> None:
    app = Pulse(settings=marked)
    conn = await asyncpg.connect(marked.database_url)
    masked = {"password": MASK}

    async with conn.transaction():
        given: dict[str, Any] = {"conn": conn, "delay": "1h", "url": "http://127.0.0.1:9/"}
        alarm = await app.alarms.aset("tea", payload={"password": "CANARY"}, idempotency_key="k", **given)
        again = await app.alarms.aset("tea", payload={"password": "CANARY"}, idempotency_key="k", **given)
        with pytest.raises(InvalidPayload, match="give the value itself"):
            await app.alarms.aset("tea", payload=masked, **given)
        with pytest.raises(InvalidPayload, match="give the value itself"):
            await app.asubmit([NewJob(task="mail", payload=json.dumps(masked))], conn=conn)
    await conn.close()

    assert [json.loads(each.payload) for each in (alarm, again)] == [masked, masked]
    assert await kept(marked) == [{"password": "CANARY"}]
