"""Which fields of payloads are hidden from people, and how are their values masked in JSON and in error texts?

`password` marks a field of that name at any depth; `card.number` marks a field `number` directly inside a field `card`,
at any depth, where lists between them do not count. Upper and lower case are the same. JSON is read token by token and
never decoded: it may be huge or deeper than any stack, and the rest of it must stay as it was written, to the last
digit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from urllib.parse import quote, quote_plus

from pulse.model.errors import InvalidPayload, InvalidSettings
from pulse.model.text import PAYLOAD_LIMIT

MASK = "[redacted]"
MASKED = json.dumps(MASK)
MAX_NAMES = 1_000
LONGEST_NAME = 200
SHORTEST = 4  # characters of a value: shorter ones would be found everywhere
MAX_VALUES = 1_000  # in one payload: if it has more, a text about it is hidden as a whole
LONGEST_TEXT = 1 << 16  # characters, half of them from each end: longer than any error that is stored
MAX_CHARACTERS = 1 << 16  # of all values in one payload; a key in PEM has a few thousand
MAX_TOKENS = 50_000  # of a payload whose values are collected: a fiftieth of a second
MAX_COMPARED = 20_000_000  # forms times characters of one text, some 20 ms; ten times that for all texts of a payload
MAX_CACHED = 256  # masked texts that are kept
FORM_COST = 1_000  # characters that could be compared in the time that searching for one form takes at least
PIECE = 16  # characters at an end of a long value by which a text is found to quote a part of it
LONGEST_NUMBER = 100

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_COLON = re.compile(r"\s*:")
_WRONG = re.compile(r"[\x00-\x1f\x7f-\x9f*\[\]\"']")


class _TooManyValues(Exception):
    """A payload with more marked values than it makes sense to search for, so that texts are hidden as a whole."""


class Redaction:
    """Masks the fields of these names. Without names it changes nothing."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(check_field(name).casefold() for name in names))
        if len(self.names) > MAX_NAMES:
            raise InvalidSettings(f"redact must have at most {MAX_NAMES} names, not {len(self.names)}")
        self._by_last: dict[str, list[str]] = {}
        for name in self.names:
            self._by_last.setdefault(name.rpartition(".")[2], []).append(f".{name}")
        self._cache: dict[bytes, str] = {}  # recently masked texts: lists are read again and again
        self._longest = max(map(len, self.names), default=0) + 1  # characters at the end of a key that decide
        self._depth = max((name.count(".") + 1 for name in self.names), default=0)

    def __bool__(self) -> bool:
        return bool(self.names)

    def json(self, text: str) -> str:
        """Return JSON text with the mask in place of every marked value, whatever type it has."""
        spans = self._spans(text)
        if not spans:
            return text
        parts, copied = [], 0
        for start, end in spans:
            parts += [text[copied:start], MASKED]
            copied = end
        masked = "".join([*parts, text[copied:]])
        is_too_large = len(masked) > len(text) and len(masked.encode(errors="replace")) > PAYLOAD_LIMIT
        return MASKED if is_too_large else masked  # readers expect no more than a payload may have

    def text(self, text: str, payload: str) -> str:
        """Return an error or a traceback with the marked values of its payload masked: those quoted literally, escaped
        in one of the usual ways, or cut."""
        if not text or not self.names or not self._may_have_marked(payload):
            return text
        key = _digest(text) + _digest(payload)
        if (masked := self._cache.get(key)) is None:
            masked = self.text_masker(payload)(text)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[key] = masked
        return masked

    def text_masker(self, payload: str) -> Callable[[str], str]:
        """Return a function that masks texts about one payload, which is read only once."""
        try:
            values = self._values(payload)
        except _TooManyValues:
            return _hide_all
        return _TextMasker(values) if values else _unchanged

    def _values(self, payload: str) -> list[str]:
        spans = self._spans(payload, max_tokens=MAX_TOKENS)
        scalars = (value for start, end in spans for value in _scalars(payload[start:end]))
        repeated = list(islice(scalars, 10 * MAX_VALUES + 1))
        values = list(dict.fromkeys(repeated))
        characters = sum(map(len, values))
        if len(repeated) > 10 * MAX_VALUES or len(values) > MAX_VALUES or characters > MAX_CHARACTERS:
            raise _TooManyValues
        return values

    def refuse_masked(self, payload: str, *, is_edit: bool = False) -> None:
        """Refuse a payload with the mask as a marked value: it would overwrite the value that the mask stands for."""
        if self and MASK in payload and any(payload[start:end] == MASKED for start, end in self._spans(payload)):
            keep = "leave payload out to keep the present one, or give the value itself"
            raise InvalidPayload(
                f"payload must not have {MASKED} in a redacted field, where it only stands for a hidden value: "
                f"{keep if is_edit else 'give the value itself'}"
            )

    def _spans(self, text: str, *, max_tokens: int | None = None) -> list[tuple[int, int]]:
        """Return where the marked values are, from first to last. Raise _TooManyValues if there are more tokens."""
        if not self.names or not self._may_have_marked(text):
            return []
        try:
            return list(self._walk(text, max_tokens))
        except IndexError:  # a bracket is closed that was not opened: a text that is not JSON is hidden as a whole
            return [(0, len(text))]

    def _may_have_marked(self, text: str) -> bool:
        """Tell quickly whether a payload may have marked fields, which most do not."""
        folded = text.casefold()
        return "\\u" in folded or any(last in folded for last in self._by_last)  # a name may be written in escapes

    def _walk(self, text: str, max_tokens: int | None = None) -> Iterator[tuple[int, int]]:
        position = _Position(self._longest)
        began, depth, is_next = -1, 0, False
        for number, token in enumerate(_TOKEN.finditer(text)):
            if number == max_tokens:
                raise _TooManyValues
            first = text[token.start()]
            if is_next:
                began, is_next = token.start(), False
            if began < 0:
                position.move(first, token)
                is_next = first == ":" and self._is_marked(position.path)
                continue
            depth += (first in "{[") - (first in "}]")
            if depth == 0:
                yield began, token.end()
                began = -1
        if began >= 0:  # the text ends in the middle of a marked value
            yield began, len(text)

    def _is_marked(self, path: list[str]) -> bool:
        names = self._by_last.get(path[-1].rpartition(".")[2])
        if names is None:
            return False
        whole = "." + ".".join(path[-self._depth :])
        return any(whole.endswith(name) for name in names)


