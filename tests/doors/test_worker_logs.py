"""Does every line of a worker's JSON log say of which job and trace it is, wherever handlers run, and no payload?"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

from pulse.engine.engine import Engine
from pulse.model.jobs import NewJob
from pulse.settings import Settings
from pulse.store.connections.redacted_url import place_of
from tests.doors.worker_processes import PATIENCE, started

SECRET = "4111-1111-1111-1111"
TRACE = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
TASKS = """
import logging
from pulse import Discard, Pulse

app = Pulse()
log = logging.getLogger("shop.tasks")

@app.task(name="on_loop", topic="shop", retry=1)
async def on_loop(card: str) -> None:
    log.info("on the loop")
    raise Discard("declined")

@app.task(name="in_thread", topic="shop")
def in_thread(card: str) -> None:
    log.info("in a thread\\n{\\"forged\\": true}")

@app.task(name="in_process", topic="shop", executor="process")
def in_process(card: str) -> None:
    log.info("in a process")

@app.task(name="misfit", topic="shop", retry=1)
async def misfit(card: int) -> None: ...
"""


async def test_every_line_is_an_object_that_names_its_job(settings: Settings, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    tasks = ["on_loop", "in_thread", "in_process", "misfit", "unknown"]
    payload = json.dumps({"card": SECRET})
    new = [NewJob(task=task, topic="shop", payload=payload, trace=TRACE, max_attempts=1) for task in tasks]
    ids = dict(zip(tasks, [str(each.id) for each in await engine.jobs.submit(new)], strict=True))
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_PROCESSES": "1"}

    with started(
        tmp_path, "worker", "tasks:app", "--log-format", "json", "--log-level", "debug", "--health-port", 0, **env
    ) as worker:
        seen: dict[str, dict[str, Any]] = {}
        wanted = {
            "on the loop": "on_loop",
            'in a thread\n{"forged": true}': "in_thread",
            "in a process": "in_process",
            f"on_loop failed for good: declined  job={ids['on_loop']}": "on_loop",
            f"in_thread finished in …  job={ids['in_thread']}": "in_thread",
            f"in_process finished in …  job={ids['in_process']}": "in_process",
        }
        give_up_at = time.monotonic() + PATIENCE
        while not seen.keys() >= wanted.keys():
            assert time.monotonic() < give_up_at, worker.text
            line = json.loads(worker.expect(r"^\{.*\}$").group())
            seen[re.sub(r"(?<=finished in )(\d+ ms|less than 1 ms|\d+\.\d s)", "…", line["message"])] = line
        url = next(found[1] for line in seen if (found := re.search(r"health (http://\S+)/readyz", line)))
        metrics = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics", timeout=30).read())
        worker.process.send_signal(signal.SIGTERM)
        text = worker.expect_end()

    for message, task in wanted.items():
        of_job = {"job_id": ids[task], "task": task, "topic": "shop", "attempt": 1, "trace_id": "ab" * 16}
        assert {name: seen[message][name] for name in of_job} == of_job
    assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    [source] = [line for line in map(json.loads, text.splitlines()) if line["message"].startswith("jobs come from")]
    assert source["message"] == f"jobs come from the database{place_of(settings.database_url)}"
    assert source["level"] == "INFO"
    assert SECRET not in text
    assert b'\npulse_jobs_submitted_total{topic="shop"} 5\n' in metrics
    assert b'\npulse_duty_errors_total{duty="reap"} 0\n' in metrics


DEV = """
import logging
from pulse import Pulse

app = Pulse()

@app.on_startup
def begin() -> None:
    logging.getLogger("shop.start").info("opening the till")

@app.task(name="on_loop")
async def on_loop(name: str) -> str:
    return f"Hello, {name}!" + "!" * 200

@app.task(name="in_thread")
def in_thread(name: str) -> dict[str, str]:
    return {"card": name}

@app.task(name="in_process", executor="process")
def in_process(name: str) -> None: ...

@app.task(name="broken", executor="process", retry=2)
def broken(name: str) -> None:
    raise ValueError(f"no such user: {name}")
"""


async def test_dev_says_what_each_job_did_and_shows_the_traceback_of_a_failure(
    settings: Settings, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(DEV)
    tasks = ["on_loop", "in_thread", "in_process", "broken"]
    new = [NewJob(task=task, payload='{"name": "Ada"}', max_attempts=2) for task in tasks]
    ids = dict(zip(tasks, [str(each.id) for each in await engine.jobs.submit(new)], strict=True))
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_PROCESSES": "1", "PULSE_REDACT": "card"}

    def look() -> str:
        with started(tmp_path, "dev", **env) as dev:
            missing = set(ids.values())
            while missing:
                missing.discard(dev.expect("job=(.{36})")[1])
            dev.process.send_signal(signal.SIGINT)
            assert dev.exit_code() == 0
        return dev.text

    text = await asyncio.to_thread(look)
    lines = [re.sub(r"finished in (\d+ ms|less than 1 ms|\d+\.\d s)", "finished", line) for line in text.splitlines()]
    ends = {line.partition(" ")[2] for line in lines}
    assert f'INFO  pulse.worker  on_loop finished → "Hello, Ada!{"!" * 67}…  job={ids["on_loop"]}' in ends
    assert f'INFO  pulse.worker  in_thread finished → {{"card":"[redacted]"}}  job={ids["in_thread"]}' in ends
    assert f"INFO  pulse.worker  in_process finished  job={ids['in_process']}" in ends
    failure = f" broken failed on attempt 1 of 2: ValueError: no such user: Ada  job={ids['broken']}\n"
    _, _, after = text.partition(failure)
    assert after.startswith("Traceback (most recent call last):\n  File "), text
    assert after.splitlines()[1].endswith(", in broken")
    assert text.count("opening the till") == 2  # in the worker, and in its process
