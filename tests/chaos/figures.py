"""How large is a run, by which seed, and what came out of it? One table at the end."""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("PULSE_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
SCALE = float(os.environ.get("PULSE_CHAOS_SCALE") or 1)  # 0.05: a twentieth of everything, to try something out

TABLE: dict[str, list[tuple[str, str]]] = {}  # by test: what, and how much


def scaled(number: int) -> int:
    return max(1, round(number * SCALE))


def new_random(title: str) -> random.Random:
    """The same for the same seed, whichever other tests are run. What processes make of it is theirs."""
    return random.Random(f"{SEED} {title}")


def add(title: str, what: str, value: object) -> None:
    TABLE.setdefault(title, []).append((what, _spell(value)))


def lines() -> list[str]:
    width = max((len(what) for rows in TABLE.values() for what, _ in rows), default=0)
    found = []
    for title, rows in TABLE.items():
        found += [title, *(f"  {what:<{width}}  {value:>8}" for what, value in rows)]
    return found


def _spell(value: object) -> str:
    match value:
        case float():
            return f"{value:.2f}"
        case int():
            return f"{value:,}"
    return str(value)
