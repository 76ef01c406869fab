"""Texts: what is refused, what is mended, and that what passes can be stored."""

from __future__ import annotations

import json
import re
import time
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.model import text as texts
from pulse.model.errors import IllegalTransition, InvalidInput, InvalidName, InvalidOption, InvalidPayload
from pulse.model.jobs import JobEvent, JobStatus
from pulse.model.text import ERROR_LIMIT, check_json, check_name, check_text, check_topic, clean_error, encode_json


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00b", "a\nb", "\x7f", "\x85", "\ud800", 5, None])
def test_a_bad_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidName, match="topic"):
        check_topic(name)


@pytest.mark.parametrize("name", ["x", "x" * 200, "größe", "漢字 🎉", "a/b.c-d:e"])
def test_a_good_name_passes(name: str) -> None:
    assert check_name("task", name) == name


def test_the_star_is_no_topic() -> None:
    with pytest.raises(InvalidName, match="all topics"):
        check_topic("*")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "{'a': 1}",
        '{"a": NaN}',
        '"\\u0000"',
        '"\x00"',
        '"\ud800"',
        '"\\ud800"',
        '["\\udfff x"]',
        '{"a\\u0000": 1}',
    ],
)
def test_what_is_not_json_for_postgres_is_refused(text: str) -> None:
    with pytest.raises(InvalidPayload, match="payload"):
        check_json("payload", text)


@pytest.mark.parametrize("text", ["1", "null", '"\\\\u0000"', '"\\ud83c\\udf89"', '"🎉"', '{"a": [1, 2.5, true]}'])
def test_what_postgres_takes_passes(text: str) -> None:
    assert check_json("payload", text) == text


def test_the_limit_is_a_mebibyte_of_utf_8() -> None:
    assert check_json("payload", '"' + "x" * ((1 << 20) - 2) + '"')
    for text in ('"' + "x" * ((1 << 20) - 1) + '"', '"' + "漢" * 350_000 + '"'):
        with pytest.raises(InvalidPayload, match="1 MiB"):
            check_json("payload", text)


@pytest.mark.parametrize("value", [object(), {1, 2, object()}, float("nan").__class__, "\ud800"])
def test_a_value_that_has_no_json_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        encode_json("payload", value)


def test_a_value_nested_without_end_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)

    with pytest.raises(InvalidPayload, match="cannot be written"):
        encode_json("payload", endless)


@given(st.text(st.characters(codec=None, exclude_categories=[]), max_size=50))
def test_what_json_says_is_storable_is_what_python_can_encode(text: str) -> None:
    """The check agrees with the thing itself: no NUL, and encodable as UTF-8."""
    try:
        check_json("payload", json.dumps(text))
        passed = True
    except InvalidPayload:
        passed = False

    storable = "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in json.loads(json.dumps(text)))
    assert passed == storable


@given(st.text(st.characters(codec=None, exclude_categories=[])))
def test_an_error_text_is_always_storable(text: str) -> None:
    cleaned = clean_error(text)

    assert "\x00" not in cleaned
    cleaned.encode()


def test_a_long_error_keeps_both_its_ends() -> None:
    cleaned = clean_error("start" + "x" * 100_000 + "end")

    assert cleaned.startswith("start")
    assert cleaned.endswith("end")
    assert len(cleaned) < ERROR_LIMIT + 100


@pytest.mark.parametrize("text", ["01998e5e-1234-7bd2-8a3e-0f2ce83f7000", '"1e-9999"', "\\1e-9999", "." + "1" * 16_383])
def test_a_string_may_read_like_a_number_that_is_too_small(text: str) -> None:
    assert encode_json("payload", {"id": text})

    with pytest.raises(InvalidPayload, match="decimals"):
        check_json("payload", json.dumps([text])[:-1] + ", 1e-9999]")


class Counting:
    """A pattern that knows how much it was made to look at."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.characters = 0

    def sub(self, by: str, text: str) -> str:
        self.characters += len(text)
        return self._pattern.sub(by, text)

    def search(self, text: str) -> re.Match[str] | None:
        self.characters += len(text)
        return self._pattern.search(text)


def test_of_a_huge_text_no_more_is_looked_at_than_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = Counting(texts._UNSTORABLE)
    monkeypatch.setattr(texts, "_UNSTORABLE", pattern)
    huge = "\x00é" * 1_000_000

    cleaned = clean_error(huge)
    with pytest.raises(InvalidOption, match="1 to 2000 characters"):
        check_text("reason", huge, 2_000)

    assert cleaned.startswith("\ufffdé\ufffdé")
    assert cleaned.endswith("\ufffdé")
    assert f"{2_000_000 - ERROR_LIMIT} characters cut" in cleaned
    assert "\x00" not in cleaned
    assert pattern.characters < 2 * ERROR_LIMIT


ODD_PARTS: tuple[str, ...] = (
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "\\u",
    "0000",
    "d83c",
    "\\udf89",
    "1",
    "e",
    "-",
    "+",
    ".",
    "999",
)
ODD_PARTS += (
    "1e400",
    "-1e309",
    "1e-400",
    "1" * 310,
    "9" * 4400,
    "null",
    '"a"',
    " ",
    "0",
    '"\\\\"',
    "E+308",
    "0.01e310",
)


@given(st.lists(st.sampled_from(ODD_PARTS), max_size=9).map("".join))
def test_a_large_text_is_judged_as_a_small_one(text: str) -> None:
    """Of a large one nothing is built, and so its numbers are read by us."""
    assert _refusal(text) == _refusal(text + " " * 20_000)


def _refusal(text: str) -> bool:
    try:
        check_json("payload", text)
    except InvalidPayload:
        return True
    msgspec.json.decode(text)  # what passes can be read again
    return False


@pytest.mark.parametrize("start", ["1e-9999", "1e9999", "[1e-9999,", '"\\u0000'])
def test_malformed_text_is_refused_as_quickly_as_any(start: str) -> None:
    """Quotes without an end: each of them would be followed to the end of the text."""
    text = start + '"\\' * 12_000
    began = time.process_time()

    with pytest.raises(InvalidPayload):
        check_json("payload", text)

    assert time.process_time() - began < 0.1


def test_every_illegal_move_is_told_in_plain_words() -> None:
    for status in JobStatus:
        for event in JobEvent:
            said = str(IllegalTransition(UUID(int=7), status, event)).removeprefix(f"job {UUID(int=7)} is ")
            assert re.fullmatch(r"(already )?[a-z ]+(, so it cannot [a-z ]+)?", said), (status, event, said)

    assert str(IllegalTransition(UUID(int=7), "CANCELLED", "CANCEL")) == f"job {UUID(int=7)} is already cancelled"
    assert str(IllegalTransition(UUID(int=7), "RUNNING", "REPLAY")).endswith("is running, so it cannot be replayed")
