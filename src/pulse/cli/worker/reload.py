"""How does a worker restart when code changes?

This process runs none of that code. It watches the files, keeps a worker as a child, and starts a new one when a file
has changed. So code that cannot be imported does not end this process: its error is shown until the next change.
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
from pulse.cli.output import print_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulse.cli.worker.worker_options import WorkerOptions

CHECK_EVERY = 0.5  # seconds
END_PATIENCE = 30.0  # seconds; its grace is short, but its last reports may take a while
LONG_LIFE = 10.0  # seconds, after which a worker that is killed is restarted at once
MAX_WAIT = 30.0  # seconds before a worker that is killed repeatedly is started again
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}


def watch(options: WorkerOptions) -> int:
    """Run a worker with the newest code until a signal comes, and return the exit code."""
    with handle_signals() as reloader:
        return reloader.run(options)


@contextmanager
def handle_signals() -> Iterator[Reloader]:
    """Yield a reloader that handles SIGINT and SIGTERM, before, while and after it has a child."""
    reloader = Reloader()
    before = {number: signal.signal(number, reloader.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield reloader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Reloader:
    def __init__(self) -> None:
        self._child: Child | None = None
        self._signals = 0
        self._deaths = 0  # how many times in a row a worker was killed by a signal
        self._stop_requested = threading.Event()

    def on_signal(self, _number: int, _frame: object) -> None:
        """End the loop of `run` and with it the child, gently. A second signal hurries the child, a third kills it."""
        self._signals += 1
        self._stop_requested.set()
        if self._signals > 1:
            if self._child is None:  # there is no child to end, so this process is waiting for something else
                raise KeyboardInterrupt
            self._child.send_signal(signal.SIGTERM if self._signals == 2 else signal.SIGKILL)

    def run(self, options: WorkerOptions) -> int:
        files = Files(source_folders(options.app))
        while not self._stop_requested.is_set():
            self._child, started_at = Child(options), time.monotonic()
            if changed := self._wait_for_change(files):
                print_text(f"\n{_list_names(changed)} changed: restarting.", to_stderr=True)
                delete_bytecode(changed)
                options = replace(options, is_again=self._child.exit_code is None)
            elif not self._stop_requested.is_set():
                self._wait_after_death(time.monotonic() - started_at)
                options = replace(options, is_again=True)
            self._child.end()
            self._child = None
        return OK if self._signals == 1 else REFUSED

    def _wait_for_change(self, files: Files) -> list[Path]:
        """Wait until files change, and return them, or none if a stop was requested or the worker was killed."""
        assert self._child
        is_printed = False
        while not self._stop_requested.wait(CHECK_EVERY):
            if changed := files.find_changes():
                return changed
            code = self._child.exit_code
            if code is not None and code <= 0:  # it was ended by a signal, not by the code that it runs
                return []
            if not is_printed and code is not None:
                print_text(f"The worker has ended with exit code {code}. Waiting for a file to change.", to_stderr=True)
                is_printed = True
        return []

    def _wait_after_death(self, lived: float) -> None:
        """Wait before the next start: not after the first death in a row, then longer and longer."""
        assert self._child
        self._deaths = 1 if lived > LONG_LIFE else self._deaths + 1
        delay = min(2.0 ** (self._deaths - 2), MAX_WAIT) if self._deaths > 1 else 0.0
        name = signal.Signals(-(self._child.exit_code or -signal.SIGTERM)).name  # after a SIGTERM it exits with 0
        print_text(
            f"The worker was ended by {name}: starting again{f' in {delay:.0f} s' if delay else ''}.", to_stderr=True
        )
        self._stop_requested.wait(delay)


class Child:
    """A worker in a process of its own. It ends with this process, because a pipe between them then closes."""

    def __init__(self, options: WorkerOptions) -> None:
        read_end, write_end = os.pipe()
        command = [sys.executable, "-P", "-m", "pulse.cli.worker.reload_child", options.app, str(read_end)]
        self._process = subprocess.Popen(command, pass_fds=[read_end])
        os.close(read_end)
        self._pipe: IO[bytes] = os.fdopen(write_end, "wb", buffering=0)
        with suppress(BrokenPipeError):  # the child has ended already, and its exit code says why
            self._pipe.write(pickle.dumps(replace(options, is_child=True)))

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe.close()


class Files:
    """The Python files in some folders, and when each was last written."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(folders)
        self._times = self._read()

    def find_changes(self) -> list[Path]:
        """Return the files that were added, removed or changed since the last call."""
        before, self._times = self._times, self._read()
        return sorted({path for path, _ in before.items() ^ self._times.items()})

    def _read(self) -> dict[Path, int]:
        times = {}
        for path in {file for folder in self._folders for file in _python_files(folder)}:
            with suppress(OSError):  # removed since it was listed
                times[path] = path.stat().st_mtime_ns
        return times


def _python_files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    for folder, folders, names in os.walk(place):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))


def module_exists(module: str) -> bool:
    """Tell whether there is such a file, or the outermost package or module of the name, without importing it."""
    if module.endswith(".py"):
        return Path(module).is_file()
    outermost = module.partition(".")[0]
    return PathFinder.find_spec(outermost, [str(Path.cwd()), *sys.path]) is not None


def source_folders(app: str) -> list[Path]:
    """Return the folders with the code of an app: the current one, and its own if that is elsewhere."""
    here = Path.cwd()
    module = app.partition(":")[0]
    if module.endswith(".py"):
        own = Path(module).resolve().parent
    else:
        # Only the outermost package can be found without importing anything.
        spec = PathFinder.find_spec(module.partition(".")[0], [str(here), *sys.path])
        own = Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else here
        own = own.parent if own.name == "__init__.py" else own
    return [here] if own.is_relative_to(here) else [here, own]


def delete_bytecode(files: Iterable[Path]) -> None:
    """Delete the compiled files. Python compares only seconds and sizes, so after two quick changes it could run the
    first."""
    for file in files:
        with suppress(OSError):
            Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _list_names(files: list[Path]) -> str:
    names = [os.path.relpath(file) for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
