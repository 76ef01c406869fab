"""Which functions read text of the caller's, whatever the door? Those of the model and of timing that take one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pulse.model
import pulse.timing
from pulse.model.network.targets import Rules
from tests.doors.costs.texts import texts

VERBS = ("parse", "read", "check", "clean", "encode", "is", "known", "count", "timetable", "resolve", "first")
FILLERS: dict[str, Any] = {
    "Rules": Rules(),
    "timedelta": timedelta(seconds=1),
    "timedelta | None": None,
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "datetime | None": None,
    "int": 1,
    "type": str,
    "Any": None,
    "UUID": None,
}
TEXT = ("str", "object", "str | None")
TEXTS = ("Iterable[str]", "Sequence[str]")
# These take settings, which are the operator's own, or what was parsed already.
OTHERS = {
    "known_scopes",
    "read_networks",
    "read_proxies",
    "resolve_once",
    "check_kind",
    "check_int",
    "check_length",
    "check_instant",
    "check_lease_id",
    "check_usable",
}


def parsers() -> Iterator[tuple[str, Callable[[str], object]]]:
    """Each with a way to call it with one text in every place that takes some."""
    for package in (pulse.model, pulse.timing):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for name, found in _callables(importlib.import_module(module.name)):
                if name.rpartition(".")[2] not in OTHERS and (call := _call(found)):
                    yield name, call


def _callables(module: Any) -> Iterator[tuple[str, Any]]:
    short = module.__name__.rpartition(".")[2]
    for name, found in vars(module).items():
        if getattr(found, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(found) and not name.startswith("_") and name.partition("_")[0] in VERBS:
            yield f"{short}.{name}", found
        elif inspect.isclass(found) and inspect.ismethod(getattr(found, "parse", None)):
            yield f"{short}.{name}.parse", found.parse  # type: ignore[attr-defined]


def _call(found: Any) -> Callable[[str], object] | None:
    """None: it takes no text."""
    makers: list[Callable[[str], Any]] = []
    takes_text = False
    for parameter in inspect.signature(found).parameters.values():
        kind = str(parameter.annotation)
        if kind in TEXT or kind in TEXTS:
            takes_text = True
            makers.append((lambda text: text) if kind in TEXT else str.split)
        elif parameter.default is not inspect.Parameter.empty:
            break
        elif kind in FILLERS:
            makers.append(lambda _, filler=FILLERS[kind]: filler)  # type: ignore[misc]
        else:
            return None
    return (lambda text: found(*(make(text) for make in makers))) if takes_text else None


def parser_texts() -> dict[str, str]:
    return texts() | {"surrogates": "\ud800" * (1 << 20), "words": "a " * (1 << 19)}
