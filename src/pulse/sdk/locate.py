"""Where does an application live? From "module:attribute" or a file to the app, and from an app back to that."""

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

FRAMES = 3  # of the user's own, shown when a module does not import
OURS = f"{Path(__file__).parents[1]}{os.sep}"

_being_loaded: list[str] = []


def load_app(path: str) -> Pulse:
    """The app at "module:attribute", "module", "file.py:attribute" or "file.py"."""
    place, _, attribute = path.partition(":")
    if not place or (place.startswith(".") and not _is_file(place)):
        raise InvalidApp(f'{path!r} does not name an app: write "module:attribute", such as "shop.tasks:app"')
    module = load_module(place)
    if not attribute:
        return _only_app(module, place)
    found = _find(module, place, attribute)
    if not isinstance(found, Pulse):
        raise InvalidApp(f"{path} is of type {type(found).__name__}, not a Pulse; {_what_there_is(module, place)}")
    return found


def path_of(app: Pulse) -> str:
    """Where this very object can be loaded from again by another process."""
    module, attribute = _home_of(app)
    return f"{_path_of_module(module)}:{attribute}"


def name_of(app: Pulse) -> str:
    """What its schedules belong to: one name, whichever module it is imported through, and in a script as well."""
    homes = sorted(_homes_of(app), key=lambda home: (home[0] != app.made_in, home[0] == "__main__", home))
    if not homes:
        raise InvalidApp(
            'this app is no module-level variable, so it has no name of its own: give one, as in sync("shop")'
        )
    module, attribute = homes[0]
    return f"{main_module_name() if module == '__main__' else module}:{attribute}"


def modules_of(app: Pulse) -> list[str]:
    """What has to be imported so that the app has all its tasks and hooks, in the order in which it was here.

    The module that holds the app is often not the one that declares its tasks.
    """
    functions = [task.function for task in app.tasks.values()]
    functions += [*app.startup_hooks, *app.shutdown_hooks, *app.middlewares]
    wanted = {getattr(function, "__module__", "") for function in functions} | {_home_of(app)[0]}
    return [_path_of_module(name) for name in list(sys.modules) if name in wanted]


def load_module(place: str) -> ModuleType:
    """Import a module by its name or by its file, or say what keeps it from being imported."""
    name = _name_of_file(place) if _is_file(place) else place
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    module = _import(name, place)
    if _is_file(place) and not _is_from(module, place):
        raise InvalidApp(f"{place} would be module {name!r}, but that is {_file_of(module)}: rename one of them")
    return module


def refuse_while_loading() -> None:
    """For whatever must not begin as a side effect of an import: it would begin again in every process."""
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
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):  # something that it imports
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
    return f"there is no module {missing!r} in {Path.cwd()} nor among the installed ones{hint}"


def _does_not_import(place: str, error: BaseException) -> InvalidApp:
    return InvalidApp(f"{place} does not import: {describe(error)}\n{_own_lines(error)}".rstrip())


def _own_lines(error: BaseException) -> str:
    """The last lines of the user's code on the way to the error, without the import system's and ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    lines = traceback.format_list(frames[-FRAMES:])
    if isinstance(error, SyntaxError):  # its own line is not on the stack, because it never ran
        lines += traceback.format_exception_only(error)[:-1]
    return "".join(lines)


def _is_machinery(file: str) -> bool:
    return file.startswith(("<frozen importlib", OURS)) or file == importlib.__file__


def _find(module: ModuleType, place: str, attribute: str) -> Any:  # noqa: ANN401
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidApp(f"{place} has no {attribute!r}; {_what_there_is(module, place)}") from None
    return found


def _only_app(module: ModuleType, place: str) -> Pulse:
    apps = {id(app): app for app in _apps_in(module).values()}
    if len(apps) != 1:
        raise InvalidApp(f"{place} does not lead to one app; {_what_there_is(module, place)}")
    return apps.popitem()[1]


def _apps_in(module: ModuleType) -> dict[str, Pulse]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Pulse)}


def _what_there_is(module: ModuleType, place: str) -> str:
    paths = [f"{place}:{name}" for name in _apps_in(module)]
    return f"it has {' and '.join(paths)}" if paths else "it has no Pulse: add `app = Pulse()`, or name another module"


# --- files


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _name_of_file(place: str) -> str:
    """The name a file is imported by: as a script's own folder or its package has it."""
    file = Path(place).resolve()
    if not file.is_file():
        raise InvalidApp(f"there is no file {place} in {Path.cwd()}")
    if file.suffix != ".py":
        raise InvalidApp(f"{place} cannot be imported: its name has to end in .py")
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
    """The module and the name in it. A script comes last: in another process it is a module like any other."""
    homes = _homes_of(app)
    if not homes:
        raise InvalidApp(
            'executor="process" needs the app to be a module-level variable, because a process of its own imports it '
            "from there: write `app = Pulse()` outside of any function"
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
    raise InvalidApp('executor="process" needs the app and its tasks to be in a file, not typed in')
