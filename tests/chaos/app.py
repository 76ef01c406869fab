"""What do the workers of a run work on? Handlers that note when they began and how they ended."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulse import Context, Pulse, Retry
from tests.chaos import bugs, notes

PATIENT = Retry(50, "fixed", 0)  # many lives, and no wait: what is measured is how soon others take over
BRIEF = Retry(3, "fixed", 0)

app = Pulse()

if notes.FOLDER in os.environ:  # in a worker, and in the processes of its pool
    bugs.plant_from_environment()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with whoever started us, should that be killed


@app.on_startup
def be_ready() -> None:
    notes.take_ready()


@contextmanager
def noted(ctx: Context) -> Iterator[None]:
    _note("start", ctx)
    try:
        yield
    except asyncio.CancelledError:
        _note("told", ctx)
        raise
    _note("end", ctx)


def _note(kind: str, ctx: Context) -> None:
    notes.take(kind, ctx.job_id, ctx.lease.lease_id, ctx.attempt)


# --- ordinary work; `seconds` for the first attempt, the second, …


@app.task(topic="loop", retry=PATIENT)
async def on_the_loop(ctx: Context, seconds: list[float]) -> int:
    with noted(ctx):
        await asyncio.sleep(_this_time(ctx, seconds))
    return os.getpid()


@app.task(topic="threads", retry=PATIENT)
def in_a_thread(ctx: Context, seconds: list[float]) -> int:
    with noted(ctx):
        time.sleep(_this_time(ctx, seconds))
    return os.getpid()


@app.task(executor="process", retry=PATIENT)
def in_a_process(ctx: Context, seconds: list[float]) -> int:
    with noted(ctx):
        time.sleep(_this_time(ctx, seconds))
    return os.getpid()


def _this_time(ctx: Context, seconds: list[float]) -> float:
    return seconds[min(ctx.attempt, len(seconds)) - 1]


# --- for workers that are stopped and woken


def _is_open(gate: str) -> bool:
    return Path(gate).exists()


@app.task(topic="loop", retry=PATIENT)
async def stay_on_the_loop(ctx: Context, gate: str) -> int:
    """The first time until told to end, or until the gate of this process is open."""
    with noted(ctx):
        while ctx.attempt == 1 and not _is_open(f"{gate}-{os.getpid()}"):
            await asyncio.sleep(0.02)
    return os.getpid()


@app.task(topic="threads", retry=PATIENT)
def stay_in_a_thread(ctx: Context, gate: str) -> int:
    """As the other. A thread cannot be cancelled, it has to look."""
    _note("start", ctx)
    while ctx.attempt == 1 and not ctx.cancelled and not _is_open(f"{gate}-{os.getpid()}"):
        time.sleep(0.02)
    _note("told" if ctx.cancelled else "end", ctx)
    return os.getpid()


@app.task(topic="loop", retry=PATIENT)
async def be_overtaken_on_the_loop(ctx: Context, seconds: float, gate: str) -> int:
    """The first time brief; the second time still at it when the first comes back."""
    with noted(ctx):
        await asyncio.sleep(seconds if ctx.attempt == 1 else 0)
        while ctx.attempt > 1 and not _is_open(gate):
            await asyncio.sleep(0.02)
    return os.getpid()


@app.task(topic="threads", retry=PATIENT)
def be_overtaken_in_a_thread(ctx: Context, seconds: float, gate: str) -> int:
    with noted(ctx):
        time.sleep(seconds if ctx.attempt == 1 else 0)
        while ctx.attempt > 1 and not _is_open(gate):
            time.sleep(0.02)
    return os.getpid()


# --- mistakes


@app.task(topic="loop", retry=PATIENT)
async def block_the_loop(ctx: Context, seconds: float, after: float = 0) -> int:
    with noted(ctx):
        await asyncio.sleep(after)
        time.sleep(seconds)  # noqa: ASYNC251  that is the mistake
    return os.getpid()


@app.task(retry=PATIENT)
async def spin_on_the_loop(ctx: Context, seconds: float) -> int:
    with noted(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
    return os.getpid()


@app.task(executor="process", retry=BRIEF)
def segfault(ctx: Context) -> None:
    with noted(ctx):
        ctypes.string_at(0)


@app.task(retry=BRIEF)
async def kill_from_the_loop(ctx: Context) -> None:
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(retry=BRIEF)
def kill_from_a_thread(ctx: Context) -> None:
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)
