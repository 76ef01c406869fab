"""A process dies, or loses its connection, at every place of a delivery: is a wake lost, or made after its record?"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import AlarmStatus
from pulse.settings import Settings
from tests.clock import FrozenClock
from tests.endpoint import Endpoint
from tests.engine.test_wakes import HOUR, NOON, at_noon, deliver, endpoint, engine, log_of, set_one, settings

__all__ = ["at_noon", "endpoint", "engine", "settings"]  # fixtures

ROOT = Path(__file__).parents[2]
BEFORE_A_CLAIM = ("peek_alarms", "ready_alarms", "ready_owners", "ready_turns", "wake_secrets")
UNREAD = [*product(("sent", "answered"), ("ready_alarms", "claim_alarms", "record_wakes"))]
STATEMENTS = [*product(("before", "after"), (*BEFORE_A_CLAIM, "claim_alarms", "record_wakes")), *UNREAD]
POSTS = [(when, "post") for when in ("before", "sent", "answered", "after")]
PLACES = [*((when, what, how) for (when, what), how in product(STATEMENTS, ("killed", "cut off")))]
PLACES += [(when, what, "killed") for when, what in POSTS]
Die = Callable[[str, str, str], Awaitable[int]]


@pytest.fixture(scope="module")
def processes() -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "tests.system.wake_and_die")
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def wake_and_die(processes: subprocess.Popen[str], settings: Settings) -> Die:
    def wake(when: str, what: str, how: str) -> int:
        assert processes.stdin
        assert processes.stdout
        processes.stdin.write(f"{settings.database_url} {when} {what} {how}\n")
        processes.stdin.flush()
        return int(processes.stdout.readline())

    return lambda *place: asyncio.to_thread(wake, *place)  # the endpoint answers on this loop


def expected_calls(when: str, what: str, how: str) -> set[int]:
    """How often each wake arrives in all."""
    if how == "cut off":
        return {1}  # nothing of what was answered is forgotten
    if (when, what) == ("sent", "record_wakes"):
        return {1, 2}  # it may have been on disk, or not
    is_between = what == "post" and when != "before"
    return {1, 2} if is_between or (when, what) == ("before", "record_wakes") else {1}


@pytest.mark.parametrize(("when", "what", "how"), PLACES)
async def test_a_delivery_that_ends_anywhere_is_made_good_by_the_next(
    engine: Engine,
    clock: FrozenClock,
    endpoint: Endpoint,
    settings: Settings,
    wake_and_die: Die,
    when: str,
    what: str,
    how: str,
) -> None:
    once = [await set_one(engine, endpoint, delay=HOUR) for _ in range(3)]
    cron = await set_one(engine, endpoint, cron="0 * * * *")
    alarms = [*once, cron]
    await clock.advance(HOUR)
    if (when, what) == ("sent", "post"):
        endpoint.gate.clear()

    code = await wake_and_die(when, what, how.replace(" ", "_"))
    endpoint.gate.set()
    recorded = {alarm.id for alarm in alarms if await log_of(engine, alarm)}
    came_before = [call.body["alarm_id"] for call in endpoint.calls]
    await clock.advance(settings.alarm_lease)
    await deliver(engine)
    await deliver(engine)

    assert code == (-signal.SIGKILL if how == "killed" else 0)
    arrivals = defaultdict(list)
    for call in endpoint.calls:
        arrivals[call.body["alarm_id"]].append(call)
    assert arrivals.keys() == {str(alarm.id) for alarm in alarms}  # none is lost
    for alarm_id, calls in arrivals.items():
        assert len({call.wake_id for call in calls}) == 1
        assert len(calls) in expected_calls(when, what, how)
        assert [call.body["attempt"] for call in calls] == sorted({call.body["attempt"] for call in calls})
        if alarm_id in map(str, recorded):
            assert len(calls) == came_before.count(alarm_id)  # nothing more once it was recorded
    if (when, what) in (("after", "record_wakes"), ("answered", "record_wakes")):
        assert recorded
    assert {(await engine.alarms.get(alarm.id)).status for alarm in once} == {AlarmStatus.FIRED}
    again = await engine.alarms.get(cron.id)
    assert (again.status, again.next_fire_at) == (AlarmStatus.ACTIVE, NOON + 2 * HOUR)
    for alarm in alarms:
        assert len(await log_of(engine, alarm)) == 1
