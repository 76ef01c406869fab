"""An app whose handlers get what nobody should see, and fail with all of it in their words."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from typing import Any

from pulse import Pulse

app = Pulse()
seen: list[Any] = []  # by handlers in this process


class Plan(Enum):
    FREE = "free"
    PAID = "paid"


def decline(password: str, card: dict[str, Any], people: list[Any], pin: int, user: str) -> None:
    known: dict[str, str] = {}
    try:
        known[password]
    except KeyError as error:
        error.add_note(f"while charging {user} with {card!r}")
        raise RuntimeError(f"declined {password!r} of {user}: {json.dumps(people)}, pin {pin}") from error


@app.task(name="secret.on_the_loop")
async def on_the_loop(password: str, card: dict[str, Any], people: list[Any], pin: int, user: str) -> None:
    seen.append((password, card, people, pin))
    decline(password, card, people, pin, user)


@app.task(name="secret.in_a_thread")
def in_a_thread(password: str, card: dict[str, Any], people: list[Any], pin: int, user: str) -> None:
    seen.append((password, card, people, pin))
    decline(password, card, people, pin, user)


@app.task(name="secret.in_a_process", executor="process")
def in_a_process(password: str, card: dict[str, Any], people: list[Any], pin: int, user: str) -> None:
    decline(password, card, people, pin, user)


@app.task(name="secret.dying", executor="process")
def dying(password: str, card: dict[str, Any], people: list[Any], pin: int, user: str) -> None:
    sys.stderr.write(f"last words: {password}\n")
    sys.stderr.flush()
    os._exit(3)


@app.task(name="secret.ill_typed")
async def ill_typed(password: Plan, card: Any, people: Any, pin: Any, user: str) -> None:
    raise AssertionError("never called")
