"""Real workers in processes of their own: do they start, run, stop as told, follow the code, and leave nothing?"""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from pulse.cli.session import run_with_engine
from pulse.model.jobs import Job, JobStatus, NewJob
from pulse.store.embedded import server as embedded
from pulse.store.embedded.binaries import find_binaries
from tests.doors.worker_processes import TASKS, Started, is_gone, python_in, rewrite, run_in, started
from tests.waiting import until

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pulse.settings import Settings

needs_binaries = pytest.mark.skipif(not find_binaries(), reason="no Postgres binaries on this machine")


class Shop:
    """An application in a folder, over the database of this test."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self.file = folder / "tasks.py"
        self.file.write_text(TASKS)

    def worker(self, *flags: object, app: str = "tasks:app") -> AbstractContextManager[Started]:
        return started(self.folder, "worker", app, *flags, PULSE_DATABASE_URL=str(self.settings.database_url))

    def enqueue(self, task: str, **arguments: Any) -> UUID:
        job = NewJob(task=f"tasks.{task}", payload=json.dumps(arguments))
        [submitted] = run_with_engine(self.settings, lambda engine: engine.jobs.submit([job]))
        return submitted.id

    def get(self, job_id: UUID) -> Job:
        return run_with_engine(self.settings, lambda engine: engine.jobs.get(job_id))


@pytest.fixture
def shop(tmp_path: Path, settings: Settings) -> Shop:
    return Shop(tmp_path, settings)


# Running and stopping


def test_a_worker_introduces_itself_runs_jobs_and_ends_when_told(shop: Shop) -> None:
    job_id = shop.enqueue("hello", name="ada")

    with shop.worker("--threads", "3") as worker:
        worker.expect(f"Pulse worker for tasks:app, pid {worker.process.pid}")
        worker.expect(r"topics +tasks\.hello, tasks\.in_a_thread")
        worker.expect(r"slots +100 async, 3 threads")
        worker.expect(r"database +postgresql://")
        worker.expect(f"INFO  shop.tasks  greeting ada  job={job_id} task=tasks.hello attempt=1")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0

    assert shop.get(job_id).status is JobStatus.COMPLETED
    assert shop.get(job_id).result == '"hello ada"'


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_finishes_what_runs(shop: Shop, ending: signal.Signals) -> None:
    running = shop.enqueue("wait", seconds=0.5)

    with shop.worker() as worker:
        worker.expect("waiting")
        worker.process.send_signal(ending)
        worker.expect(f"{ending.name}: stopping")
        late = shop.enqueue("hello")
        assert worker.exit_code() == 0

    assert shop.get(running).status is JobStatus.COMPLETED
    assert shop.get(late).status is JobStatus.PENDING


def test_told_twice_it_gives_back_what_runs(shop: Shop) -> None:
    job_id = shop.enqueue("wait", seconds=600)

    with shop.worker() as worker:
        worker.expect("waiting")
        worker.process.send_signal(signal.SIGTERM)
        worker.expect("stopping")
        worker.process.send_signal(signal.SIGTERM)
        worker.expect("SIGTERM again")
        assert worker.exit_code() == 1

    assert shop.get(job_id).status is JobStatus.PENDING


def test_told_three_times_it_is_gone_even_while_a_handler_blocks_the_loop(shop: Shop) -> None:
    shop.enqueue("block_the_loop", seconds=600)

    with shop.worker() as worker:
        worker.expect("blocking")
        while worker.process.poll() is None:  # two signals that meet are one, so more than three may be needed
            worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 1


def test_a_thread_that_does_not_end_does_not_keep_the_process(shop: Shop) -> None:
    job_id = shop.enqueue("block_a_thread", seconds=600)

    with shop.worker("--grace", "50ms") as worker:
        worker.expect("blocking")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 1

    assert "1 handler did not finish in time" in worker.text
    assert shop.get(job_id).status is JobStatus.PENDING


def test_only_the_topics_it_was_given_are_worked(shop: Shop) -> None:
    other, mine = shop.enqueue("hello"), shop.enqueue("in_a_thread")

    with shop.worker("--topics", "tasks.in_a_thread") as worker:
        worker.expect("in a thread")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0

    assert shop.get(mine).status is JobStatus.COMPLETED
    assert shop.get(other).status is JobStatus.PENDING


# What it shows


def ask(url: str, path: str) -> tuple[int, Any]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


async def test_health_is_answered_over_a_socket(shop: Shop) -> None:
    await asyncio.to_thread(shop.enqueue, "wait", seconds=1)

    async def is_unready() -> bool:
        status, body = ask(url, "/readyz")
        return (status, body["status"]) == (503, "unavailable")

    with shop.worker("--health-port", "0") as worker:
        url = worker.expect(r"health +(http://127\.0\.0\.1:\d+)/readyz")[1]
        assert ask(url, "/livez") == (200, {"status": "ok"})  # from the start
        worker.expect("waiting")
        assert ask(url, "/readyz") == (200, {"status": "ok"})
        worker.process.send_signal(signal.SIGTERM)
        await until(is_unready)
        assert ask(url, "/livez")[0] == 200
        assert worker.exit_code() == 0


def test_every_line_of_a_json_log_is_an_object_and_carries_its_job(shop: Shop) -> None:
    on_loop, in_thread = shop.enqueue("hello"), shop.enqueue("in_a_thread")

    with shop.worker("--log-format", "json") as worker:
        worker.expect("greeting|in a thread")
        worker.expect("greeting|in a thread")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0

    lines = [json.loads(line) for line in worker.said]
    jobs = {line["message"]: line["job_id"] for line in lines if line["logger"] == "shop.tasks"}
    assert jobs == {"greeting world": str(on_loop), "in a thread": str(in_thread)}


def test_an_application_that_sets_up_logging_keeps_its_own(shop: Shop) -> None:
    shop.file.write_text(f'{TASKS}\nlogging.basicConfig(level="INFO", format="MINE %(job_id)s %(message)s")\n')
    job_id = shop.enqueue("hello")

    with shop.worker() as worker:
        worker.expect(f"^MINE {job_id} greeting")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0


# Following the code


def test_a_changed_file_starts_it_again_and_a_broken_one_does_not_end_it(shop: Shop) -> None:
    with shop.worker("--reload") as worker:
        first = shop.enqueue("hello")
        worker.expect(f"greeting.*{first}")

        rewrite(shop.file, TASKS.replace("greeting", "welcoming"))
        worker.expect("^tasks.py changed")
        second = shop.enqueue("hello")
        worker.expect(f"welcoming.*{second}")

        shop.file.write_text("import nowhere_to_be_found")
        worker.expect("No module named 'nowhere_to_be_found'")
        worker.expect("exit code 1. Waiting for a file to change")

        shop.file.write_text(TASKS)
        third = shop.enqueue("hello")
        worker.expect(f"greeting.*{third}")
        worker.process.send_signal(signal.SIGINT)
        assert worker.exit_code() == 0


async def test_a_worker_ends_with_the_process_that_watches_for_it(shop: Shop) -> None:
    with shop.worker("--reload") as worker:
        child = int(worker.expect(r"Pulse worker for tasks:app, pid (\d+)")[1])
        await asyncio.to_thread(shop.enqueue, "hello")
        worker.expect("greeting")
        worker.process.kill()
        worker.expect_end()  # both have closed their output

    assert child != worker.process.pid
    await until(lambda: asyncio.to_thread(is_gone, child))


# Schedules

TIMED = (
    TASKS
    + """
