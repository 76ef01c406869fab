"""Can code ask why its job is not running?"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.errors import JobNotFound, ResultTimeout
from pulse.model.explain.facts import Reason
from pulse.sdk import handle as handles
from pulse.settings import Settings
from tests.sdk.apps_here import closing
from tests.served import Served


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


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much else to do takes longer to find the reason."""
    monkeypatch.setattr(handles, "EXPLAIN_PATIENCE", 60.0)
    monkeypatch.setattr(handles, "min", lambda _, most: most, raising=False)


@pytest.mark.usefixtures("patient")
async def test_a_timeout_says_what_the_job_waits_for(settings: Settings) -> None:
    app = Pulse(settings=settings)

    @app.task(name="send")
    async def send() -> None: ...

    with closing(app):
        handle = await send.aenqueue()
        with pytest.raises(ResultTimeout) as awaited:
            await handle.aresult(0.01)
        with pytest.raises(ResultTimeout) as waited:
            await asyncio.to_thread(handle.result, "10ms")

    expected = (
        f"job {handle.id} is still PENDING after 0.01 s. No worker takes topic 'send': no worker is connected at all"
    )
    assert str(awaited.value).startswith(expected)
    assert str(waited.value) == str(awaited.value)


@pytest.mark.usefixtures("patient")
async def test_a_look_without_patience_does_not_ask_for_the_reason(settings: Settings) -> None:
    app = Pulse(settings=settings)

    @app.task
    async def send() -> None: ...

    with closing(app):
        handle = await send.aenqueue()
        with pytest.raises(ResultTimeout) as raised:
            await handle.aresult(0)

    expected = f"after 0 s. The job goes on, so ask again later; `pulse explain {handle.id}` says what it waits for."
    assert str(raised.value).endswith(expected)


@pytest.mark.usefixtures("patient")
async def test_a_token_that_may_not_read_is_told_how_to_ask(settings: Settings, engine: Engine) -> None:
    _, secret = await engine.tokens.create("web", ["submit"])
    served = Served(settings, count=1)
    try:
        app = Pulse(settings=replace(await asyncio.to_thread(served.start), token=secret))

        @app.task
        async def send() -> None: ...

        with closing(app):
            handle = await send.aenqueue()
            with pytest.raises(ResultTimeout, match=re.escape(f"`pulse explain {handle.id}` says what it waits for")):
                await handle.aresult(0.01)
    finally:
        await asyncio.to_thread(served.stop)


async def test_a_job_whose_transaction_is_open_is_not_there_and_that_is_said(settings: Settings) -> None:
    app = Pulse(settings=settings)

    @app.task
    async def send() -> None: ...

    conn = await asyncpg.connect(settings.database_url)
    try:
        with closing(app):
            async with conn.transaction():
                handle = await send.using(conn=conn).aenqueue()
                for ask in (handle.aresult(1), handle.aexplain(), handle.acancel()):
                    with pytest.raises(JobNotFound, match="or its transaction has not committed"):
                        await ask
            assert isinstance((await handle.ajob()).id, UUID)
    finally:
        await conn.close()
