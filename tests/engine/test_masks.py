"""Are masks made beside the event loop, whoever asks for one row or many?"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import NewAlarm
from pulse.model.errors import InvalidPayload
from pulse.model.jobs import Outcome
from pulse.model.redaction import MASK, Redaction
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from tests.factories import a_new_job, a_report, claim_one, submit_one

PAYLOAD = '{"password": "hunter2", "to": "ada"}'
WRONG = f'{{"password": "{MASK}"}}'


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    return replace(settings, redact="password", alarm_networks="127.0.0.0/8")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The threads in which payloads are gone through."""
    found: set[str] = set()
    walk: Callable[..., Any] = Redaction._spans

    def noted(self: Redaction, *args: Any, **options: Any) -> Any:
        found.add(threading.current_thread().name.rpartition("_")[0])
        return walk(self, *args, **options)

    monkeypatch.setattr(Redaction, "_spans", noted)
    return found


async def test_masks_of_a_job(engine: Engine, threads: set[str]) -> None:
    job_id = await submit_one(engine, payload=PAYLOAD)
    await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL, error="no hunter2 here")])

    shown = [
        await engine.jobs.get(job_id),
        *(await engine.jobs.list_page()).jobs,
        *(await engine.jobs.list_heads()).jobs,
        *await engine.jobs.attempts(job_id),
        await engine.explain(job_id),
    ]

    assert len(shown) == 5
    assert "hunter2" not in repr(shown)
    assert threads == {"pulse-mask"}


async def test_masks_of_an_alarm(engine: Engine, threads: set[str]) -> None:
    new = NewAlarm(owner="o", name="a", delay=timedelta(hours=1), url="http://127.0.0.1:9/", payload=PAYLOAD)

    shown = [
        (await engine.alarms.set(new)).alarm,
        await engine.alarms.get("a", owner="o"),
        *(await engine.alarms.list_page()).alarms,
        await engine.alarms.pause("a", owner="o"),
        await engine.alarms.resume("a", owner="o"),
        await engine.alarms.cancel("a", owner="o"),
    ]

    assert "hunter2" not in repr(shown)
    assert threads == {"pulse-mask"}


async def test_masks_of_a_schedule(engine: Engine, threads: set[str]) -> None:
    new = NewSchedule(name="s", every=timedelta(hours=1), job=a_new_job(payload=PAYLOAD))

    shown = [
        await engine.schedules.create(new),
        await engine.schedules.get("s"),
        *(await engine.schedules.list_page()).schedules,
        await engine.schedules.due_until(timedelta(hours=2), limit=10),
        await engine.schedules.pause("s"),
        await engine.schedules.resume("s"),
        await engine.schedules.edit("s", {"every": timedelta(hours=2)}),
        await engine.schedules.delete("s"),
    ]

    assert "hunter2" not in repr(shown)
    assert threads == {"pulse-mask"}


async def test_looks_for_a_mask_that_is_sent_back(engine: Engine, threads: set[str]) -> None:
    with pytest.raises(InvalidPayload):
        await engine.jobs.submit([a_new_job(payload=WRONG)])
    with pytest.raises(InvalidPayload):
        await engine.schedules.create(NewSchedule(name="s", every=timedelta(hours=1), job=a_new_job(payload=WRONG)))
    with pytest.raises(InvalidPayload):
        await engine.alarms.set(NewAlarm(owner="o", delay=timedelta(hours=1), url="http://127.0.0.1:9/", payload=WRONG))

    assert threads == {"pulse-mask"}
