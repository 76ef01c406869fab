"""Does what a handler has done reach its job, whatever the database, the server or another job does meanwhile?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from pulse import Context, Pulse, Retry
from pulse.engine.engine import Engine
from pulse.links.link import Link
from pulse.model.errors import Conflict, DatabaseUnreachable, Forbidden, InvalidInput, JobFailed
from pulse.model.jobs import Job, Lease, Outcome, Progress, Report, ReportStatus
from pulse.sdk.worker.reporter import Reporter
from pulse.settings import Settings
from pulse.timing.backoff import Backoff
from tests.sdk import apps_here
from tests.sdk.apps_here import BRISK, working
from tests.waiting import connected, until

ONCE = Retry(1)


@pytest.fixture
def app(settings: Settings) -> Pulse:
    return Pulse(settings=settings)


# --- a database in the way


@pytest.fixture
async def lock_timeout(migrated: Settings) -> AsyncIterator[None]:
    """What many give their roles or databases. To be asked for before anything connects."""
    async with connected(migrated.database_url) as conn:
        name = await conn.fetchval("select current_database()")
        await conn.execute(f"alter database {name} set lock_timeout = '50ms'")
        yield
        await conn.execute(f"alter database {name} reset lock_timeout")


async def test_results_wait_for_a_locked_table(
    lock_timeout: None, app: Pulse, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()
    started: list[int] = []

    @app.task(retry=ONCE)
    async def work(n: int) -> int:
        started.append(n)
        await go_on.wait()
        return n

    handles = await app.aenqueue_many(work.call(n) for n in range(10))
    async with working(app), connected(app.settings.database_url) as conn:
        await until(lambda: _is(len(started) == 10))
        async with conn.transaction():
            await conn.execute("lock table pulse.jobs in share row exclusive mode")
            go_on.set()
            await until(lambda: _is("somebody held a lock" in caplog.text))  # a duty, which waits longer than they
        results = [await handle.aresult(10) for handle in handles]

    assert results == list(range(10))
    assert {(await engine.jobs.get(handle.id)).attempt for handle in handles} == {1}


@pytest.fixture
async def rule(settings: Settings) -> AsyncIterator[None]:
    """A trigger of somebody's that refuses one result, and one progress."""
    async with connected(settings.database_url) as conn:
        await conn.execute(
            """
            create function pulse.refuse_poison() returns trigger language plpgsql as $$ begin
                raise exception 'poison is not kept here';
            end $$;
            create trigger refuse_poison before update on pulse.jobs for each row
            when (new.result = '"poison"' or new.progress = '"poison"') execute function pulse.refuse_poison();
            """
        )
        yield
        await conn.execute("drop function pulse.refuse_poison cascade")


