"""Servers die while they deliver alarms (F30): does every wake arrive, and which of them twice?"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from uuid import UUID

import pytest

from tests.chaos import alarm_story, checks
from tests.chaos.alarm_story import AlarmStory, read_alarm_story
from tests.chaos.figures import scaled
from tests.chaos.pulsed import Pulsed
from tests.chaos.receiver import Receiver, receiving
from tests.chaos.stage import Stage
from tests.chaos.test_servers import Servers, servers_of

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

DEADLINE = 2.0
LEASE = 17.0  # the shortest there is for this deadline
OVER = 20.0  # seconds over which they fall due
ALARMS = {
    "PULSE_ALARM_SLOTS": "50",  # so that one does not take all before the other looks
    "PULSE_ALARM_NETWORKS": "127.0.0.0/8",
    "PULSE_ALARM_DEADLINE": f"{DEADLINE}s",
    "PULSE_ALARM_LEASE": f"{LEASE}s",
    "PULSE_ALARM_TICK": "200ms",
}


class Absences:
    """From when to when each server could do nothing, by pid."""

    def __init__(self) -> None:
        self.all: dict[int, list[tuple[float, float]]] = {}

    def kill(self, server: Pulsed) -> None:
        assert server.process
        pid, asked_at = server.process.pid, time.time()
        server.kill()
        self.all[pid] = [(asked_at, float("inf"))]

    async def stand_still(self, server: Pulsed, seconds: float) -> None:
        assert server.process
        pid, asked_at = server.process.pid, time.time()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        self.all[pid] = [(asked_at, time.time())]


RINGING = """
select count(*) from chaos.claims left join chaos.ends using (alarm_id, lease_id)
where claims.worker like $1 and ends.alarm_id is null
"""


async def test_servers_are_killed_while_they_deliver(stage: Stage) -> None:
    await kill_servers(stage, alarms=scaled(5_000), over=OVER)


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("record before delivery", "never arrived"),
        ("wake id made anew", "not their occurrence's"),
        ("leases without end", "have not fired"),
        ("hasty expiry", "while their holders were well"),
    ],
)
async def test_killed_servers_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_servers(stage, alarms=1_500, over=8)


async def test_a_server_stands_still_while_it_delivers(stage: Stage) -> None:
    await stand_still(stage, alarms=scaled(400))


@pytest.mark.parametrize(("bug", "finding"), [("no fence of wakes", "changed after they had ended")])
async def test_standstills_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await stand_still(stage, alarms=200)


async def kill_servers(stage: Stage, *, alarms: int, over: float) -> None:
    absences, kills = Absences(), 0
    async with receiving(stage.folder, seconds=0.2) as receiver, servers_of(stage, ALARMS) as servers:
        await fill(stage, receiver, alarms, over)
        until = time.monotonic() + 1 + over
        while time.monotonic() < until:
            await asyncio.sleep(stage.random.uniform(0.3, 1.2))
            server = stage.random.choice(servers.all)
            absences.kill(server)
            kills += 1
            await server.start()
        story = await until_fired(stage, receiver)

        stage.figure("servers killed", kills)
        _tell(stage, story)
        hold(stage, servers, story, absences)


async def stand_still(stage: Stage, *, alarms: int) -> None:
    """For longer than a lease, with deliveries in flight: what it says when it wakes up counts for nothing."""
    absences = Absences()
    async with receiving(stage.folder, seconds=1.5) as receiver, servers_of(stage, ALARMS) as servers:
        await fill(stage, receiver, alarms, 0.5)
        await until_many_ring(stage, servers.all[0], alarms // 20)
        await absences.stand_still(servers.all[0], LEASE + 8)
        story = await until_fired(stage, receiver)
        await asyncio.sleep(2)  # for what the one that stood still has to say
        story = await read_alarm_story(stage.conn, receiver.arrivals())

        _tell(stage, story)
        stage.figure("  deliveries that came too late to count", story.outcomes["late"])
        hold(stage, servers, story, absences)
        assert story.outcomes["late"], "nothing was in flight when the server stood still"


async def fill(stage: Stage, receiver: Receiver, alarms: int, over: float) -> list[UUID]:
    """Due one after the other."""
    await stage.conn.execute(alarm_story.HISTORY)
    spacing = timedelta(seconds=over / alarms)
    return [row["id"] for row in await stage.conn.fetch(alarm_story.FILL, alarms, receiver.urls, spacing)]


async def until_many_ring(stage: Stage, server: Pulsed, alarms: int) -> None:
    """So many that this server has claimed and not recorded."""
    assert server.process
    own = f"%{server.process.pid}"
    async with asyncio.timeout(20):
        while await stage.conn.fetchval(RINGING, own) < alarms:
            await asyncio.sleep(0.02)


async def until_fired(stage: Stage, receiver: Receiver) -> AlarmStory:
    """Until none is left, or none can be any more. Whether that came to pass is for the checks to say."""
    give_up_at = time.monotonic() + 2 * LEASE + 15
    while time.monotonic() < give_up_at:
        if not await stage.conn.fetchval("select exists (select from pulse.alarms where status = 'active')"):
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    return await read_alarm_story(stage.conn, receiver.arrivals())


def hold(stage: Stage, servers: Servers, story: AlarmStory, absences: Absences) -> None:
    has_survivors = any(until < float("inf") for [(_, until)] in absences.all.values())
    late = 0 if has_survivors else story.outcomes["late"]
    checks.hold(
        alarm_story.always(story, absences.all, LEASE),
        [f"{late} deliveries were recorded by processes that had lost them"] if late else [],
        [] if story.outcomes["delivered"] == len(story.alarms) else [f"the log says {dict(story.outcomes)}"],
    )


def _tell(stage: Stage, story: AlarmStory) -> None:
    again = sum(len(claims) > 1 for claims in story.claims.values())
    stage.figure("alarms", len(story.alarms))
    stage.figure("  claimed more than once", again)
    stage.figure("  wakes that came more than once", alarm_story.repeated(story))
