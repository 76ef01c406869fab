"""How does a worker run that reload.py has started? Like any other, but it ends with its parent."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time

from pulse.cli.session import Session
from pulse.model.errors import PulseError

DRAIN_PATIENCE = 20.0  # seconds to drain once the parent is gone


def main(pipe: int) -> None:
    os.set_inheritable(pipe, False)
    source = os.fdopen(pipe, "rb", buffering=0)
    options = pickle.load(source)  # noqa: S301  written by the parent, which is trusted
    threading.Thread(target=_end_with, args=(source.fileno(),), name="pulse parent watch", daemon=True).start()
    session = Session(as_json=options.as_json)
    try:
        from pulse.cli.worker.process import run_worker

        run_worker(options)
    except PulseError as error:
        sys.exit(session.refuse(error))


def _end_with(parent: int) -> None:
    os.read(parent, 1)  # returns when the parent has ended and so closed its end of the pipe
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(DRAIN_PATIENCE)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[2]))
