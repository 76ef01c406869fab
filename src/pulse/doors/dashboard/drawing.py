"""How does a template become a page, and how are addresses on pages written?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pulse import __version__
from pulse.doors.dashboard.formatting import FILTERS, visible

STATIC = files("pulse.doors.dashboard") / "static"


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("pulse.doors.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= FILTERS
    found.globals |= {"static": static, "version": __version__, "url": url, "url_with": url_with}
    return found


def draw(template: str, **facts: Any) -> str:  # noqa: ANN401
    return environment().get_template(template).render(**facts)


def draw_page(content: str, **facts: Any) -> str:  # noqa: ANN401
    """Draw the frame of all pages around content that is drawn already."""
    return draw("frame.html", content=Markup(content), **facts)  # noqa: S704  we drew and escaped it


@cache
def static(name: str) -> str:
    """Return the address of a static file. It has the digest of the file, so browsers may cache it for ever."""
    digest = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def url(path: str, *segments: object, **query: object) -> str:
    """Return a path with encoded segments and query, as in `url("/jobs", id, after=…)`, without empty parameters."""
    whole_path = "/".join([path.rstrip("/"), *(quote(str(segment), safe="") for segment in segments)]) or "/"
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{whole_path}?{urlencode(given)}" if given else whole_path


def url_with(path: str, query: Mapping[str, object], **changes: object) -> str:
    """Return the address of the same page with some parameters of its query changed."""
    return url(path, **{**query, **changes})
