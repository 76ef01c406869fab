"""The HTTP door, for curl, browsers and programs in any language: JSON over HTTP, with one folder for each noun."""

from importlib.util import find_spec


def is_installed() -> bool:
    """Tell whether the packages that this door needs are installed."""
    return all(find_spec(name) is not None for name in ("fastapi", "jinja2", "uvicorn"))
