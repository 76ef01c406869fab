"""How does a worker follow the code while it is being written?

This process runs none of that code. It looks at the files, keeps a worker as a child, and starts a new one when a file
has changed. So code that does not even import stops nothing here: its error is shown, and the next change is awaited.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.machinery import PathFinder
from importlib.util import cache_from_source
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pulse.cli.exit_codes import OK, REFUSED
from pulse.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulse.cli.worker.plan import Plan

LOOK_EVERY = 0.5  # seconds
END_PATIENCE = 30.0  # seconds; its grace is short, but its last reports may take a while
LONG_LIFE = 10.0  # seconds, after which being killed is news
LONGEST_WAIT = 30.0  # seconds before a worker that is killed again and again is started again
SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def watch(plan: Plan) -> int:
    """Keep a worker on the newest code until told to stop; answers with the exit code."""
    with obey_signals() as reloader:
        return reloader.run(plan)


@contextmanager
def obey_signals() -> Iterator[Reloader]:
    """A reloader that hears SIGINT and SIGTERM, from before it has a child until after."""
    reloader = Reloader()
    before = {number: signal.signal(number, reloader.hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield reloader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Reloader:
    def __init__(self) -> None:
        self._child: Child | None = None
        self._signals = 0
        self._deaths = 0  # by a signal, in a row
        self._is_told_to_stop = threading.Event()

    def hear(self, _number: int, _frame: object) -> None:
        """The first one ends the loop below, which tells the child. The second hurries it, the third kills it."""
        self._signals += 1
        self._is_told_to_stop.set()
        if self._signals > 1:
            if self._child is None:  # nothing is left but to wait for somebody else
                raise KeyboardInterrupt
            self._child.tell(signal.SIGTERM if self._signals == 2 else signal.SIGKILL)

    def run(self, plan: Plan) -> int:
        files = Files(places_of(plan.app))
        while not self._is_told_to_stop.is_set():
            self._child, started_at = Child(plan), time.monotonic()
            if changed := self._until_changed(files):
                say(f"\n{_listed(changed)} changed: starting again.", to_stderr=True)
                forget_compiled(changed)
                plan = replace(plan, is_again=self._child.exit_code is None)
            elif not self._is_told_to_stop.is_set():
                self._wait_after_death(time.monotonic() - started_at)
                plan = replace(plan, is_again=True)
            self._child.end()
            self._child = None
        return OK if self._signals == 1 else REFUSED

    def _until_changed(self, files: Files) -> list[Path]:
        """Which files did; none if we are to stop, or the worker was killed."""
        assert self._child
        has_told = False
        while not self._is_told_to_stop.wait(LOOK_EVERY):
            if changed := files.look():
                return changed
            code = self._child.exit_code
            if code is not None and code <= 0:  # only a signal ends a worker like that, never the code it runs
                return []
            if not has_told and code is not None:
                say(f"The worker has ended with exit code {code}. Waiting for a file to change.", to_stderr=True)
                has_told = True
        return []

    def _wait_after_death(self, lived: float) -> None:
        """The first of a row is followed at once, the others after a while that grows."""
        assert self._child
        self._deaths = 1 if lived > LONG_LIFE else self._deaths + 1
        delay = min(2.0 ** (self._deaths - 2), LONGEST_WAIT) if self._deaths > 1 else 0.0
        name = signal.Signals(-(self._child.exit_code or -signal.SIGTERM)).name  # told politely, it ends with 0
        say(f"The worker was ended by {name}: starting again{f' in {delay:.0f} s' if delay else ''}.", to_stderr=True)
        self._is_told_to_stop.wait(delay)


class Child:
    """A worker in a process of its own. It ends with us: it holds the other end of a pipe that is never written to."""

    def __init__(self, plan: Plan) -> None:
        theirs, ours = os.pipe()
        command = [sys.executable, "-P", "-m", "pulse.cli.worker.reload_child", plan.app, str(theirs)]
        self._process = subprocess.Popen(command, pass_fds=[theirs])
        os.close(theirs)
        self._pipe: IO[bytes] = os.fdopen(ours, "wb", buffering=0)
        with suppress(BrokenPipeError):  # it has ended already; its exit code will tell
            self._pipe.write(pickle.dumps(replace(plan, is_child=True)))

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def tell(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self.tell(signal.SIGTERM)
        try:
            self._process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe.close()


class Files:
    """The Python files at some places, and when each was last written."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._places = list(places)
        self._times = self._read()

    def look(self) -> list[Path]:
        """Those that came, went or changed since the last look."""
        before, self._times = self._times, self._read()
        return sorted({path for path, _ in before.items() ^ self._times.items()})

    def _read(self) -> dict[Path, int]:
        times = {}
        for path in {file for place in self._places for file in _python_files(place)}:
            with suppress(OSError):  # gone since it was listed
                times[path] = path.stat().st_mtime_ns
        return times


def _python_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for folder, folders, names in os.walk(place):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in SKIPPED and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def is_there(module: str) -> bool:
    """Tell whether there is a file of this name, or a package or module that it begins with, without importing it."""
    if module.endswith(".py"):
        return Path(module).is_file()
    outermost = module.partition(".")[0]
    return PathFinder.find_spec(outermost, [str(Path.cwd()), *sys.path]) is not None


def places_of(app: str) -> list[Path]:
    """Where the code of `module:app` or `file.py:app` is: the current folder, and its own if that is elsewhere."""
    here = Path.cwd()
    module = app.partition(":")[0]
    if module.endswith(".py"):
        own = Path(module).resolve().parent
    else:
        # Found and not imported, so only the outermost package is looked for.
        spec = PathFinder.find_spec(module.partition(".")[0], [str(here), *sys.path])
        own = Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else here
        own = own.parent if own.name == "__init__.py" else own
    return [here] if own.is_relative_to(here) else [here, own]


def forget_compiled(files: Iterable[Path]) -> None:
    """Python compares seconds and sizes, so of two quick changes it could run the first."""
    for file in files:
        with suppress(OSError):
            Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _listed(files: list[Path]) -> str:
    names = [os.path.relpath(file) for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
