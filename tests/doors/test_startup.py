"""What is said while a database is waited for?"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pulse.cli.startup import wait_for_database
from pulse.model.errors import DatabaseUnreachable


@pytest.mark.parametrize(
    ("why", "ends"), [("it is shutting down", "down. Trying"), ("is it running?", "running? Trying")]
)
async def test_the_reason_and_the_patience_are_two_sentences(
    why: str, ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()

    async def prepare() -> None:
        stop.set()
        raise DatabaseUnreachable(why)

    assert not await wait_for_database(prepare, patience=timedelta(minutes=1), told_to_stop=stop)
    assert ends in caplog.text
