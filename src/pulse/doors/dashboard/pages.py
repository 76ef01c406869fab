"""What is a page made of, and what can be done on one?

A `View` is a path, a template, and the facts that fill it. The page and the stream that keeps it up to date are both
made from it, so they cannot differ. An `Action` is the target of a form: it does one thing and reports it. Only views
and actions in the two tables of `app.py` can be reached, and each has the right that it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.model.errors import InvalidInput

if TYPE_CHECKING:
    from pulse.doors.access import Caller
    from pulse.doors.http.services import Services
    from pulse.model.tokens import Right

LONGEST_FIELD = 2_000  # characters of a query's value


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page: the caller, what the page is about, and the services that find it."""

    services: Services
    caller: Caller
    path: Mapping[str, str] = field(default_factory=dict)  # the decoded parameters of the route's path
    query: Mapping[str, str] = field(default_factory=dict)

    def may(self, right: Right, topic: str | None = None) -> bool:
        return self.caller.may(right, topic)

    def param(self, name: str) -> str | None:
        """Return a parameter of the query; None if it is missing or empty."""
        value = self.query.get(name, "").strip()
        if len(value) > LONGEST_FIELD:
            raise InvalidInput(f"{name} must have at most {LONGEST_FIELD:,} characters, not {len(value):,}")
        return value or None


# Returns the facts that fill the template. `title` is the title of the page, `status` the status of the response.
Facts = Callable[[PageRequest], Awaitable[dict[str, Any]]]


class View(NamedTuple):
    path: str
    template: str
    facts: Facts
    right: Right
    every: float = 2.0  # seconds between two drawings while the page has a viewer
    is_live: bool = True
    is_part: bool = False  # a part of a page, which is sent without the frame around it


class Toast(NamedTuple):
    """A message that says what was done. The visitor stays on the page, which shows it."""

    text: str


class Redirect(NamedTuple):
    """A message that says what was done, and the page that the visitor is sent to."""

    path: str
    text: str


class Part(NamedTuple):
    """A part of the page that replaces the form which was sent."""

    template: str
    facts: dict[str, Any]


class RedirectTo(Exception):
    """Raised by a view to send the visitor to another page."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


Outcome = Toast | Redirect | Part
Do = Callable[[PageRequest, Mapping[str, str]], Awaitable[Outcome]]


class Action(NamedTuple):
    path: str
    do: Do
    right: Right
