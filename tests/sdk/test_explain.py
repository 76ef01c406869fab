"""Can code ask why its job is not running?"""

from __future__ import annotations

import asyncio

from pulse import Pulse
from pulse.model.explaining import Reason
from pulse.settings import Settings
from tests.sdk.apps_here import closing


async def test_a_handle_says_why_its_job_does_not_run(settings: Settings) -> None:
    app = Pulse(settings=settings)

    @app.task
    async def send(to: str) -> None: ...

    with closing(app):
        handle = await send.aenqueue(to="ada")
        awaited = await handle.aexplain()
        waited = await asyncio.to_thread(handle.explain)

    assert (awaited.reason, awaited.job_id) == (Reason.NO_WORKER, handle.id)
    assert str(waited) == awaited.text
