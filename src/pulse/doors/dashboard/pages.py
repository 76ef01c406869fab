"""What is a page made of, and what can be done on one?

A `View` is a path, a template, and the facts that fill it. Both the page and the stream that keeps it fresh are made
from it, so they cannot differ. An `Action` is what a form posts to: it does one thing and says what it did. Nothing is
reachable that is not in one of the two tables of `app.py`, each line of which names the right it needs.
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
    """Someone looks at something: who, at what, and by which way it is found."""

    served: Services
    caller: Caller
    path: Mapping[str, str] = field(default_factory=dict)  # what the route's pattern found, decoded
    query: Mapping[str, str] = field(default_factory=dict)

    def may(self, right: Right, topic: str | None = None) -> bool:
        return self.caller.may(right, topic)

    def given(self, name: str) -> str | None:
        """A value of the query; an empty field of a form is none."""
        value = self.query.get(name, "").strip()
        if len(value) > LONGEST_FIELD:
            raise InvalidInput(f"{name} has {len(value):,} characters: at most {LONGEST_FIELD:,} are allowed")
        return value or None


# What fills the template. `title` is the page's; `status`, if there, is that of the answer.
Facts = Callable[[PageRequest], Awaitable[dict[str, Any]]]


class View(NamedTuple):
    path: str
    template: str
    facts: Facts
    right: Right
    every: float = 2.0  # seconds between two looks at the database while somebody watches
    is_live: bool = True
    is_part: bool = False  # of a page: answered without the frame around it


class Toast(NamedTuple):
    """What was done. The page stays, and shows it."""

    text: str


class Redirect(NamedTuple):
    """What was done, and where one should look now."""

    path: str
    text: str


class Part(NamedTuple):
    """A part of the page as it is now, which takes the place of the form that was sent."""

    template: str
    facts: dict[str, Any]


class RedirectTo(Exception):
    """What was asked for has a page of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


Outcome = Toast | Redirect | Part
Do = Callable[[PageRequest, Mapping[str, str]], Awaitable[Outcome]]


class Action(NamedTuple):
    path: str
    do: Do
    right: Right
