"""A program in one file: the app, its task and the worker. Run as a script with the database's address."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from pulse import Pulse

app = Pulse(sys.argv[1])


@app.task(executor="process")
def stay(path: str) -> None:
    part = Path(f"{path}.part")
    part.write_text(f"{os.getpid()} {__name__}")
    part.rename(path)
    time.sleep(60)


if __name__ == "__main__":
    from pulse.sdk.worker.worker import Worker

    asyncio.run(Worker(app).run())