@app.task(every="1h")
def hourly() -> None:
    log.info("on the hour")

@app.task(cron="0 9 * * 1-5", tz="Europe/Berlin")
async def mornings() -> None: ...
"""
)


def names_of_schedules(settings: Settings) -> list[str]:
    page = run_with_engine(settings, lambda engine: engine.schedules.list_page())
    return [f"{schedule.name} {schedule.status}" for schedule in page.schedules]


def synced(shop: Shop) -> str:
    return python_in(
        shop.folder,
        "import tasks; print(*tasks.app.schedules.sync().created)",
        PULSE_DATABASE_URL=str(shop.settings.database_url),
    )


def test_a_worker_warns_of_schedules_that_nobody_has_synced(shop: Shop) -> None:
    shop.file.write_text(TIMED)

    with shop.worker(app="tasks.py") as worker:
        worker.expect(
            r"WARNING .*2 schedules declared in code are not in the database yet: run `pulse schedules sync tasks\.py`"
        )
        shop.enqueue("hello")
        worker.expect("greeting")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    assert names_of_schedules(shop.settings) == []

    assert synced(shop) == "tasks.hourly tasks.mornings\n"
    with shop.worker() as worker:
        shop.enqueue("hello")
        worker.expect("greeting")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    assert "schedule" not in worker.text

    rewrite(shop.file, TIMED.replace('every="1h"', 'every="2h"'))
    with shop.worker() as worker:
        worker.expect("1 schedule declared in code is not in the database as declared: run")


def test_a_worker_starts_whatever_its_schedules_are(shop: Shop) -> None:
    """They belong to another app, so they cannot even be compared."""
    shop.file.write_text(TIMED)
    assert synced(shop)
    (shop.folder / "other.py").write_text(TIMED.replace('every="1h"', 'every="1h", name="tasks.hourly"'))
    shop.enqueue("hourly")

    with shop.worker(app="other:app") as worker:
        worker.expect("INFO .*were not compared with the database: ScheduleOwned: schedule 'tasks.hourly' is declared")
        worker.expect("on the hour")


@needs_binaries
def test_dev_syncs_the_schedules_of_the_code(empty: Path, settings: Settings) -> None:
    file = empty / "tasks.py"
    # With a database of its own, straight to it: through the server of dev when servers speak of schedules.
    code = TIMED.replace("Pulse()", f"Pulse({str(settings.database_url)!r})")
    file.write_text(code)

    with started(empty, "dev") as dev:
        dev.expect("  schedules 2 created$")
        assert names_of_schedules(settings) == ["tasks.hourly ACTIVE", "tasks.mornings ACTIVE"]

        rewrite(file, code.replace('every="1h"', 'every="2h"'))
        dev.expect("  schedules 1 changed, 1 unchanged$")

        rewrite(file, TASKS.replace("Pulse()", f"Pulse({str(settings.database_url)!r})"))
        dev.expect("  schedules 2 disabled$")
        dev.process.send_signal(signal.SIGINT)
        assert dev.exit_code() == 0

    assert names_of_schedules(settings) == ["tasks.hourly DISABLED", "tasks.mornings DISABLED"]


# All in one


@pytest.fixture
def empty() -> Iterator[Path]:
    """A folder with a short path, as sockets need, and nothing but an application."""
    path = Path(tempfile.mkdtemp(prefix="dev", dir="/tmp"))
    (path / "tasks.py").write_text(TASKS)
    yield path
    embedded.stop(path / ".pulse")
    shutil.rmtree(path)


@needs_binaries
async def test_dev_brings_all_that_an_application_needs_and_takes_it_away_again(empty: Path) -> None:
    enqueue = "from tasks import hello; print(hello.enqueue('ada').result(timeout=30))"

    with started(empty, "dev") as dev:
        dev.expect(r"schema +pulse: applied 0001 to")
        dev.expect(r"server +grpc://127\.0\.0\.1:\d+")
        worker = int(dev.expect(r"Pulse worker for tasks.py, pid (\d+)")[1])
        hint = dev.expect('enqueue +.* -c "(.*)"')[1]
        dev.expect("jobs come from 127.0.0.1")
        assert python_in(empty, enqueue) == "hello ada\n"
        assert hint == "from tasks import hello; hello.enqueue()"
        python_in(empty, hint)
        dev.expect("greeting world")
        assert "tasks.hello" in run_in(empty, "topics", "list").stdout
        dev.process.send_signal(signal.SIGINT)
        assert dev.exit_code() == 0

    await until(lambda: asyncio.to_thread(is_gone, worker))
    assert embedded.running(empty / ".pulse") is None

    # Its data stays, and a worker on its own has the server for as long as it needs it.
    with started(empty, "worker", "tasks.py") as alone:
        alone.expect(r"database +the embedded Postgres in \.pulse ")

        async def is_running() -> bool:
            return embedded.running(empty / ".pulse") is not None

        await until(is_running)
        assert python_in(empty, enqueue) == "hello ada\n"
        alone.process.send_signal(signal.SIGTERM)
        assert alone.exit_code() == 0
    assert embedded.running(empty / ".pulse") is None
