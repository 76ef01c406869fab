"""Which fields of payloads are nobody's to see, and how are they kept out of what people read?

`password` marks a field of that name at any depth; `card.number` a field `number` right inside a field `card`, at any
depth, lists between them not counted. Letters stand for both cases. JSON is gone through token by token and never
built: it may be huge or deeper than any stack, and all else in it must stay as it was written, to the last digit.
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
SHORTEST = 4  # characters of a value: anything shorter would be found everywhere
MAX_VALUES = 1_000  # of one payload: beyond that, a text is hidden as a whole
LONGEST_TEXT = 1 << 16  # characters, half of them from each end: more than is kept of any error
MAX_CHARACTERS = 1 << 16  # of the values of one payload; a key in PEM has a few thousand
MAX_TOKENS = 50_000  # of a payload whose values are looked for: a fiftieth of a second
MAX_COMPARED = 20_000_000  # forms times characters of one text, some 20 ms; tenfold for all of one payload
MAX_SEEN = 256  # texts that are known masked
FORM_COST = 1_000  # characters that could be compared in the time that a form takes at all
PIECE = 16  # characters of a long value by which it is known where a text quotes only a part of it
LONGEST_NUMBER = 100

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_COLON = re.compile(r"\s*:")
_WRONG = re.compile(r"[\x00-\x1f\x7f-\x9f*\[\]\"']")


class _TooMuch(Exception):
    """There is more to look for than a text is worth: it is hidden as a whole."""


class Redaction:
    """The names of fields, and what follows from them. Without names it leaves everything as it is."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(check_field(name).casefold() for name in names))
        if len(self.names) > MAX_NAMES:
            raise InvalidSettings(f"redact: {len(self.names)} names are too many: at most {MAX_NAMES} are allowed")
        self._by_last: dict[str, list[str]] = {}
        for name in self.names:
            self._by_last.setdefault(name.rpartition(".")[2], []).append(f".{name}")
        self._seen: dict[bytes, str] = {}  # what was masked lately: lists are read again and again
        self._longest = max(map(len, self.names), default=0) + 1  # of a key, from its end, that says if it is marked
        self._depth = max((name.count(".") + 1 for name in self.names), default=0)

    def __bool__(self) -> bool:
        return bool(self.names)

    def json(self, text: str) -> str:
        """JSON text with the mask in place of every marked value, of whatever kind it is."""
        spans = self._spans(text)
        if not spans:
            return text
        parts, copied = [], 0
        for start, end in spans:
            parts += [text[copied:start], MASKED]
            copied = end
        masked = "".join([*parts, text[copied:]])
        is_too_large = len(masked) > len(text) and len(masked.encode(errors="replace")) > PAYLOAD_LIMIT
        return MASKED if is_too_large else masked  # whoever reads it expects no more than a payload may have

    def text(self, text: str, payload: str) -> str:
        """An error or a traceback without the marked values of the payload that it is about: quoted as they are,
        escaped in one of the usual ways, or cut."""
        if not text or not self.names or not self._may_have_some(payload):
            return text
        key = _digest(text) + _digest(payload)
        if (known := self._seen.get(key)) is None:
            known = self.texts_of(payload)(text)
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen[key] = known
        return known

    def texts_of(self, payload: str) -> Callable[[str], str]:
        """Return what masks many texts about one payload, which is gone through once."""
        try:
            values = self._values(payload)
        except _TooMuch:
            return _hidden
        return _Texts(values) if values else _as_it_is

    def _values(self, payload: str) -> list[str]:
        spans = self._spans(payload, most=MAX_TOKENS)
        found = (value for start, end in spans for value in _scalars(payload[start:end]))
        several = list(islice(found, 10 * MAX_VALUES + 1))
        values = list(dict.fromkeys(several))
        characters = sum(map(len, values))
        if len(several) > 10 * MAX_VALUES or len(values) > MAX_VALUES or characters > MAX_CHARACTERS:
            raise _TooMuch
        return values

    def refuse_masked(self, payload: str, *, is_edit: bool = False) -> None:
        """Refuse the mask in place of a marked value: it was read from us, and would be written over the real one."""
        if self and MASK in payload and any(payload[start:end] == MASKED for start, end in self._spans(payload)):
            instead = "leave payload out to keep what is there, or give the value itself"
            raise InvalidPayload(
                f"payload has {MASKED} in a field that is redacted, which hides a value and is none: "
                f"{instead if is_edit else 'give the value itself'}"
            )

    def _spans(self, text: str, *, most: int | None = None) -> list[tuple[int, int]]:
        """Return where the marked values are, from first to last. Raises _TooMuch for more tokens than that."""
        if not self.names or not self._may_have_some(text):
            return []
        try:
            return list(self._walk(text, most))
        except IndexError:  # it closes what it has not opened: what is no JSON is hidden as a whole
            return [(0, len(text))]

    def _may_have_some(self, text: str) -> bool:
        """Cheap, and false for most payloads."""
        folded = text.casefold()
        return "\\u" in folded or any(last in folded for last in self._by_last)  # a name may be spelt in escapes

    def _walk(self, text: str, most: int | None = None) -> Iterator[tuple[int, int]]:
        place = _Place(self._longest)
        began, depth, is_next = -1, 0, False
        for number, token in enumerate(_TOKEN.finditer(text)):
            if number == most:
                raise _TooMuch
            first = text[token.start()]
            if is_next:
                began, is_next = token.start(), False
            if began < 0:
                place.move(first, token)
                is_next = first == ":" and self._is_marked(place.path)
                continue
            depth += (first in "{[") - (first in "}]")
            if depth == 0:
                yield began, token.end()
                began = -1
        if began >= 0:  # it ends in the middle of a marked value
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
    """As the setting has them: names between commas."""
    return Redaction(name.strip() for name in names.split(",") if name.strip())


