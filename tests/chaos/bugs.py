"""Would a run notice? Bugs that are planted in its workers, so that each check is seen to fail.

A bug is named in the environment and planted when a worker imports the app. Nothing of the source is touched; where
the source has changed so that a bug no longer fits, its worker says so and does not start.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from pulse.delivery.wake import WakeRequest, WakeResult
from pulse.engine.alarms.deliveries import DeliveryDuty
from pulse.engine.alarms.records import FinishedDelivery
from pulse.engine.dispatch.worker_stream import WorkerStream
from pulse.engine.duties.duties import Duties
from pulse.engine.schedules import fires
from pulse.links.direct import DirectLink
from pulse.links.remote.job_stream import JobStream
from pulse.links.remote.servers import Servers
from pulse.model.decisions.delivery import AlarmClaim
from pulse.model.jobs import Lease, ReportStatus
from pulse.sdk.worker.heartbeats import Heartbeats
from pulse.sdk.worker.process_handle import Process
from pulse.sdk.worker.process_pool import ProcessPool
from pulse.sdk.worker.run import Run
from pulse.sdk.worker.worker import Worker
from pulse.store.connections import pool
from pulse.store.connections.pool import Connection
from pulse.store.duties.watchdog import Look
from pulse.store.schedules import fires as fires_store
from pulse.store.statements import load_statements
from pulse.wire.v1 import pulse_pb2 as pb

BUG = "PULSE_CHAOS_BUG"

Plant = Callable[[], None]
BUGS: dict[str, Plant] = {}


def plant_from_environment() -> None:
    if name := os.environ.get(BUG):
        BUGS[name]()


def bug(plant: Plant) -> Plant:
    BUGS[plant.__name__.replace("_", " ")] = plant
    return plant


# --- the watchdog


@bug
def no_watchdog() -> None:
    async def reap(_: Duties, *_look: Look) -> int:
        return 0

    _replace(Duties, "reap", reap)


@bug
def slow_watchdog() -> None:
    reap = Duties.reap

    async def reap_late(self: Duties, *look: Look) -> int:
        await asyncio.sleep(5)
        return await reap(self, *look)

    _replace(Duties, "reap", reap_late)


@bug
def hasty_watchdog() -> None:
    """It takes away whatever runs, expired or not."""
    _edit("look_at_leases", "lease_until < ", "claimed_at < ")
    _edit("reap_jobs", "jobs.lease_until < ", "jobs.claimed_at < ")


@bug
def two_step_watchdog() -> None:
    """It reads ids first and moves them later, whatever has become of them."""
    seen: list[str] = []

    async def reap(self: Duties, *_: Look) -> int:
        async def work(conn: Connection) -> None:
            if seen:
                ids = ", ".join(f"'{job_id}'" for job_id in seen)
                await conn.execute(
                    "update pulse.jobs set status = 'RETRYING', run_at = now(), lease_until = null, "
                    f"finished_at = null, last_error = 'worker lease expired' where id in ({ids})"
                )
            seen[:] = [str(row["id"]) for row in await conn.fetch("select id from pulse.jobs where status = 'RUNNING'")]

        await self._database.run(work)
        return 0

    _replace(Duties, "reap", reap)


@bug
def endless_budget() -> None:
    _edit("reap_jobs", "after_failure(jobs.attempt - jobs.refunded,", "after_failure(0,")


# --- leases


@bug
def no_heartbeat() -> None:
    async def renew(*_: object) -> list[object]:
        return []

    _replace(Heartbeats, "_renew", renew)
    _replace(Heartbeats, "_end_expired_runs", lambda _: None)


@bug
def no_fence() -> None:
    """Whoever reports last is right."""
    for statement in ("complete_jobs", "complete_free_jobs"):
        _edit(statement, "lease_until is not null and jobs.lease_id = report.lease_id", "true")


@bug
def fence_by_status() -> None:
    """Whoever reports while the job runs is right, even if it runs elsewhere."""
    for statement in ("complete_jobs", "complete_free_jobs"):
        _edit(statement, "and jobs.lease_id = report.lease_id", "")


@bug
def deaf_zombie() -> None:
    """A lost lease is seen, and the handler is not told."""
    _replace(Run, "end", lambda *_: False)


# --- ends


@bug
def no_drain() -> None:
    """Told to stop, it leaves."""

    async def nothing(*_: object) -> None: ...

    _replace(Worker, "_drain", nothing)
    _replace(Worker, "_close", nothing)


@bug
def slow_drain() -> None:
    drain = Worker._drain

    async def drain_late(self: Worker) -> None:
        await asyncio.sleep(20)
        await drain(self)

    _replace(Worker, "_drain", drain_late)


@bug
def charged_release() -> None:
    _edit("release_jobs", "refunded = refunded + 1,", "")


@bug
def no_release() -> None:
    """What is to be given back is thrown away."""

    async def release(_: DirectLink, leases: Sequence[Lease]) -> list[ReportStatus]:
        return [ReportStatus.ACCEPTED for _ in leases]

    _replace(DirectLink, "release", release)


@bug
def nameless_crash() -> None:
    _replace(Process, "_cause", lambda _: "somehow")


@bug
def broken_pool() -> None:
    """One process dies, and all the others with it, as in concurrent.futures."""
    discard = ProcessPool._discard

    def discard_all(self: ProcessPool, process: Process) -> None:
        for other in self._processes:
            other.kill()
        discard(self, process)

    _replace(ProcessPool, "_discard", discard_all)


# --- servers


@bug
def no_failover() -> None:
    """The first server of the URL is asked for ever."""
    _replace(random, "shuffle", lambda _: None)
    _replace(Servers, "give_up", lambda *_: None)


@bug
def no_resume() -> None:
    """Whoever comes back does not say what it holds, so what was sent to it and never arrived is still its own."""
    request = JobStream._request

    def forgetful(self: JobStream) -> pb.StreamJobsRequest:
        found = request(self)
        found.ClearField("resume")
        return found

    _replace(JobStream, "_request", forgetful)


@bug
def deaf_stream() -> None:
    """A stream that says nothing is listened to for ever."""
    read = JobStream._read

    async def listen(self: JobStream, call: Any) -> pb.StreamJobsResponse | None:
        self._silence = 3_600
        return await read(self, call)

    _replace(JobStream, "_read", listen)


@bug
def cut_streams() -> None:
    """Told to stop, a server does not send its workers elsewhere."""
    _replace(WorkerStream, "end", lambda *_, **__: None)


# --- schedules


@bug
def cursor_first() -> None:
    """The cursor is moved in one transaction, and the jobs are made in the next."""

    async def fire(conn: Any, *, plans: Any, jobs: Any, notes: Any, cause: str) -> Any:
        moved = await fire_schedules(conn, plans=plans, jobs=[], notes=[], cause=cause)
        await conn.execute("commit; begin")
        await asyncio.sleep(0.05)
        fired = await fire_schedules(conn, plans=[], jobs=jobs, notes=notes, cause=cause)
        return fired._replace(moved=moved.moved)

    fire_schedules = fires_store.fire_schedules
    _replace(fires_store, "fire_schedules", fire)
    _replace(fires, "regular_successor", lambda _: None)


@bug
def jobs_first() -> None:
    """The other way round, with ids that are not the occurrence's, and a log that nobody asks."""

    async def fire(conn: Any, *, plans: Any, jobs: Any, notes: Any, cause: str) -> Any:
        own = [each._replace(job_id=UUID(int=uuid4().int & ~0xFFF)) for each in jobs]
        await fire_schedules(conn, plans=[], jobs=own, notes=notes, cause=cause)
        await conn.execute("commit; begin")
        await asyncio.sleep(0.05)
        return await fire_schedules(conn, plans=plans, jobs=[], notes=[], cause=cause)

    fire_schedules = fires_store.fire_schedules
    _replace(fires_store, "fire_schedules", fire)
    _replace(fires, "regular_successor", lambda _: None)
    _edit("fire_schedules", "where is_known is null", "where true")
    _edit("fire_schedules", "run_at, job_id from new", "run_at, job_id from new on conflict do nothing")


