"""An agent sets its alarm over MCP, and is woken: all of it in real processes."""

from __future__ import annotations

import json
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pulse.settings import Settings
from tests.doors.mcp_client import over_stdio
from tests.doors.worker_processes import TASKS, Started, started


def the_next_wake(echo: Started) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(echo.expect(r"^\{").string)
    return found


@pytest.mark.slow
async def test_an_alarm_that_was_set_over_mcp_reaches_the_echo(settings: Settings, tmp_path: Path) -> None:
    database = {"PULSE_DATABASE_URL": str(settings.database_url)}
    with started(tmp_path, "echo", "--port", "0", "--json", **database) as echo:
        url = echo.expect(r"at (http://\S+)\.")[1]
        target = {"PULSE_ALARM_TARGET": f"{url}/agent"}
        with started(tmp_path, "server", "--listen", "127.0.0.1:0", **database, **target) as server:
            server.expect("tokens +off")
            async with over_stdio("--owner", "planner", folder=tmp_path, **database, **target) as agent:
                alarm = await agent.call("alarm_set", delay_seconds=1, payload={"step": 2}, label="look again")
                wake = the_next_wake(echo)
                [listed] = (await agent.call("alarm_list"))["alarms"]
                often = await agent.call("alarm_set", cron_expr="@every 1s", name="tick")
                ticks = [the_next_wake(echo) for _ in range(2)]
                await agent.call("alarm_cancel", alarm="tick")

            server.process.send_signal(signal.SIGTERM)
            assert server.exit_code() == 0

    assert (wake["alarm_id"], wake["owner"], wake["label"]) == (alarm["id"], "planner", "look again")
    assert (wake["payload"], wake["attempt"], wake["signature"]) == ({"step": 2}, 1, "valid")
    assert wake["path"] == "/agent"
    assert datetime.fromisoformat(wake["occurrence"]) == datetime.fromisoformat(alarm["next_fire_at"])
    assert datetime.fromisoformat(wake["at"]) >= datetime.fromisoformat(alarm["next_fire_at"])
    assert listed["id"] == alarm["id"]
    assert {tick["alarm_id"] for tick in ticks} == {often["id"]}
    assert len({tick["wake_id"] for tick in ticks}) == 2


@pytest.mark.slow
async def test_pulse_dev_shows_wakes_on_its_terminal(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    database = {"PULSE_DATABASE_URL": str(settings.database_url)}
    with started(tmp_path, "dev", **database) as dev:
        url = dev.expect(r"  alarms    shown here as they arrive \((http://127\.0\.0\.1:\d+)\)")[1]
        dev.expect("server ")
        # The default target is the server's, and dev's server may call this machine by name as well.
        async with over_stdio(folder=tmp_path, PULSE_ALARM_TARGET="http://127.0.0.1:9", **database) as agent:
            await agent.call("alarm_set", delay_seconds=0.5, payload="good morning", label="first")
            dev.expect(r'\d\d:\d\d:\d\d\S+  wake  first · local  alarm \S{36}  attempt 1  ✓ signed  "good morning"')
        networks = {"PULSE_ALARM_NETWORKS": "127.0.0.0/8"}
        async with over_stdio(folder=tmp_path, **networks, **database) as agent:
            await agent.call("alarm_set", delay_seconds=0.5, url=f"{url}/mine", label="second")
            dev.expect(r"wake  second · local  alarm \S{36}  attempt 1  ✓ signed  null")

        dev.process.send_signal(signal.SIGTERM)
        assert dev.exit_code() == 0


@pytest.mark.slow
def test_pulse_dev_leaves_a_target_of_yours_alone(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "pulse.toml").write_text('alarm_target = "http://127.0.0.1:9/mine"')
    with started(tmp_path, "dev", PULSE_DATABASE_URL=str(settings.database_url)) as dev:
        dev.expect("server ")
        dev.process.send_signal(signal.SIGTERM)

        assert dev.exit_code() == 0
        assert "shown here as they arrive" not in dev.text