def check_field(name: object) -> str:
    wanted = "write the name of a field, such as password, or of a field inside another, such as card.number"
    if not isinstance(name, str):
        raise InvalidSettings(f"redact: {type(name).__name__} is not a name: {wanted}")
    is_path = all(part.strip() for part in name.split(".")) and not name.startswith("$.")
    if not is_path or _WRONG.search(name) or len(name) > LONGEST_NAME:
        raise InvalidSettings(f"redact: {name[:60]!r} is not a name: {wanted}; lists need no brackets")
    return name


class _Place:
    """Where in a JSON text one is."""

    def __init__(self, longest_key: int) -> None:
        self._longest_key = longest_key
        self.path: list[str] = []  # of each open object, the key whose value is being read
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
    """Return the text without these values: as they are, escaped in one of the usual ways, or cut."""
    return _Texts(values)(text)


def _as_it_is(text: str) -> str:
    return text


def _hidden(text: str) -> str:
    return text and MASK


class _Texts:
    """Masks texts by the values of one payload. What would take too long is hidden: the work of one text is bounded,
    and that of all of them together."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {form for value in values for form in _forms(value) if len(form) >= SHORTEST}
        self._forms = sorted(found, key=len, reverse=True)
        self._left = 10 * MAX_COMPARED

    def __call__(self, text: str) -> str:
        cost = len(self._forms) * (min(len(text), LONGEST_TEXT) + FORM_COST)
        self._left -= cost
        if text and (cost > MAX_COMPARED or self._left < 0):
            return MASK
        if len(text) <= LONGEST_TEXT:
            return _without(text, self._forms)
        half = LONGEST_TEXT // 2  # each for itself: what was cut in two is found at its ends
        cut = f"\n… {len(text) - 2 * half} characters cut …\n"
        return _without(text[:half], self._forms) + cut + _without(text[-half:], self._forms)


# --- values, and how a text may show them


def _scalars(text: str) -> Iterator[str]:
    """The texts and numbers of a JSON value; not the names of its fields, nor true, false and null."""
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first == '"' and not _COLON.match(text, token.end()):
            yield _read(token[0])
        elif first in "-0123456789":
            yield from _numbers(token[0])


def _numbers(text: str) -> Iterator[str]:
    """As JSON has it, and as Python would show it."""
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
    """A text in quotes, whatever is in it."""
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        return token[1:-1]


def _forms(value: str) -> Iterator[str]:
    yield value
    if value.isascii() and value.isalnum():  # which looks the same everywhere
        return
    for form in _escaped(value):
        yield form
        yield from _escaped(form)  # once more: an error that quotes another
    yield from (ascii(value)[1:-1], repr(value.encode(errors="replace"))[2:-1])
    yield from (quote(value, safe="", errors="replace"), quote(value, errors="replace"))
    yield quote_plus(value, errors="replace")
    if "\n" in value:  # such as a key in PEM, which a traceback may indent
        yield from (line.strip() for line in value.splitlines() if len(line.strip()) > SHORTEST)


def _escaped(text: str) -> Iterator[str]:
    """As JSON and Python write it between quotes."""
    yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
    yield repr(f"\"'{text}")[4:-1]  # as a part of what has quotes of both kinds


def _without(text: str, forms: Sequence[str]) -> str:
    """Without any of them, the longest first."""
    for form in forms:
        text = text.replace(form, MASK)
        if len(text) > 4 * LONGEST_TEXT:  # values that are found in the mask itself make it grow and grow
            return MASK
    for form in forms:  # after all of the whole ones: two forms of a value may begin alike
        text = _without_pieces(text, form)
    return text


def _without_pieces(text: str, form: str) -> str:
    """Without the beginnings and ends of it that a text has which quotes it in part."""
    if len(form) > PIECE:
        text = _without_heads(text, form, MASK)
        if form[-PIECE:] in text:
            text = _without_heads(text[::-1], form[::-1], MASK[::-1])[::-1]
    if form[:SHORTEST] not in text[-PIECE:] and form[-SHORTEST:] not in text[:PIECE]:
        return text  # as nearly always
    for size in range(min(len(form) - 1, PIECE), SHORTEST - 1, -1):  # where the text itself was cut
        if text.endswith(form[:size]):
            text = text[:-size] + MASK
        if text.startswith(form[-size:]):
            text = MASK + text[size:]
    return text


def _without_heads(text: str, form: str, mask: str) -> str:
    """Without what begins like it, for as far as it does."""
    head, parts, copied = form[:PIECE], [], 0
    while (found := text.find(head, copied)) >= 0:
        size = PIECE
        while size < len(form) and text[found + size : found + size + 1] == form[size]:
            size += 1
        parts += [text[copied:found], mask]
        copied = found + size
    return "".join([*parts, text[copied:]])
