"""What do the processes of a benchmark do when somebody has seen enough of it?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from pulse.engine.engine import Engine
from pulse.settings import Settings


def test_a_worker_leaves_ctrl_c_to_the_benchmark_and_ends_without_a_word(settings: Settings, engine: Engine) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "pulse.bench.workers", json.dumps(["bench"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema},
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)
    finally:
        worker.kill()

    assert (worker.returncode, said) == (0, "")
