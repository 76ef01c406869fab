"""A browser without a window: it reads pages, and sends their forms as the script on them does."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import httpx

from pulse.engine.engine import Engine
from pulse.model.alarms import Alarm, NewAlarm
from pulse.model.schedules import NewSchedule, Schedule
from tests.doors.http_client import Http
from tests.factories import a_new_job

URL = "http://127.0.0.1:9/hook"


async def page(http: Http, path: str, status: int = 200) -> str:
    answer = await http.ask("GET", path, headers={"accept": "text/html"})
    assert answer.status_code == status, answer.text
    return answer.text


async def post(http: Http, path: str, **form: Any) -> httpx.Response:
    """A form as the page's script sends it."""
    [word] = re.findall(r'"x-pulse-csrf": "(\w+)"', await page(http, "/schedules"))
    headers = {"hx-request": "true", "x-pulse-csrf": word}
    return await http.client.post(path, data=form, headers=headers)


async def refused(http: Http, path: str, **form: Any) -> str:
    answer = await post(http, path, **form)
    assert answer.status_code >= 400
    return unescape(answer.headers["hx-trigger"])


async def drawn(http: Http, path: str) -> dict[str, str]:
    """The fields of the form on a page, as a browser would send them if nobody touched them."""
    text = (await page(http, path)).partition('<form class="fields"')[2]
    found = dict(re.findall(r'<input (?!type="radio")[^>]*?name="(\w+)"[^>]*? value="([^"]*)"', text))
    found |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>\n?(.*?)</textarea>', text, re.DOTALL))
    found |= dict(re.findall(r'<input type="radio" name="(kind)" value="(\w+)" checked>', text))
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', text, re.DOTALL):
        found[name] = "".join(re.findall(r'value="(\w+)" selected', options))
    return {name: unescape(value).replace("\n", "\r\n") for name, value in found.items()}


async def make(engine: Engine, name: str, **given: Any) -> Schedule:
    if not {"every", "cron", "run_at"} & given.keys():
        given["every"] = timedelta(hours=1)
    job = given.pop("job", None) or a_new_job()
    return (await engine.schedules.create(NewSchedule(name=name, job=job, **given)))[0]


async def set_one(engine: Engine, **given: Any) -> Alarm:
    if not {"fire_at", "cron"} & given.keys():
        given["delay"] = timedelta(hours=1)
    return (await engine.alarms.set(NewAlarm(**{"owner": "ada", "url": URL} | given))).alarm
