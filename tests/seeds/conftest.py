"""What the tests of all five documents have: noon that stands still, an endpoint to wake, further processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from pulse.engine.engine import Engine
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.clock import FrozenClock
from tests.endpoint import Endpoint, open_endpoint
from tests.seeds.helpers import NOON

Another = Callable[..., Awaitable[Engine]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The defaults, but that alarms may wake this machine."""
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
async def noon(clock: FrozenClock) -> FrozenClock:
    """A Monday."""
    clock.instant = NOON
    await clock.freeze()
    return clock


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
async def engine(engine: Engine) -> AsyncIterator[Engine]:
    yield engine
    await engine.duties.deliveries.stop(0)


@pytest.fixture
async def another(settings: Settings) -> AsyncIterator[Another]:
    """Call it for an engine with connections of its own, as another process has; `changes` are to its settings."""
    async with AsyncExitStack() as stack:

        async def open_one(**changes: Any) -> Engine:
            database = await stack.enter_async_context(await Database.connect(replace(settings, **changes)))
            engine = Engine(database, buckets=settings.buckets)
            stack.push_async_callback(engine.duties.deliveries.stop, 0)
            return engine

        yield open_one
