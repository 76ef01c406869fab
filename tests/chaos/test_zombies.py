"""Workers stand still for longer than their lease, and go on (F2): does anything change that others have done since?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pulse.sdk.task import Call
from tests.chaos import checks, notes
from tests.chaos.app import (
    be_overtaken_in_a_thread,
    be_overtaken_on_the_loop,
    in_a_thread,
    on_the_loop,
    stay_in_a_thread,
    stay_on_the_loop,
)
from tests.chaos.asking import until
from tests.chaos.figures import scaled
from tests.chaos.fleet import Member
from tests.chaos.stage import HEARTBEAT, LEASE, SLOTS, Stage
from tests.chaos.story import SLOW_CLAIMS, pid_of, read_jobs
from tests.chaos.test_kills import mixed_work

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ZOMBIES = 5  # at a time; one more lives on
BRIEF = 1.2  # seconds: they have begun when the worker is stopped, and would end soon
# Of these as many on the loop as in threads:
OVERTAKEN = 3  # jobs whose second run is still going on when the first comes back; one slot is left for the others
STAYING = 4  # jobs that would go on for ever if nobody told them
FEW = 0.3  # handlers that began too late for each stop: stopped between the look at the time and the first line
TOLD_WITHIN = HEARTBEAT + 1.0


async def test_workers_stand_still_and_go_on(stage: Stage) -> None:
    await stop_and_wake(stage, stops=scaled(100))


async def test_workers_stand_still_at_any_moment(stage: Stage) -> None:
    await stop_at_any_moment(stage, stops=scaled(60))


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("no fence", "late reports that were not rejected"),
        ("fence by status", "rows changed by late reports"),
        ("deaf zombie", "handlers were not told"),
    ],
)
async def test_zombies_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await stop_and_wake(stage, stops=2 * ZOMBIES)


@dataclass
class Tally:
    """What became of the runs of stopped workers."""

    stops: int = 0
    held: int = 0
    rejected: int = 0
    dropped: int = 0
    told: list[float] = field(default_factory=list)  # seconds from waking up to being told
    done: int = 0  # rows compared whose job was finished elsewhere
    running: int = 0  # and of those that still ran elsewhere
    problems: list[str] = field(default_factory=list)


async def stop_and_wake(stage: Stage, *, stops: int) -> None:
    await stage.fleet.start_many(ZOMBIES + 1)
    tally, submitted = Tally(), []
    while tally.stops < stops:
        submitted += await Round(stage, tally).play()
    await stage.wait_until_finished()

    story = await stage.story()
    stage.figure("workers stopped and woken", tally.stops)
    stage.figure("jobs", len(submitted))
    stage.figure("runs they came back to", tally.held)
    stage.figure("  whose late report was rejected", tally.rejected)
    stage.figure("  whose result was dropped before that", tally.dropped)
    stage.figure("  whose handler was told to end", len(tally.told))
    stage.figure("longest until one was told, s", max(tally.told, default=0.0))
    stage.figure("rows compared, of jobs finished elsewhere", tally.done)
    stage.figure("rows compared, of jobs running elsewhere", tally.running)
    dead = [member.pid for member in stage.fleet.members if not member.is_alive]
    few = tally.rejected < stops
    checks.hold(
        tally.problems,
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, stage.fleet.absences),
        [f"workers ended: {dead}"] if dead else [],
        [f"only {tally.rejected} late reports in {tally.stops} stops"] if few else [],
    )


@dataclass(frozen=True)
class Held:
    """A run that its worker was stopped in."""

    job_id: UUID
    lease_id: int
    pid: int
    task: str


class Round:
    """All workers but one are stopped with their hands full, and woken when that one has done their work."""

    def __init__(self, stage: Stage, tally: Tally) -> None:
        self._stage = stage
        self._tally = tally
        self._gate = str(stage.folder / f"gate-{tally.stops}")
        self._mine: set[UUID] = set()
        self._held: set[Held] = set()
        self._woken_at: dict[int, float] = {}

    async def play(self) -> list[UUID]:
        calls = self._calls()
        self._stage.random.shuffle(calls)
        submitted = await self._stage.submit(calls)
        self._mine = set(submitted)
        await until(self._have_all_begun, 15, lambda: f"{len(self._begun())} of {len(self._mine)} jobs have begun")
        spared, *zombies = self._stage.random.sample(self._stage.fleet.alive, ZOMBIES + 1)
        await self._stop(zombies)
        self._open_gate(f"{self._gate}-{spared.pid}")
        await until(self._are_overtaken, 30, "stopped workers' jobs were not taken over")
        before = await read_jobs(self._stage.conn)
        await self._wake(zombies)
        await self._look_at_reports()
        await self._look_at_rows(before)
        self._open_gate(self._gate)
        await until(self._is_all_finished, 30, "a round did not end")
        return submitted

    def _calls(self) -> list[Call[Any]]:
        """As many as there are slots, so that every worker has some of each kind."""
        workers = ZOMBIES + 1
        loop, threads = (SLOTS[kind] * workers - OVERTAKEN - STAYING for kind in ("concurrency", "threads"))
        return [
            *(on_the_loop.call([BRIEF, 0.02]) for _ in range(loop)),
            *(in_a_thread.call([BRIEF, 0.02]) for _ in range(threads)),
            *(be_overtaken_on_the_loop.call(BRIEF, self._gate) for _ in range(OVERTAKEN)),
            *(be_overtaken_in_a_thread.call(BRIEF, self._gate) for _ in range(OVERTAKEN)),
            *(stay_on_the_loop.call(self._gate) for _ in range(STAYING)),
            *(stay_in_a_thread.call(self._gate) for _ in range(STAYING)),
        ]

    # --- what is done

    async def _stop(self, zombies: list[Member]) -> None:
        await asyncio.sleep(self._stage.random.uniform(0, BRIEF / 3))
        for zombie in zombies:
            zombie.stop()
            self._tally.stops += 1
        await asyncio.sleep(0.1)  # what they had sent by then is done by now
        pids = {zombie.pid for zombie in zombies}
        rows = await self._stage.conn.fetch(
            "select id, lease_id, locked_by, task from pulse.jobs where status = 'RUNNING'"
        )
        self._held = {
            Held(row["id"], row["lease_id"], pid_of(row["locked_by"]), row["task"].rpartition(".")[2])
            for row in rows
            if pid_of(row["locked_by"]) in pids
        }
        self._tally.held += len(self._held)

    async def _wake(self, zombies: list[Member]) -> None:
        for zombie in zombies:
            self._woken_at[zombie.pid] = time.time()
            zombie.wake()
        await until(
            self._has_everyone_ended,
            10,
            lambda: f"{len(self._running())} handlers were not told that nobody waits for them",
        )
        await asyncio.sleep(HEARTBEAT)  # for reports of those that have just ended

    def _open_gate(self, name: str) -> None:
        Path(name).touch()

    # --- what is asked

    def _notes(self, *kinds: str) -> list[notes.Note]:
        return [note for note in notes.read(self._stage.folder) if note.job_id in self._mine and note.kind in kinds]

    def _begun(self) -> set[UUID | None]:
        return {note.job_id for note in self._notes("start")}

    async def _have_all_begun(self) -> bool:
        return self._begun() == self._mine

    async def _are_overtaken(self) -> bool:
        """Done by the one that lives, or at least begun."""
        rows = await self._stage.conn.fetch(
            "select id, lease_id, status, task from pulse.jobs where id = any($1)", [held.job_id for held in self._held]
        )
        fences = {held.job_id: held.lease_id for held in self._held}
        return all(
            row["status"] == "COMPLETED"
            or ("be_overtaken" in row["task"] and row["status"] == "RUNNING" and row["lease_id"] > fences[row["id"]])
            for row in rows
        )

    def _running(self) -> list[Held]:
        over = {(note.job_id, note.lease_id) for note in self._notes("end", "told")}
        return [held for held in self._held if (held.job_id, held.lease_id) not in over]

    async def _has_everyone_ended(self) -> bool:
        return not self._running()

    async def _is_all_finished(self) -> bool:
        open_jobs = "select count(*) from pulse.jobs where finished_at is null"
        return bool(await self._stage.conn.fetchval(open_jobs) == 0)

    # --- what is checked

    async def _look_at_reports(self) -> None:
        reports = {(note.job_id, note.lease_id): note.word for note in self._notes("report")}
        told = {(note.job_id, note.lease_id): note.at for note in self._notes("told")}
        accepted: list[str] = []
        late: list[str] = []
        for held in self._held:
            run = (held.job_id, held.lease_id)
            word = reports.get(run)
            self._tally.rejected += word is not None and word.endswith(":LOST")
            self._tally.dropped += word is None
            if word is not None and not word.endswith(":LOST"):
                accepted.append(f"{held.job_id} ({held.task}): {word}")
            if run in told:
                took = told[run] - self._woken_at[held.pid]
                self._tally.told.append(took)
                if took > TOLD_WITHIN:
                    late.append(f"{held.job_id} ({held.task}): {took:.2f} s")
        self._tally.problems += checks.say("late reports that were not rejected", accepted)
        self._tally.problems += checks.say(f"handlers told later than {TOLD_WITHIN:g} s after waking up", late)

    async def _look_at_rows(self, before: dict[UUID, dict[str, Any]]) -> None:
        """Column by column. Those that are overtaken cannot have ended by now, only had their lease renewed."""
        after = await read_jobs(self._stage.conn)
        changed = []
        for job_id in {held.job_id for held in self._held}:
            row = before[job_id] | {"lease_until": None}
            now = after[job_id] | {"lease_until": None}
            if differences := {name: (row[name], now[name]) for name in row if row[name] != now[name]}:
                changed.append(f"{job_id}: {differences}")
            self._tally.done += row["status"] == "COMPLETED"
            self._tally.running += row["status"] == "RUNNING"
        self._tally.problems += checks.say("rows changed by late reports", changed)


async def stop_at_any_moment(stage: Stage, *, stops: int) -> None:
    """Also between the claim of a job and the first line of its handler: whoever wakes up there has to look at the
    time before it begins. It may be stopped once more between that look and the beginning, so a few are let pass."""
    await stage.conn.execute(SLOW_CLAIMS)
    await stage.fleet.start_many(4)
    submitted, done = [], 0
    while done < stops:
        submitted += await stage.submit(mixed_work(stage.random, 60))
        await asyncio.sleep(stage.random.uniform(0, 0.2))
        zombies = stage.random.sample(stage.fleet.alive, 3)
        for zombie in zombies:
            zombie.stop()
        await asyncio.sleep(2 * LEASE)
        for zombie in zombies:
            zombie.wake()
        done += len(zombies)
        await asyncio.sleep(stage.random.uniform(0.2, 0.6))
    await stage.wait_until_finished()

    story = await stage.story()
    too_late = checks.begun_too_late(story)
    few = round(done * FEW)
    stage.figure("workers stopped and woken", done)
    stage.figure("jobs", len(submitted))
    stage.figure("leases that ended", sum(failure.error == checks.EXPIRED for failure in story.failures))
    stage.figure("handlers begun after their job was completed", len(too_late))
    stage.figure(f"  the limit: {FEW:g} a stop", few)
    checks.hold(
        checks.sound(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.say("handlers begun after their job was completed", too_late) if len(too_late) > few else [],
    )
