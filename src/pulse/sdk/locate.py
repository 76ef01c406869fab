"""Where is an app? Loads it from "module:attribute" or a file, and finds the path of a loaded app."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pulse.model.errors import InvalidApp
from pulse.sdk.app import Pulse, main_module_name
from pulse.sdk.worker.outcomes import describe

SHOWN_FRAMES = 3  # of the user's own code, shown when a module does not import
OWN_FOLDER = f"{Path(__file__).parents[1]}{os.sep}"  # of this package

_being_loaded: list[str] = []


def load_app(path: str) -> Pulse:
    """Return the app at "module:attribute", "module", "file.py:attribute" or "file.py"."""
    place, _, attribute = path.partition(":")
    if not place or (place.startswith(".") and not _is_file(place)):
        raise InvalidApp(f'{path!r} does not name an app: write "module:attribute", such as "shop.tasks:app"')
    module = load_module(place)
    if not attribute:
        return _only_app(module, place)
    found = _find(module, place, attribute)
    if not isinstance(found, Pulse):
        raise InvalidApp(f"{path} is of type {type(found).__name__} but must be a Pulse; {_list_apps(module, place)}")
    return found


def path_of(app: Pulse) -> str:
    """Return the path from which another process can load this very app."""
    module, attribute = _home_of(app)
    return f"{_path_of_module(module)}:{attribute}"


def name_of(app: Pulse) -> str:
    """Return the name that owns the app's schedules: the same one whichever module or script imports the app."""
    homes = sorted(_homes_of(app), key=lambda home: (home[0] != app.made_in, home[0] == "__main__", home))
    if not homes:
        raise InvalidApp(
            'this app is not a module-level variable, so it has no name of its own: give one, as in sync("shop")'
        )
    module, attribute = homes[0]
    return f"{main_module_name() if module == '__main__' else module}:{attribute}"


def modules_of(app: Pulse) -> list[str]:
    """Return the modules to import so that the app has all its tasks and hooks, in the order they were imported here.

    The module that holds the app is often not the one that declares its tasks.
    """
    functions = [task.function for task in app.tasks.values()]
    functions += [*app.startup_hooks, *app.shutdown_hooks, *app.middlewares]
    wanted = {getattr(function, "__module__", "") for function in functions} | {_home_of(app)[0]}
    return [_path_of_module(name) for name in list(sys.modules) if name in wanted]


def load_module(place: str) -> ModuleType:
    """Import a module by its name or its file, or raise InvalidApp with the reason why that fails."""
    name = _name_of_file(place) if _is_file(place) else place
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(name, place)
    if _is_file(place) and not _is_from(module, place):
        raise InvalidApp(f"{place} would be module {name!r}, which is {_file_of(module)} already: rename one of them")
    return module


def refuse_while_loading() -> None:
    """Refuse to start a worker while its module is imported: each process of its pool would start another."""
    if _being_loaded:
        raise InvalidApp(
            f'{_being_loaded[-1]} starts a worker while it is imported: move that under `if __name__ == "__main__":`'
        )


# --- from a path to an app


def _import(name: str, place: str) -> ModuleType:
    try:
        with _loading(place):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # a module that it imports is missing
            raise _does_not_import(place, error) from error
        raise InvalidApp(_not_found(name, error.name)) from None
    except (Exception, SystemExit) as error:
        raise _does_not_import(place, error) from error


@contextmanager
def _loading(place: str) -> Iterator[None]:
    _being_loaded.append(place)
    try:
        yield
    finally:
        _being_loaded.pop()


def _not_found(name: str, missing: str) -> str:
    parent, _, last = name.rpartition(".")
    hint = f'; if {last} is an attribute, write "{parent}:{last}"' if parent else ""
    return f"there is no module {missing!r} in {Path.cwd()} or among the installed packages{hint}"


def _does_not_import(place: str, error: BaseException) -> InvalidApp:
    return InvalidApp(f"{place} cannot be imported: {describe(error)}\n{_format_user_frames(error)}".rstrip())


def _format_user_frames(error: BaseException) -> str:
    """Return the last frames of the user's code before the error, without those of the import system and of Pulse."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_internal(frame.filename)]
    lines = traceback.format_list(frames[-SHOWN_FRAMES:])
    if isinstance(error, SyntaxError):  # the line with the mistake never ran, so it is not on the stack
        lines += traceback.format_exception_only(error)[:-1]
    return "".join(lines)


def _is_internal(file: str) -> bool:
    return file.startswith(("<frozen importlib", OWN_FOLDER)) or file == importlib.__file__


def _find(module: ModuleType, place: str, attribute: str) -> Any:  # noqa: ANN401
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidApp(f"{place} has no {attribute!r}; {_list_apps(module, place)}") from None
    return found


def _only_app(module: ModuleType, place: str) -> Pulse:
    apps = {id(app): app for app in _apps_in(module).values()}
    if len(apps) != 1:
        raise InvalidApp(f"{place} must contain exactly one app; {_list_apps(module, place)}")
    return apps.popitem()[1]


def _apps_in(module: ModuleType) -> dict[str, Pulse]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Pulse)}


def _list_apps(module: ModuleType, place: str) -> str:
    paths = [f"{place}:{name}" for name in _apps_in(module)]
    return f"it has {' and '.join(paths)}" if paths else "it has no Pulse: add `app = Pulse()`, or name another module"


# --- files


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _name_of_file(place: str) -> str:
    """Return the module name of a file, relative to its folder or to the root of its package."""
    file = Path(place).resolve()
    if not file.is_file():
        raise InvalidApp(f"there is no file {place} in {Path.cwd()}")
    if file.suffix != ".py":
        raise InvalidApp(f"{place} cannot be imported: its name must end in .py")
    root = file.parent
    if str(root) not in sys.path:
        while (root / "__init__.py").is_file():
            root = root.parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return ".".join(file.relative_to(root).with_suffix("").parts)


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "built into Python"


def _is_from(module: ModuleType, place: str) -> bool:
    return Path(_file_of(module)).resolve() == Path(place).resolve()


# --- from an app to its path


def _home_of(app: Pulse) -> tuple[str, str]:
    """Return the module and the variable of the app. `__main__` is the last choice: elsewhere it is another module."""
    homes = _homes_of(app)
    if not homes:
        raise InvalidApp(
            'executor="process" needs the app to be a module-level variable, because another process has to import '
            "it: write `app = Pulse()` outside of any function"
        )
    return min(homes, key=lambda home: home[0] == "__main__")


def _homes_of(app: Pulse) -> list[tuple[str, str]]:
    return [
        (module_name, name)
        for module_name, module in list(sys.modules.items())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]


def _path_of_module(name: str) -> str:
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m package.module
        return str(spec.name)
    if file := getattr(main, "__file__", None):
        return str(Path(file).resolve())
    raise InvalidApp('executor="process" needs the app and its tasks to be in a file, not typed at a prompt')
