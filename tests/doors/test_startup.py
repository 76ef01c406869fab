"""What is said while a database is waited for?"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from pulse.cli import startup
from pulse.cli.startup import wait_for_database
from pulse.model.errors import DatabaseUnreachable

PATIENCE = 20.0  # seconds


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

    assert not await wait_for_database(prepare, where="here", patience=timedelta(minutes=1), stop_requested=stop)
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
        await wait_for_database(prepare, where="db:5432", patience=patience, stop_requested=asyncio.Event())

    assert tries[-1] - began >= patience.total_seconds()


@pytest.mark.parametrize(("patience", "how"), [(None, "until it answers"), (timedelta(seconds=15), "for 15s")])
async def test_silence_is_told_soon_and_a_stop_meanwhile_is_obeyed_at_once(
    patience: timedelta | None, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "NOTICE_AFTER", 0.01)
    monkeypatch.setattr(startup, "STOP_PATIENCE", 0.01)
    stop, was_cancelled = asyncio.Event(), asyncio.Event()

    async def prepare() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    waiting = asyncio.create_task(wait_for_database(prepare, where="db:5432", patience=patience, stop_requested=stop))
    async with asyncio.timeout(PATIENCE):
        while not caplog.messages:
            await asyncio.sleep(0.001)
    assert caplog.messages == [f"no answer from db:5432 yet; trying {how}"]
    stop.set()

    assert await waiting is False
    assert was_cancelled.is_set()


async def test_silence_is_not_told_once_the_reason_was(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "NOTICE_AFTER", 0.01)
    tries = 0

    async def prepare() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise DatabaseUnreachable("Connection refused")
        await asyncio.sleep(0.1)  # nobody answers for longer than that

    assert await wait_for_database(prepare, where="db:5432", patience=None, stop_requested=asyncio.Event())
    assert caplog.messages == ["Connection refused. Trying until it answers."]


async def test_what_was_about_to_answer_when_told_to_stop_may_finish() -> None:
    stop = asyncio.Event()

    async def prepare() -> None:
        stop.set()
        await asyncio.sleep(0.01)  # a migration's last statement

    assert await wait_for_database(prepare, where="here", patience=None, stop_requested=stop)