async def test_a_result_that_the_database_refuses_fails_its_job_and_no_other(
    app: Pulse, rule: None, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = asyncio.Event()
    dead: list[Job] = []

    @app.task(retry=Retry(3))
    async def work(result: str) -> str:
        await go_on.wait()
        return result

    @app.on_dead_letter
    async def tell(job: Job) -> None:
        dead.append(job)

    handles = await app.aenqueue_many(work.call(result) for result in ["a", "b", "poison", "c", "d"])
    async with working(app) as worker:
        await until(lambda: _is(len(worker.running) == 5))
        go_on.set()
        fine = [await handle.aresult(10) for handle in handles if handle is not handles[2]]
        with pytest.raises(JobFailed, match=r"the handler finished, but its result was refused: .*poison is not kept"):
            await handles[2].aresult(10)
        await until(lambda: _is(dead))

    assert fine == ["a", "b", "c", "d"]
    assert {(await engine.jobs.get(handle.id)).attempt for handle in handles} == {1}
    assert [job.id for job in dead] == [handles[2].id]
    assert f"the report of job {handles[2].id} was refused" in caplog.text


async def test_progress_that_the_database_refuses_hinders_no_other(app: Pulse, rule: None) -> None:
    go_on = asyncio.Event()

    @app.task(retry=ONCE)
    async def work(ctx: Context, progress: str) -> None:
        ctx.progress(progress)
        await go_on.wait()

    handles = await app.aenqueue_many(work.call(text) for text in ["a", "b", "poison", "c", "d"])
    async with working(app):
        for handle, text in zip(handles, "ab-cd", strict=True):
            if text != "-":
                await until(lambda handle=handle, text=text: _says(handle, text))  # type: ignore[misc]
        go_on.set()
        for handle in handles:
            await handle.aresult(10)


# --- a failover


@pytest.mark.parametrize("settings", ["server"], indirect=True)  # straight on the database, each claim has its answer
async def test_a_claim_that_a_failover_has_lost_ends_its_own_handler_only(app: Pulse, engine: Engine) -> None:
    """The worker has turned to servers that know nothing of its claims but what the rows say, and one row is as the
    standby had it: due in an hour, never claimed."""
    go_on, ended = asyncio.Event(), asyncio.Event()
    started: list[int] = []

    @app.task(retry=ONCE)
    async def work(n: int) -> int:
        started.append(n)
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            ended.set()
            raise
        return n

    handles = await app.aenqueue_many(work.call(n) for n in range(5))
    async with working(app):
        await until(lambda: _is(len(started) == 5))
        assert apps_here.served
        await put_back(app.settings, handles[2].id)
        await asyncio.to_thread(apps_here.served.restart, **BRISK)
        await asyncio.wait_for(ended.wait(), 10)
        until_then = (await engine.jobs.get(handles[3].id)).lease_until
        await until(lambda: _is_renewed(engine, handles[3].id, until_then))
        go_on.set()
        results = [await handle.aresult(10) for handle in handles if handle is not handles[2]]

    assert results == [0, 1, 3, 4]
    assert {(await engine.jobs.get(handle.id)).attempt for handle in handles} == {0, 1}


async def put_back(settings: Settings, job_id: UUID) -> None:
    async with connected(settings.database_url) as conn:
        await conn.execute(
            "update pulse.jobs set status = 'SCHEDULED', run_at = now() + interval '1 hour', ready_at = null,"
            " attempt = 0, lease_id = lease_id - 1, locked_by = null, claimed_at = null, lease_until = null"
            " where id = $1",
            job_id,
        )


async def _is_renewed(engine: Engine, job_id: UUID, before: Any) -> bool:
    lease_until = (await engine.jobs.get(job_id)).lease_until
    return lease_until is not None and lease_until > before


# --- the reporter by itself, and a link that refuses


class Refusing:
    """A link that raises what `why` says of a batch, and takes it if that says nothing."""

    def __init__(self, why: Callable[[Sequence[Any]], Exception | None]) -> None:
        self._why = why
        self.calls = 0
        self.taken: list[Any] = []

    async def report(self, items: Sequence[Any]) -> list[ReportStatus]:
        self.calls += 1
        if error := self._why(items):
            raise error
        self.taken += items
        return [ReportStatus.ACCEPTED] * len(items)

    release = progress = report


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "delay", lambda *_: timedelta())


def results(count: int) -> list[Report]:
    return [Report(id=uuid4(), lease_id=1, outcome=Outcome.COMPLETE, result="1") for _ in range(count)]


def naming(item: Any, error: Exception) -> Callable[[Sequence[Any]], Exception | None]:
    return lambda items: error if item in items else None


async def sent(link: Refusing, items: Sequence[Report | Lease]) -> dict[UUID, tuple[Any, ReportStatus]]:
    """What each of them came to."""
    settled: dict[UUID, tuple[Any, ReportStatus]] = {}
    ours = Reporter(cast("Link", link), lambda item, answer: settled.update({item.id: (item, answer)}))
    for item in items:
        ours.report(item) if isinstance(item, Report) else ours.release(item)
    running = asyncio.create_task(ours.run())
    async with asyncio.timeout(10):
        await ours.idle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert ours.unsent == 0
    return settled


@pytest.mark.parametrize("error", [InvalidInput("no"), KeyError("a mistake of ours")], ids=repr)
async def test_of_a_refused_batch_only_the_culprit_fails(quick: None, error: Exception) -> None:
    reports = results(100)
    link = Refusing(naming(reports[37], error))

    settled = await sent(link, reports)

    item, answer = settled.pop(reports[37].id)
    assert (item.outcome, answer) == (Outcome.DISCARD, ReportStatus.ACCEPTED)
    assert item.error.startswith("the handler finished, but its result was refused: ")
    assert settled == {report.id: (report, ReportStatus.ACCEPTED) for report in reports if report is not reports[37]}
    assert link.calls < 30


