"""What is the worst that a text, a list or an object can be? A mebibyte of each."""

from __future__ import annotations

from functools import cache

SIZE = 1 << 20
HEAD = 60_000  # characters that fit into the head of an HTTP request


def filled(unit: str, size: int = SIZE, *, start: str = "", end: str = "") -> str:
    return start + unit * ((size - len(start) - len(end)) // len(unit.encode())) + end


@cache
def texts(size: int = SIZE) -> dict[str, str]:
    """Kinds of text that a careless reader takes long for, or makes much of."""
    return {
        "letters": filled("a", size),
        "digits": filled("1", size),
        "quotes": filled('"\\', size, start="1e-9999"),
        "backslashes": filled("\\", size, start='"'),
        "escapes": filled("\\ud83c\\udf89", size, start='"', end='"'),
        "nested": filled("[", size),
        "lists": filled("[[]],", size, start="[", end="0]"),
        "objects": filled('{"":{}},', size, start="[", end="0]"),
        "numbers": filled("1e100,", size, start="[", end="0]"),
        "strings": filled('"ab",', size, start="[", end="0]"),
        "keys": "{" + ",".join(f'"{number:x}":0' for number in range(size // 10)) + "}",
        "commas": filled(",", size),
        "colons": filled("a:", size),
        "spaces": filled(" \t", size),
        "lines": filled("a: b\r\n", size),
        "zeros": filled("\0", size),
        "wide": filled("漢", size),
        "percents": filled("%25", size),
        "cron": filled("0-59/1,", size, end="1 * * * *"),
        "lengths": filled("1h", size),
        "slashes": filled("a/", size),
        "addresses": filled("10.0.0.1, ", size),
        "scopes": filled("submit:a,", size),
        "mixed": filled(',"漢', size),
    }


# Of inputs that say what they are, by their names: the kinds that reach furthest. All others get USUAL: what is dear to
# read as a number, and what is dear to split, to escape, to search and to keep.
USUAL = ("digits", "mixed")
WORST_BODIES = ("escapes", "nested", "objects", "keys")
OWN_KINDS = {
    "payload": ("quotes", "backslashes", "escapes", "nested", "lists", "objects", "digits", "keys", "numbers"),
    "result": ("quotes", "lists", "numbers", "strings"),
    "value": ("quotes", "lists", "numbers", "nested"),
    "retry": ("quotes", "lists", "numbers", "keys"),
    "error": ("zeros", "wide"),
    "traceback": ("zeros", "wide"),
    "cron": ("cron", "commas", "spaces"),
    "cron_expr": ("cron", "commas", "spaces"),
    "tz": ("slashes", "wide"),
    "url": ("slashes", "percents", "wide"),
    "headers": ("lines", "colons"),
    "tags": ("commas", "wide"),
    "delay": ("lengths", "digits"),
    "every": ("lengths", "digits"),
    "version": ("zeros", "wide"),
}


def kinds_of(name: str, *, every: bool) -> tuple[str, ...]:
    return tuple(texts(100)) if every else OWN_KINDS.get(name, USUAL)
