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
# A backslash escape of NUL or of a surrogate without its partner, as JSON text spells them.
_ESCAPED = re.compile(
    r"\\(?:\\|u0000|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOO_SMALL = re.compile(r"[0-9][eE]-[0-9]{4,}|\.[0-9]{16383}")  # of what JSON allows and jsonb does not


def check_name(what: str, name: object) -> str:
    """A name of a task, topic, worker or tag: 1 to 200 characters, none of them a control character."""
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be text, not {type(name).__name__}")
    if not name:
        raise InvalidName(f"{what} is empty: give it 1 to {NAME_LIMIT} characters")
    if len(name) > NAME_LIMIT:
        raise InvalidName(f"{what} {name[:20]!r}… has {len(name)} characters: at most {NAME_LIMIT} are allowed")
    if _CONTROL.search(name) or _UNSTORABLE.search(name):
        raise InvalidName(f"{what} {name!r} has control characters or lone surrogates: use printable text")
    return name


def check_topic(topic: object) -> str:
    name = check_name("topic", topic)
    if name == "*":
        raise InvalidName("topic '*' stands for all topics and cannot be the name of one")
    return name


def check_text(option: str, text: str, limit: int = NAME_LIMIT) -> str:
    """A free text of the caller's, a reason or a key: refused if Postgres cannot store it."""
    if not isinstance(text, str):
        raise InvalidOption(option, text, "it must be text")
    if _UNSTORABLE.search(text):
        raise InvalidOption(option, text[:40], "U+0000 and lone surrogates cannot be stored")
    if not 1 <= len(text) <= limit:
        raise InvalidOption(option, text[:40], f"it must have 1 to {limit} characters")
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
    check_storable(what, text)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None
    return text


def check_storable(what: str, text: str) -> str:
    """As `check_json`, for text that is surely JSON."""
    if len(text) > PAYLOAD_LIMIT // 4 and len(text.encode(errors="replace")) > PAYLOAD_LIMIT:
        raise InvalidPayload(
            f"{what} is larger than {PAYLOAD_LIMIT >> 20} MiB: store it elsewhere and submit a reference"
        )
    if _may_be_unstorable(text) and _is_unstorable(text):
        raise InvalidPayload(f"{what} contains U+0000 or a lone surrogate, which Postgres cannot store")
    # Looked for in all of it first, which is quick; but a string may read like one, and a UUID often does.
    if ("e-" in text or "E-" in text or len(text) > 16_000) and _TOO_SMALL.search(text) and _has_too_small(text):
        raise InvalidPayload(f"{what} contains a number with more decimals than Postgres can store")
    return text


def _has_too_small(text: str) -> bool:
    return _TOO_SMALL.search(_STRING.sub('""', text)) is not None


def _may_be_unstorable(text: str) -> bool:
    """Cheap, and false for nearly everything: this stands on the path of every report."""
    return not text.isascii() or "\\" in text or "\x00" in text


def _is_unstorable(text: str) -> bool:
    escapes = (found.group() for found in _ESCAPED.finditer(text))
    return bool(_UNSTORABLE.search(text)) or any(escape != "\\\\" and len(escape) == 6 for escape in escapes)


def clean_error(text: str, limit: int = ERROR_LIMIT) -> str:
    """Error text as it can be stored: replaced where it could not be, cut in the middle where too long."""
    text = _UNSTORABLE.sub("\ufffd", text)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"
