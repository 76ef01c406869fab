"""Tasks that run in processes of their own, and some neighbours that do not."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pulse import Context, Discard, Pulse, Retry

if os.environ.get("BREAK_THE_IMPORT"):
    raise RuntimeError("the configuration is missing")

app = Pulse()
twice = Retry(2, backoff="fixed", base=0.05)
once = Retry(1)
pool: list[asyncio.AbstractEventLoop] = []


@app.on_startup
async def open_pool() -> None:
    pool.append(asyncio.get_running_loop())


@app.on_shutdown
def close_pool() -> None:
    if path := os.environ.get("SHUTDOWN_LOG"):
        with Path(path).open("a") as log:
            log.write(f"{os.getpid()}\n")


@dataclass
class Invoice:
    number: int
    due: date


@app.task(executor="process")
def own_pid() -> int:
    return os.getpid()


@app.task(executor="process")
def enqueue_without_a_warning(database_url: str) -> str:
    warnings.simplefilter("error")
    shop = Pulse(database_url)

    @shop.task(name="shop.greet")
    def greet() -> None: ...

    handle = greet.enqueue()
    shop.close()
    return str(handle.id)


@app.task(executor="process")
def due_in(invoice: Invoice, *, today: date) -> int:
    return (invoice.due - today).days


@app.task(executor="process")
async def on_the_loop_of_the_startup_hook() -> list[bool]:
    await asyncio.sleep(0.01)
    return [loop is asyncio.get_running_loop() for loop in pool]


@app.task(executor="process")
def say_how_far(ctx: Context, path: str) -> None:
    ctx.progress({"done": 7})
    wait_for(path)


@app.task(executor="process")
def leave_a_thread_that_notes(ctx: Context, path: str) -> None:
    def note() -> None:
        wait_for(path)
        ctx.progress("too late")
        Path(f"{path}.noted").touch()

    threading.Thread(target=note, daemon=True).start()


@app.task(executor="process", retry=once)
def fail() -> None:
    raise ZeroDivisionError("on purpose")


@app.task(executor="process")
def discard() -> None:
    raise Discard("no use")


@app.task(executor="process", retry=once)
def retry_in(ctx: Context, seconds: float) -> None:
    raise ctx.retry(seconds)


@app.task(executor="process", retry=Retry(2, "fixed", "1h"))
def retry_without_raise(ctx: Context) -> int:
    if ctx.attempt == 1:
        ctx.retry("10ms")
    return ctx.attempt


@app.task(executor="process", retry=once)
def leave() -> None:
    sys.exit("enough")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit


@app.task(executor="process", retry=once)
def leave_when_asked() -> None:
    raise Leaving


@app.task(executor="process", retry=once)
async def leave_when_asked_on_the_loop() -> None:
    raise Leaving


@app.task(executor="process", retry=twice)
def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task(executor="process", retry=once)
def read_address_zero() -> None:
    ctypes.string_at(0)


@app.task(executor="process", retry=once)
def run_out_of_memory() -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does it


@app.task(executor="process", retry=once)
def exit_at_once() -> None:
    print("these are on stdout")  # noqa: T201
    sys.stderr.write("these are my last words\n")
    sys.stderr.flush()
    os._exit(3)


@app.task(executor="process", retry=once)
def close_everything(path: str) -> None:
    write_pid(path)
    os.closerange(3, 256)
    time.sleep(60)


@app.task(executor="process", retry=once)
def fork_and_die() -> None:
    copy = os.fork()
    if copy == 0:
        time.sleep(15)  # with the socket open, for longer than a test waits
        os._exit(0)
    os.setpgid(copy, copy)  # so that it is not killed with us
    os._exit(4)


@app.task(executor="process")
def fork_and_return() -> int:
    os.fork()
    return os.getpid()


@app.task(executor="process", retry=twice)
def stay(path: str) -> None:
    write_pid(path)
    time.sleep(60)


@app.task(executor="process", retry=once)
def start_a_program(path: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as program:
        write_pid(path, program.pid)


@app.task(executor="process", retry=once)
def start_a_program_and_die(path: str) -> None:
    write_pid(path, subprocess.Popen(["sleep", "60"]).pid)
    os._exit(5)


@app.task(executor="process")
def terminate_a_program() -> int:
    with subprocess.Popen(["sleep", "60"]) as program:
        program.terminate()
    return program.returncode


@app.task(executor="process")
def wait_for(path: str) -> bool:
    """Until the file is there, at most ten seconds."""
    give_up_at = time.monotonic() + 10
    while not Path(path).exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    return Path(path).exists()


@app.task(executor="process")
def withstand(path: str, until: str) -> str:
    write_pid(path)
    return "finished" if wait_for(until) else "gave up"


@app.task(executor="process")
def chatter() -> str:
    print("x" * 100_000)  # noqa: T201
    os.write(1, b"\x00\x00\x00\x05hello" * 100)
    sys.stderr.write("y" * 200_000)
    logging.getLogger("shop").warning("mind the step")
    logging.getLogger("shop").info("nothing to see")
    return "heard"


@app.task
async def neighbour_on_the_loop(path: str) -> str:
    while not os.access(path, os.F_OK):
        await asyncio.sleep(0.01)
    return "loop"


@app.task
def neighbour_on_a_thread(path: str) -> str:
    wait_for(path)
    return "thread"


def write_pid(path: str, pid: int | None = None) -> None:
    part = Path(f"{path}.part")
    part.write_text(str(pid or os.getpid()))
    part.rename(path)


@app.task(executor="process")
def scheduled_for(ctx: Context) -> str | None:
    return ctx.scheduled_for.isoformat() if ctx.scheduled_for else None