NO_REDACTION = Redaction()


@lru_cache(maxsize=16)
def read_redaction(names: str) -> Redaction:
    """Return the redaction of the setting's names, which stand between commas."""
    return Redaction(name.strip() for name in names.split(",") if name.strip())


def check_field(name: object) -> str:
    must = "redact must have names of fields, such as password, or of fields inside another, such as card.number"
    if not isinstance(name, str):
        raise InvalidSettings(f"{must}, not {type(name).__name__}")
    is_path = all(part.strip() for part in name.split(".")) and not name.startswith("$.")
    if not is_path or _WRONG.search(name) or len(name) > LONGEST_NAME:
        raise InvalidSettings(f"{must}, not {name[:60]!r} (lists need no brackets)")
    return name


class _Position:
    """The position of a reader in a JSON text: the keys that lead to it."""

    def __init__(self, longest_key: int) -> None:
        self._longest_key = longest_key
        self.path: list[str] = []  # for each open object, the key whose value is being read
        self._open: list[str] = []
        self._is_key_next = False

    def move(self, first: str, token: re.Match[str]) -> None:
        match first:
            case "{" | "[":
                self._enter(first)
            case "}" | "]":
                self._leave()
            case ",":
                self._is_key_next = self._open[-1] == "{"
            case '"' if self._is_key_next:
                self.path[-1] = _read(token[0]).casefold()[-self._longest_key :]
                self._is_key_next = False

    def _enter(self, first: str) -> None:
        self._open.append(first)
        self._is_key_next = first == "{"
        if self._is_key_next:
            self.path.append("")

    def _leave(self) -> None:
        self._is_key_next = False
        if self._open.pop() == "{":
            self.path.pop()


# --- texts about one payload


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def hide_in(text: str, values: Iterable[str]) -> str:
    """Return the text with these values masked: those quoted literally, escaped in one of the usual ways, or cut."""
    return _TextMasker(values)(text)


def _unchanged(text: str) -> str:
    return text


def _hide_all(text: str) -> str:
    return text and MASK


