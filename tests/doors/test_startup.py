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


async def test_the_patience_is_used_to_its_end() -> None:
    """The pauses between tries grow; the last one must not be cut off with all that was left."""
    patience = timedelta(milliseconds=1_200)
    tries: list[float] = []

    async def prepare() -> None:
        tries.append(asyncio.get_running_loop().time())
        raise DatabaseUnreachable("gone")

    began = asyncio.get_running_loop().time()
    with pytest.raises(DatabaseUnreachable):
        await wait_for_database(prepare, patience=patience, told_to_stop=asyncio.Event())

    assert tries[-1] - began >= patience.total_seconds()