@bug
def deaf_to_pauses() -> None:
    _edit("due_schedules", "and paused_at is null", "")


# --- alarms


@bug
def record_before_delivery() -> None:
    """Counted as delivered first, and delivered then."""

    async def deliver(self: DeliveryDuty, claim: Any, deliverer: Any) -> WakeResult:
        hoped = WakeResult(status=200, error=None, answer="", duration=timedelta())
        self.records.finished.append(FinishedDelivery(claim, time.monotonic(), hoped))
        self.records.loop.run_within(timedelta())
        await asyncio.sleep(0.3)
        wake = WakeRequest(id=claim.wake_id, url=claim.url, body=claim.body(), headers=claim.headers)
        delivered: WakeResult = await deliverer.deliver(wake, secrets=self._secrets)
        return delivered

    _replace(DeliveryDuty, "_deliver", deliver)


@bug
def wake_id_made_anew() -> None:
    _replace(AlarmClaim, "wake_id", property(lambda _: str(uuid4())))


@bug
def no_fence_of_wakes() -> None:
    """Whoever records last is right."""
    _edit("record_wakes", "and alarms.lease_id = report.lease_id and num_nulls(lease_until) = 0", "")


@bug
def leases_without_end() -> None:
    _edit("expire_alarms", "where lease_until <= ", "where false and lease_until <= ")


@bug
def hasty_expiry() -> None:
    """It takes away whatever is being delivered, expired or not."""
    _edit("peek_alarms", "select lease_until <= ", "select true or lease_until <= ")
    _edit("expire_alarms", "where lease_until <= ", "where lease_until is not null or lease_until <= ")


# --- the database


@bug
def asynchronous_commit() -> None:
    """Answered before it is on disk."""
    options = pool.connect_options

    def hasty_options(settings: Any) -> dict[str, Any]:
        found = options(settings)
        found["server_settings"] |= {"synchronous_commit": "off"}
        return found

    _replace(pool, "connect_options", hasty_options)


@bug
def no_patience() -> None:
    """A lost connection is nobody's business."""
    _replace(pool, "LOST", ())


def _edit(statement: str, old: str, new: str) -> None:
    statements = load_statements("pulse")
    found = statements[statement]
    assert old in found.sql, f"{statement} no longer says {old!r}: plant this bug anew"
    statements[statement] = found._replace(sql=found.sql.replace(old, new))


def _replace(owner: Any, name: str, new: object) -> None:
    assert hasattr(owner, name), f"{owner} no longer has {name}: plant this bug anew"
    setattr(owner, name, new)
