"""Which call stops the event loop that it is made on, and what should be called instead?

A sync call made in a coroutine does its work, but nothing else on that loop goes on meanwhile. Whoever wrote it would
find out under load, so we say it at the first call of each line.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from types import FrameType

OURS = ("pulse.sdk.", "pulse.links.")  # modules between a caller and the link
# What has methods that block, by the name of its class, and how a caller would write it.
NAMES = {
    "Task": "{.__name__}",
    "Pulse": "app",
    "JobHandle": "handle",
    "Alarms": "app.alarms",
    "Schedules": "app.schedules",
}
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class BlockingCallWarning(RuntimeWarning):
    """A sync call in a coroutine blocks its event loop. The message has the method to await instead."""


def warn_of_blocking() -> None:
    """Warn of a call in this thread, whose event loop is running, at the line that is not ours.

    Silent where that line cannot await: in a notebook, whose loop runs around sync code, and in a module that is being
    imported. Also where there is nothing to await instead, as in pulse.testing.
    """
    if "ipykernel" in sys.modules:
        return
    warning, level = "", 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(OURS):
        warning = _describe(frame) or warning  # the outermost: status() calls job()
        frame, level = frame.f_back, level + 1
    if warning and not _is_import(frame):
        warnings.warn(warning, BlockingCallWarning, stacklevel=level)


def _describe(frame: FrameType) -> str:
    """Say what to write instead of the method that runs here, if it has a twin for coroutines."""
    kind, method, *_ = [*frame.f_code.co_qualname.split("."), ""]
    thing = frame.f_locals.get("self")
    twin = next((name for name in (f"a{method}", f"a{method}_") if hasattr(thing, name)), None)
    if kind not in NAMES or twin is None:
        return ""
    name = NAMES[kind].format(thing)
    is_awaited = inspect.iscoroutinefunction(getattr(thing, twin))
    instead = f"await {name}.{twin}()" if is_awaited else f"use async for with {name}.{twin}()"
    return f"{name}.{method}() blocks the event loop of this coroutine; {instead} instead"


def _is_import(frame: FrameType | None) -> bool:
    """Return whether a module that is being imported made the call, where nothing can be awaited."""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return True
        if frame.f_code.co_flags & ASYNC:
            return False
        frame = frame.f_back
    return False
