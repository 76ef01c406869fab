"""How are the fields of a form read and drawn? As people write them: local times, and lengths such as 1h30m.

A field that was left as it was drawn counts as unchanged, even if its text does not hold the whole value, such as
fractions of seconds or invisible characters.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pulse.doors.dashboard.formatting import visible
from pulse.doors.http.errors import HttpRefusal
from pulse.model.errors import InvalidInput, InvalidOption
from pulse.model.text import check_json
from pulse.timing.duration import InvalidDuration, format_duration, parse_duration
from pulse.timing.zones import UnknownZone, check_zone, load_zone

if TYPE_CHECKING:
    from starlette.requests import Request

Form = Mapping[str, str]

MAX_FIELDS = 200
FORM_LIMIT = 1 << 20  # bytes of a form as it is sent, where a quote or a comma takes three
SIGN_IN_LIMIT = 10_000
_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


async def read_form(request: Request, limit: int) -> Form:
    """Return the last value of each field. A form over the limit is refused before any of it is decoded."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise HttpRefusal(413, "too_large", _too_large(limit))
    try:
        return _decode_form(bytes(body))
    except ValueError:
        raise InvalidInput("the body must be a form: fields and their values, URL-encoded") from None


def _too_large(limit: int) -> str:
    if limit < FORM_LIMIT:
        return f"a form of this page must have at most {limit:,} bytes"
    return (
        f"a form must have at most {limit:,} bytes as a browser sends it, in which quotes, commas and brackets take"
        " three each: use the API or the command line for a larger payload"
    )


def _decode_form(body: bytes) -> Form:
    if body.count(b"&") >= MAX_FIELDS or _NO_ESCAPE.search(body):
        raise ValueError("too many fields, or a percent sign without two hex digits")
    form = {}
    for field in body.split(b"&") if body else ():
        name, equals, value = field.partition(b"=")
        if not equals:
            raise ValueError("a field without a value")
        form[_decode(name)] = _decode(value)
    return form


def _decode(raw: bytes) -> str:
    """Decode percent-encoded bytes as quoted-printable, which differs only in its escape character.

    `urllib` would build a list of the parts between the percent signs, which takes 80 MiB and 0.1 s for a mebibyte of
    commas.
    """
    return a2b_qp(raw.replace(b"=", b"=3D").replace(b"+", b" ").replace(b"%", b"=")).decode()


def text_of(form: Form, name: str) -> str:
    """Return the text of a field. Browsers send the end of a line as two characters, which become one."""
    return form.get(name, "").replace("\r\n", "\n").strip()


def whole_number(form: Form, name: str) -> int | None:
    text = text_of(form, name)
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise InvalidOption(name, text[:40], "be a whole number")
    return int(text)


def decimal(form: Form, name: str) -> float | None:
    text = text_of(form, name)
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?", text):
        raise InvalidOption(name, text[:40], "be a number such as 2 or 0.1")
    return float(text)


def length(form: Form, name: str) -> timedelta | None:
    text = text_of(form, name)
    if not text:
        return None
    try:
        return parse_duration(text)
    except InvalidDuration as error:
        raise InvalidInput(f"{name}: {error}") from None


def tz(form: Form, name: str = "tz") -> str:
    try:
        return check_zone(text_of(form, name) or "UTC")
    except UnknownZone as error:
        raise InvalidInput(str(error)) from None


def instant(form: Form, name: str, zone_name: str) -> datetime | None:
    """Read an instant as local time in this time zone, unless the text has an offset of its own."""
    text = text_of(form, name)
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text.upper())
        return found.astimezone(UTC) if found.tzinfo else _from_local_time(found, name, zone_name)
    except (ValueError, OverflowError):
        raise InvalidOption(name, text[:40], "be an instant such as 2030-01-31T09:00") from None


def _from_local_time(found: datetime, name: str, zone_name: str) -> datetime:
    place = load_zone(zone_name)
    at = found.replace(tzinfo=place).astimezone(UTC)
    if at.astimezone(place).replace(tzinfo=None) != found:
        raise InvalidInput(
            f"{name} {found.isoformat()} does not exist in {zone_name}, where clocks are moved forward past it"
        )
    return at


def payload(form: Form, default: str) -> str:
    return check_json("payload", text_of(form, "payload") or default)


def values_of(form: Form, name: str) -> tuple[str, ...]:
    """Return the values of a field that are separated by commas."""
    return tuple(part for each in text_of(form, name).split(",") if (part := each.strip()))


# --- how fields are drawn


def clock_text(at: datetime | None, zone_name: str) -> str:
    """Return local time as a browser's field for date and time has it, without seconds if there are none."""
    if at is None:
        return ""
    try:
        local = at.astimezone(load_zone(check_zone(zone_name)))
    except UnknownZone:  # the time zone existed when the schedule or alarm was made
        local = at.astimezone(UTC)
    return local.replace(tzinfo=None).isoformat(timespec="seconds" if local.second else "minutes")


def length_text(value: timedelta | None) -> str:
    return "" if value is None else format_duration(value)


def number_text(value: int | None) -> str:
    return "" if value is None else str(value)


def changed(form: Form, original: Form) -> set[str]:
    """Return the names of the fields that differ from how they were drawn."""
    return {name for name, value in original.items() if text_of(form, name) != str(visible(value)).strip()}
