"""An owner's names hang when they are looked up: are others' alarms on time? In a real server, on real sockets."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import NewAlarm
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.doors.worker_processes import started
from tests.endpoint import open_endpoint
from tests.waiting import connected, until

pytestmark = pytest.mark.slow

LOOPBACK = "127.0.0.0/8,::1"
NAMES = 5_000  # ten times as many as a process has slots, each for two seconds
BEGUN = 400
ON_TIME = timedelta(seconds=1.5)  # a name that hangs holds its slot for two seconds

# What Python runs first in the server: a resolver that does not answer for some names.
RESOLVER = """
import socket, threading

ask = socket.getaddrinfo

def look_up(host, *given, **more):
    if str(host).endswith(".evil.test"):
        threading.Event().wait(60)
    return ask(host, *given, **more)

socket.getaddrinfo = look_up
"""
DUE = """
insert into pulse.alarms (id, owner, fingerprint, kind, payload, url, destination, max_failures, occurrence,
    next_fire_at, created_at, updated_at)
select gen_random_uuid(), 'evil', '', 'once', '{}', 'https://' || n || '.evil.test/',
    'https://' || n || '.evil.test:443', 5, pulse.now(), pulse.now(), pulse.now(), pulse.now()
from generate_series(1, $1::int) as n
"""


async def test_names_of_one_owner_that_hang_make_no_alarm_of_another_late(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(RESOLVER)
    database.settings = replace(settings, alarm_networks=LOOPBACK)
    engine = Engine(database, buckets=settings.buckets)
    env = {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_ALARM_NETWORKS": LOOPBACK}
    async with connected(settings.database_url) as conn, open_endpoint() as endpoint:

        async def is_busy() -> bool:
            leased = await conn.fetchval("select count(*) from pulse.alarms where lease_until is not null")
            return bool(leased >= BEGUN)

        url = endpoint.url.replace("127.0.0.1", "localhost")  # a name as well, so that it needs a look-up
        await conn.execute(DUE, NAMES)
        with started(tmp_path, "server", "--listen", "127.0.0.1:0", PYTHONPATH=str(tmp_path), **env):
            await until(is_busy, within=30)
            lateness = []
            for calls in range(1, 6):
                new = NewAlarm(owner="good", url=url, delay=timedelta(milliseconds=100))
                alarm = (await engine.alarms.set(new)).alarm
                await endpoint.until(calls)
                lateness.append(endpoint.calls[-1].at - alarm.occurrence)
            still_hangs = await is_busy()

    assert still_hangs
    assert max(lateness) < ON_TIME, lateness
