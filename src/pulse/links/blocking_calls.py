"""Which calls block an event loop, and what should be called instead?

A sync call in a coroutine works, but blocks everything else on its loop meanwhile. Its author would find out only under
load, so the first call on each line gives a warning.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from types import FrameType

OWN_MODULES = ("pulse.sdk.", "pulse.links.")  # between a caller and the link
# The classes whose methods block, and how a caller would write an object of each.
NAMES = {
    "Task": "{.__name__}",
    "Pulse": "app",
    "JobHandle": "handle",
    "Alarms": "app.alarms",
    "Schedules": "app.schedules",
}
ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class BlockingCallWarning(RuntimeWarning):
    """A sync call in a coroutine blocks its event loop. The message names the method to await instead."""


def warn_of_blocking() -> None:
    """Warn of the call that this thread, whose event loop is running, makes at the nearest line outside of Pulse.

    It does not warn if that line cannot await: in a notebook, whose loop runs around sync code, and in a module that is
    being imported. Nor does it if there is nothing to await instead, as in pulse.testing.
    """
    if "ipykernel" in sys.modules:
        return
    warning, level = "", 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(OWN_MODULES):
        warning = _describe(frame) or warning  # the outermost method counts: status() calls job()
        frame, level = frame.f_back, level + 1
    if warning and not _is_import(frame):
        warnings.warn(warning, BlockingCallWarning, stacklevel=level)


def _describe(frame: FrameType) -> str:
    """Return what to write instead of the method that runs here, or "" if it has no twin for coroutines."""
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
    """Tell whether the call was made by a module that is being imported, where nothing can be awaited."""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            return True
        if frame.f_code.co_flags & ASYNC:
            return False
        frame = frame.f_back
    return False