class _TextMasker:
    """Masks the values of one payload in texts. The work for one text and for all of them is limited; a text beyond
    the limits is hidden as a whole."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        self._forms = sorted(forms, key=len, reverse=True)
        self._left = 10 * MAX_COMPARED

    def __call__(self, text: str) -> str:
        cost = len(self._forms) * (min(len(text), LONGEST_TEXT) + FORM_COST)
        self._left -= cost
        if text and (cost > MAX_COMPARED or self._left < 0):
            return MASK
        if len(text) <= LONGEST_TEXT:
            return _mask_forms(text, self._forms)
        half = LONGEST_TEXT // 2  # each is masked alone: a value that the cut divides is found at its ends
        cut = f"\n… {len(text) - 2 * half} characters cut …\n"
        return _mask_forms(text[:half], self._forms) + cut + _mask_forms(text[-half:], self._forms)


# --- values, and the forms in which a text may show them


def _scalars(text: str) -> Iterator[str]:
    """Yield the texts and numbers in a JSON value, but not the names of its fields, nor true, false and null."""
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first == '"' and not _COLON.match(text, token.end()):
            yield _read(token[0])
        elif first in "-0123456789":
            yield from _numbers(token[0])


def _numbers(text: str) -> Iterator[str]:
    """Yield a number as it is written in JSON, and as Python would show it."""
    yield text
    if len(text) > LONGEST_NUMBER:
        return
    try:
        number = float(text)
        yield repr(number)
        if number.is_integer():
            whole = int(text) if text.lstrip("-").isdigit() else int(number)
            yield from (str(whole), f"{whole:,}")
    except (ValueError, OverflowError):
        return


def _read(token: str) -> str:
    """Return the text of a JSON string."""
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]


def _forms(value: str) -> Iterator[str]:
    yield value
    if value.isascii() and value.isalnum():  # every way of quoting leaves it unchanged
        return
    for form in _escaped(value):
        yield form
        yield from _escaped(form)  # escaped twice, as in an error that quotes another
    yield from (ascii(value)[1:-1], repr(value.encode(errors="replace"))[2:-1])
    yield from (quote(value, safe="", errors="replace"), quote(value, errors="replace"))
    yield quote_plus(value, errors="replace")
    if "\n" in value:  # for example a key in PEM, whose lines a traceback may indent
        yield from (line.strip() for line in value.splitlines() if len(line.strip()) > SHORTEST)


def _escaped(text: str) -> Iterator[str]:
    """Yield the text as JSON and Python write it between quotes."""
    yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
    yield repr(f"\"'{text}")[4:-1]  # as within a text that has quotes of both kinds


def _mask_forms(text: str, forms: Sequence[str]) -> str:
    """Return the text with all of these forms masked. They are sorted, the longest first."""
    for form in forms:
        text = text.replace(form, MASK)
        if len(text) > 4 * LONGEST_TEXT:  # a value that is a part of the mask makes the text grow again and again
            return MASK
    for form in forms:  # after all whole forms, since two forms of a value may begin with the same characters
        text = _mask_parts(text, form)
    return text


def _mask_parts(text: str, form: str) -> str:
    """Return the text with the beginnings and ends of a form masked, where the text quotes only a part of it."""
    if len(form) > PIECE:
        text = _mask_beginnings(text, form, MASK)
        if form[-PIECE:] in text:
            text = _mask_beginnings(text[::-1], form[::-1], MASK[::-1])[::-1]
    if form[:SHORTEST] not in text[-PIECE:] and form[-SHORTEST:] not in text[:PIECE]:
        return text  # true of nearly all texts
    for size in range(min(len(form) - 1, PIECE), SHORTEST - 1, -1):  # the text itself may have been cut within a value
        if text.endswith(form[:size]):
            text = text[:-size] + MASK
        if text.startswith(form[-size:]):
            text = MASK + text[size:]
    return text


def _mask_beginnings(text: str, form: str, mask: str) -> str:
    """Return the text with every beginning of the form masked that has at least PIECE characters."""
    piece, parts, copied = form[:PIECE], [], 0
    while (start := text.find(piece, copied)) >= 0:
        size = PIECE
        while size < len(form) and text[start + size : start + size + 1] == form[size]:
            size += 1
        parts += [text[copied:start], mask]
        copied = start + size
    return "".join([*parts, text[copied:]])
