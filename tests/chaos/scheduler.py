"""How is one of the schedulers started? `python -m tests.chaos.scheduler`: the duties of a process, and no more."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys

from pulse.engine.engine import open_engine
from pulse.event_loop import run
from pulse.settings import Settings
from tests.chaos import bugs, notes


async def main() -> None:
    async with open_engine(Settings.from_env()) as engine:
        engine.start()
        notes.take_ready()
        await asyncio.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    bugs.plant_from_environment()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with whoever started us, should that be killed
    run(main())