async def test_a_claim_that_is_not_ours_to_speak_for_is_lost_alone(quick: None) -> None:
    """As servers of earlier releases say it: of the whole batch."""
    reports = results(10)

    settled = await sent(Refusing(naming(reports[3], Forbidden("t", "may not speak for it: it has no claim"))), reports)

    assert [answer for _, answer in settled.values()].count(ReportStatus.ACCEPTED) == 9
    assert settled[reports[3].id] == (reports[3], ReportStatus.LOST)


async def test_a_release_that_is_refused_is_lost_alone(quick: None) -> None:
    leases = [Lease(uuid4(), 1) for _ in range(10)]

    settled = await sent(Refusing(naming(leases[3], InvalidInput("no"))), leases)

    assert [answer for _, answer in settled.values()].count(ReportStatus.ACCEPTED) == 9
    assert settled[leases[3].id] == (leases[3], ReportStatus.LOST)


@pytest.mark.parametrize("error", [Conflict("a lock"), DatabaseUnreachable("away")], ids=repr)
async def test_one_that_may_pass_is_tried_again_behind_the_others(quick: None, error: Exception) -> None:
    reports = results(10)
    link = Refusing(lambda items: error if (reports[3] in items and len(link.taken) < 9) or link.calls < 40 else None)

    settled = await sent(link, reports)

    assert settled == {report.id: (report, ReportStatus.ACCEPTED) for report in reports}
    assert link.taken[-1] == reports[3] or len(link.taken) == 10


async def test_one_that_takes_long_to_be_refused_keeps_no_later_one_waiting(quick: None) -> None:
    [culprit, *others] = results(10)
    may_end, is_stuck = asyncio.Event(), asyncio.Event()

    class Slow(Refusing):
        async def report(self, items: Sequence[Any]) -> list[ReportStatus]:
            if self.calls > 10 and culprit in items:
                is_stuck.set()
                await may_end.wait()
            return await super().report(items)

    link = Slow(lambda items: Conflict("a lock") if culprit in items and not may_end.is_set() else None)
    ours = Reporter(cast("Link", link), lambda *_: None)
    running = asyncio.create_task(ours.run())
    for item in [culprit, *others[:5]]:
        ours.report(item)
    async with asyncio.timeout(10):
        await is_stuck.wait()
        for item in others[5:]:
            ours.report(item)
        while len(link.taken) < len(others):
            await asyncio.sleep(0)
        assert (culprit in link.taken, ours.unsent) == (False, 1)
        may_end.set()
        await ours.idle()
    running.cancel()

    assert (link.taken[-1], ours.unsent) == (culprit, 0)


async def test_one_progress_that_is_refused_for_now_keeps_no_other_from_being_noted() -> None:
    notes = [Progress(id=uuid4(), lease_id=1, value="1") for _ in range(10)]
    link = Refusing(naming(notes[3], Conflict("a lock")))
    ours = Reporter(cast("Link", link), lambda *_: None)
    for note in notes:
        ours.note(note)

    await ours.send_notes()

    assert link.taken == [note for note in notes if note is not notes[3]]


async def test_progress_that_could_not_be_noted_goes_with_the_next_unless_that_is_newer() -> None:
    link = Refusing(lambda _: DatabaseUnreachable("away") if link.calls == 1 else None)
    ours = Reporter(cast("Link", link), lambda *_: None)
    first, second = (Progress(id=uuid4(), lease_id=1, value="1") for _ in range(2))
    newer = Progress(id=second.id, lease_id=1, value="2")
    for note in (first, second):
        ours.note(note)

    await ours.send_notes()
    ours.note(newer)
    await ours.send_notes()

    assert link.taken == [first, newer]


async def test_what_a_job_says_under_its_next_claim_is_noted_although_the_last_one_is_settled() -> None:
    link = Refusing(lambda _: None)
    ours = Reporter(cast("Link", link), lambda *_: None)
    [report] = results(1)
    newer = Progress(id=report.id, lease_id=2, value="1")
    ours.note(newer)

    ours._settle([report], [ReportStatus.ACCEPTED])
    await ours.send_notes()

    assert link.taken == [newer]


async def _is(what: object) -> bool:
    return bool(what)


async def _says(handle: Any, progress: Any) -> bool:
    return bool(await handle.aprogress() == progress)
