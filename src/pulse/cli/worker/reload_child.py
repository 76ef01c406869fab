"""How does a worker live that was started by reload.py? As any other, and not longer than its parent."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time

from pulse.cli.session import Session
from pulse.model.errors import PulseError

LAST_MOMENTS = 20.0  # seconds to drain once the parent is gone


def main(pipe: int) -> None:
    os.set_inheritable(pipe, False)
    source = os.fdopen(pipe, "rb", buffering=0)
    plan = pickle.load(source)  # noqa: S301  it is our own parent that writes it
    threading.Thread(target=_end_with, args=(source.fileno(),), name="pulse parent watch", daemon=True).start()
    session = Session(as_json=plan.as_json)
    try:
        from pulse.cli.worker.process import work

        work(plan)
    except PulseError as error:
        sys.exit(session.refuse(error))


def _end_with(parent: int) -> None:
    os.read(parent, 1)  # returns when nobody can write there any more
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_MOMENTS)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[2]))
