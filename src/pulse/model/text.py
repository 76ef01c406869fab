"""Which texts can the database store, and what happens to the others?

Postgres stores neither U+0000 nor lone surrogates. In a name or a payload they are refused, because the caller can
correct that. In the text of an error they are replaced, because recording a failure must never itself fail.
"""

from __future__ import annotations

import re

import msgspec

from pulse.model.errors import InvalidName, InvalidOption, InvalidPayload

NAME_LIMIT = 200
PAYLOAD_LIMIT = 1 << 20
PAYLOAD_WARNING = 1 << 18
ERROR_LIMIT = 16 << 10
LITERALS = frozenset({"null", "true", "false", "{}", "[]"})

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# NUL as JSON escapes it. An even number of backslashes may stand before it: those escape each other.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

_SMALL = 16_000  # characters: the objects decoded from such a text are few
_DIGITS = "0123456789"
_LONG = 300  # digits: more than a double has
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)  # checks all of it and builds no objects, which may be 30 times its size
# Takes linear time on well-formed JSON only: on other texts, each quote that is never closed is followed to the end.
# The quantifiers are possessive, since a place to backtrack to would be kept in memory for each escape of a string.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_EXPONENT = re.compile(r"[0-9][eE][+-]?[0-9]{2}")
_EXPONENTS = re.compile(r"[eE][+-]?([0-9]{2,9})")
_TOO_SMALL = re.compile(r"[eE]-[0-9]{4}")  # an exponent that JSON allows and jsonb does not
_TOO_LONG = re.compile(r"\.[0-9]{16383}")  # more decimals than jsonb allows
_SIGNS = str.maketrans(dict.fromkeys('[]{},:"', " "))


def check_name(what: str, name: object) -> str:
    """Return the name of a task, topic, worker or tag. It has 1 to 200 characters and no control characters."""
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be text, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"{what} must have 1 to {NAME_LIMIT} characters, not none")
    if len(name) > NAME_LIMIT:
        raise InvalidName(f"{what} must have at most {NAME_LIMIT} characters, not {len(name)} ({name[:20]!r}…)")
    if _CONTROL.search(name) or _UNSTORABLE.search(name):
        raise InvalidName(f"{what} must be printable text, not {name!r}")
    return name


def check_topic(topic: object) -> str:
    name = check_name("topic", topic)
    if name == "*":
        raise InvalidName("topic must not be '*', which stands for all topics")
    return name


def check_text(option: str, text: str, limit: int = NAME_LIMIT) -> str:
    """Return a text that the caller chose, such as a reason or a key. Refuse one that Postgres cannot store."""
    if not isinstance(text, str):
        raise InvalidOption(option, text, "be text")
    if not 1 <= len(text) <= limit:
        raise InvalidOption(option, len(text), f"have 1 to {limit} characters")
    if _UNSTORABLE.search(text):
        raise InvalidOption(option, text[:40], "be a text without U+0000 and lone surrogates, which cannot be stored")
    return text


def encode_json(what: str, value: object) -> str:
    """Return a value as JSON text, checked as `check_json` does."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from None
    return check_json(what, text)


def check_json(what: str, text: str) -> str:
    """Return JSON text that Postgres accepts as jsonb: well-formed, storable, and at most 1 MiB."""
    if text in LITERALS:  # what most tasks return
        return text
    _check_size(what, text)
    _check_characters(what, text)  # before the decoder, whose message would be less clear
    _check_syntax(what, text)
    return _check_jsonb(what, text)


def check_storable(what: str, text: str) -> str:
    """Return JSON text that one of Pulse's encoders wrote, checked as by `check_json` except for its syntax."""
    _check_size(what, text)
    _check_characters(what, text)
    return _check_jsonb(what, text)


def count_values(text: str) -> int:
    """Return an upper bound for the values in well-formed JSON, and so for the objects decoded from it."""
    if _count_signs(text) > _SMALL:
        text = _STRING.sub('""', text)  # signs inside strings separate nothing
    return _count_signs(text)


def _count_signs(text: str) -> int:
    return 1 + sum(map(text.count, ",[{:"))


def _check_size(what: str, text: str) -> None:
    if len(text) > PAYLOAD_LIMIT // 4 and len(text.encode(errors="replace")) > PAYLOAD_LIMIT:
        raise InvalidPayload(
            f"{what} is larger than {PAYLOAD_LIMIT >> 20} MiB: store it elsewhere and submit a reference"
        )


def _check_syntax(what: str, text: str) -> None:
    try:
        msgspec.json.decode(text) if len(text) <= _SMALL else _SYNTAX.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None


def _check_characters(what: str, text: str) -> None:
    if not text.isascii() and _UNSTORABLE.search(text):
        raise _unstorable(what)


def _check_jsonb(what: str, text: str) -> str:
    """Refuse characters and numbers that JSON allows and jsonb does not."""
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        raise _unstorable(what)
    # The quick search looks into strings, too. A string may look like a number, and a UUID often does.
    if _may_have_odd_numbers(text):
        _check_syntax(what, text)  # perhaps a second time: _STRING takes linear time on well-formed text only
        _check_numbers(what, _STRING.sub('""', text))
    return text


def _unstorable(what: str) -> InvalidPayload:
    return InvalidPayload(f"{what} contains U+0000 or a lone surrogate, which Postgres cannot store")


def _may_have_odd_numbers(text: str) -> bool:
    """Tell quickly whether a number may be too small or too long. Every report goes through here; few have such."""
    if len(text) > _SMALL:
        return _EXPONENT.search(text) is not None or _has_long_number(text)
    return ("e-" in text or "E-" in text) and _TOO_SMALL.search(text) is not None  # too short for too many decimals


def _has_long_number(text: str) -> bool:
    """Tell whether the text has 300 digits in a row, by reading every 300th character: one of them is in such a row."""
    for place in range(_LONG - 1, len(text), _LONG):
        if text[place] in _DIGITS:
            before, after = text[place - _LONG + 1 : place], text[place : place + _LONG]
            if len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS)) >= _LONG:
                return True
    return False


def _check_numbers(what: str, bare: str) -> None:
    """Refuse numbers that Postgres could not store or a worker could not read. `bare` is JSON without its strings."""
    if _TOO_SMALL.search(bare) or _TOO_LONG.search(bare):
        raise InvalidPayload(f"{what} contains a number with more decimals than Postgres can store")
    # jsonb writes 1e100 with its 101 digits: many such numbers would make a payload too large for its message.
    if len(bare) + sum(map(int, _EXPONENTS.findall(bare))) > PAYLOAD_LIMIT:
        raise InvalidPayload(f"{what} is larger than {PAYLOAD_LIMIT >> 20} MiB with its numbers written out")
    numbers = set(bare.translate(_SIGNS).split())  # with true, false and null among them, which always decode
    try:
        msgspec.json.decode(f"[{','.join(numbers)}]")
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None


def clean_error(text: str, limit: int = ERROR_LIMIT) -> str:
    """Return the text of an error as it can be stored: cut in the middle if it is too long, then with characters
    that cannot be stored replaced. Replacing them first would take seconds for twenty megabytes, on the event loop."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"
    return _UNSTORABLE.sub("\ufffd", text)
