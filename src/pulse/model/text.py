"""Which texts may enter the database, and what happens to those that may not?

Postgres stores neither U+0000 nor lone surrogates. In a name or a payload they are refused, because the caller
can mend them. In an error's text they are replaced, because recording a failure must never itself fail.
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
# An escape of NUL as JSON text spells it: behind an even number of backslashes, which are escapes of themselves.
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

_SMALL = 16_000  # characters: what is built of such a text is small, too
_DIGITS = "0123456789"
_LONG = 300  # digits: more than a double has
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)  # reads all of it, and builds nothing: that may be 30 times its size
# Linear on well-formed JSON only: elsewhere each quote without an end is followed to the end of the text. Possessive,
# since a way back from each escape of a long string would be kept in memory.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_EXPONENT = re.compile(r"[0-9][eE][+-]?[0-9]{2}")
_EXPONENTS = re.compile(r"[eE][+-]?([0-9]{2,9})")
_TOO_SMALL = re.compile(r"[eE]-[0-9]{4}")  # of what JSON allows and jsonb does not: exponents,
_TOO_LONG = re.compile(r"\.[0-9]{16383}")  # and decimals
_SIGNS = str.maketrans(dict.fromkeys('[]{},:"', " "))


def check_name(what: str, name: object) -> str:
    """A name of a task, topic, worker or tag: 1 to 200 characters, none of them a control character."""
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
    """A free text of the caller's, a reason or a key: refused if Postgres cannot store it."""
    if not isinstance(text, str):
        raise InvalidOption(option, text, "be text")
    if not 1 <= len(text) <= limit:
        raise InvalidOption(option, text[:40], f"have 1 to {limit} characters")
    if _UNSTORABLE.search(text):
        raise InvalidOption(option, text[:40], "be without U+0000 and lone surrogates, which cannot be stored")
    return text


def encode_json(what: str, value: object) -> str:
    """The JSON text of a value, checked as `check_json` does."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from None
    return check_json(what, text)


def check_json(what: str, text: str) -> str:
    """JSON text that Postgres will take as jsonb: well formed, storable, and at most 1 MiB."""
    if text in LITERALS:  # what most tasks return
        return text
    _check_size(what, text)
    _check_characters(what, text)  # before the decoder, which cannot say it as well
    _check_syntax(what, text)
    return _check_jsonb(what, text)


def check_storable(what: str, text: str) -> str:
    """As `check_json`, for text that an encoder of ours has written."""
    _check_size(what, text)
    _check_characters(what, text)
    return _check_jsonb(what, text)


def count_values(text: str) -> int:
    """How many values well-formed JSON has, at most: what is built of it is that many objects."""
    if _count_signs(text) > _SMALL:
        text = _STRING.sub('""', text)  # where they mean nothing
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
    """Refuse what JSON allows and jsonb does not."""
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        raise _unstorable(what)
    # Looked for in all of it first, which is quick; but a string may read like a number, and a UUID often does.
    if _may_have_odd_numbers(text):
        _check_syntax(what, text)  # again, perhaps: what follows is linear on well-formed text only
        _check_numbers(what, _STRING.sub('""', text))
    return text


def _unstorable(what: str) -> InvalidPayload:
    return InvalidPayload(f"{what} contains U+0000 or a lone surrogate, which Postgres cannot store")


def _may_have_odd_numbers(text: str) -> bool:
    """Cheap, and false for nearly everything: this stands on the path of every report."""
    if len(text) > _SMALL:
        return _EXPONENT.search(text) is not None or _has_long_number(text)
    return ("e-" in text or "E-" in text) and _TOO_SMALL.search(text) is not None  # of decimals it has too few


def _has_long_number(text: str) -> bool:
    """Only every 300th character is looked at: a run of as many digits has one of them."""
    for at in range(_LONG - 1, len(text), _LONG):
        if text[at] in _DIGITS:
            before, after = text[at - _LONG + 1 : at], text[at : at + _LONG]
            if len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS)) >= _LONG:
                return True
    return False


def _check_numbers(what: str, bare: str) -> None:
    """Refuse numbers that Postgres could not store or a worker could not read; `bare` has no strings any more."""
    if _TOO_SMALL.search(bare) or _TOO_LONG.search(bare):
        raise InvalidPayload(f"{what} contains a number with more decimals than Postgres can store")
    # jsonb writes 1e100 out, as 101 digits: a payload of such would be too large for the message that brings it.
    if len(bare) + sum(map(int, _EXPONENTS.findall(bare))) > PAYLOAD_LIMIT:
        raise InvalidPayload(f"{what} is larger than {PAYLOAD_LIMIT >> 20} MiB with its numbers written out")
    numbers = set(bare.translate(_SIGNS).split())  # and words, which can be read in any case
    try:
        msgspec.json.decode(f"[{','.join(numbers)}]")
    except msgspec.DecodeError as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None


def clean_error(text: str, limit: int = ERROR_LIMIT) -> str:
    """Error text as it can be stored: cut in the middle where too long, replaced where it could not be. In this order:
    to look for the characters in twenty megabytes takes seconds, and the event loop waits for it."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"
    return _UNSTORABLE.sub("\ufffd", text)
