"""How does a template become a page?"""

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
    """What is drawn already, in the frame that all pages have."""
    return draw("frame.html", content=Markup(content), **facts)  # noqa: S704  drawn by us, escaped


@cache
def static(name: str) -> str:
    """Where a file is served: under its own digest, so that it may be kept for ever."""
    digest = sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def url(path: str, *segments: object, **query: object) -> str:
    """`url("/jobs", id, after=…)`: a path of ours with whatever it is about, safely written; no value, no parameter."""
    where = "/".join([path.rstrip("/"), *(quote(str(segment), safe="") for segment in segments)]) or "/"
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{where}?{urlencode(given)}" if given else where


def url_with(path: str, query: Mapping[str, object], **changes: object) -> str:
    """The same page with another query."""
    return url(path, **{**query, **changes})
