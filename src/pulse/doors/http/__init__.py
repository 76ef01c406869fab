"""How do curl, browsers' programs and every other language reach the engine? JSON over HTTP, one file for each noun."""

from importlib.util import find_spec


def is_installed() -> bool:
    """Whether the packages of this door are there."""
    return all(find_spec(name) is not None for name in ("fastapi", "jinja2", "uvicorn"))
