"""Which values does a redaction hide, in JSON and in texts, and what does it leave alone?"""

from __future__ import annotations

import json
import threading
import time
from typing import Any
from urllib.parse import quote

import pytest

from pulse.engine.masks import mask_each
from pulse.model.errors import InvalidPayload, InvalidSettings
from pulse.model.redaction import MASK, MAX_VALUES, NO_REDACTION, Redaction, read_redaction

PLAIN = Redaction(["password", "card.number"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"password": "x"}, {"password": MASK}),
        ({"PassWord": 7, "user": "ada"}, {"PassWord": MASK, "user": "ada"}),
        ({"a": {"b": [{"password": {"deep": [1, 2]}}]}}, {"a": {"b": [{"password": MASK}]}}),
        ({"password": None, "next": True}, {"password": MASK, "next": True}),
        ({"password": [{"password": 1}], "n": 1}, {"password": MASK, "n": 1}),
        ({"card": {"number": 41, "name": "a"}}, {"card": {"number": MASK, "name": "a"}}),
        ({"cards": {"number": 41}, "number": 1}, {"cards": {"number": 41}, "number": 1}),
        ({"x": {"card": [{"number": 1}, [{"number": 2}]]}}, {"x": {"card": [{"number": MASK}, [{"number": MASK}]]}}),
        ({"card": {"holder": {"number": 1}}}, {"card": {"holder": {"number": 1}}}),
        ({"card.number": 1, "id.card.number": 2}, {"card.number": MASK, "id.card.number": MASK}),
        ({"my password": "x", "passwords": "y"}, {"my password": "x", "passwords": "y"}),
        ({"note": 'the "password": 1 in a text', "password": 'a "quoted" \\ one'}, None),
        (["password", {"password": {}}], ["password", {"password": MASK}]),
        ([], []),
        ("password", "password"),
        (None, None),
    ],
)
def test_marked_values_are_masked_and_all_others_are_not(given: Any, expected: Any) -> None:
    if isinstance(given, dict) and "note" in given:
        expected = given | {"password": MASK}
    for text in (json.dumps(given), json.dumps(given, indent=3), json.dumps(given, ensure_ascii=False)):
        assert json.loads(PLAIN.json(text)) == expected


def test_what_is_not_marked_stays_as_it_was_written() -> None:
    text = '{ "n": 1.10000000000000000000000001e5,"password" :\n "x" , "big": 123456789012345678901234567890, "a": 1}'

    assert PLAIN.json(text) == text.replace('"x"', f'"{MASK}"')
    assert PLAIN.json(PLAIN.json(text)) == PLAIN.json(text)


def test_a_name_in_escapes_is_the_same_name_and_one_given_twice_is_hidden_twice() -> None:
    assert PLAIN.json(r'{"pass\u0077ord": 1, "password": 2}') == rf'{{"pass\u0077ord": "{MASK}", "password": "{MASK}"}}'
    assert Redaction(["GEHEIM.Straße"]).json('{"geheim": {"STRASSE": 1}}') == f'{{"geheim": {{"STRASSE": "{MASK}"}}}}'


def test_nothing_marked_changes_nothing() -> None:
    text = '{"password": "x"}'

    assert NO_REDACTION.json(text) is text
    assert NO_REDACTION.text("x failed", text) == "x failed"
    assert not NO_REDACTION
    assert PLAIN.json('{"user": 1}') == '{"user": 1}'


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"password": "canary', MASK),
        ('{"password": {"a": "canary"', MASK),
        ('{"password": }', MASK),
        ('}"password": "canary"', MASK),
        (':"password" "canary"', MASK),
        (",password canary", MASK),
        ('{"password": \x00 "canary"}', None),
    ],
)
def test_what_is_no_json_gives_nothing_away(text: str, masked: str | None) -> None:
    assert masked is None or masked in PLAIN.json(text)
    assert masked is None or "canary" not in PLAIN.json(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"password": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"password":' * 50_000 + "1" + "}" * 50_000,
        '{"a":' * 50_000 + '{"password": 1}' + "}" * 50_000,
        '{"password": "' + "a" * 1_000_000 + '"}',
        '{"password": "' + "\\\\" * 500_000 + '"}',
        "[" + '{"password": 1},' * 60_000 + "1]",
        '{"n": [' + "1," * 400_000 + '1], "password": 1}',
    ],
    ids=["deep value", "deep names", "deep", "long", "escapes", "many", "long list"],
)
def test_huge_and_deep_json_is_masked_in_little_time(text: str) -> None:
    started = time.process_time()
    masked = PLAIN.json(text)
    PLAIN.text("ValueError: " + "a" * 100_000, text)

    assert MASK in masked
    assert time.process_time() - started < 20  # a second or less; what is quadratic takes minutes


def test_keys_inside_a_long_key_are_gone_through_as_fast_as_inside_a_short_one() -> None:
    inside = ",".join(['"number":1'] * 40_000)

    def taken(key: str) -> float:
        text = f'{{"{key}":{{{inside}}}}}'
        began = time.thread_time()
        assert PLAIN.json(text) == text
        return time.thread_time() - began

    assert min(taken("k" * 500_000) for _ in range(3)) < 2 * max(taken("k") for _ in range(3))


def test_a_long_key_is_marked_by_its_end() -> None:
    long = "k" * 500_000

    assert MASK in PLAIN.json(f'{{"{long}.password":1}}')
    assert MASK in PLAIN.json(f'{{"{long}.card":{{"number":1}}}}')
    assert MASK not in PLAIN.json(f'{{"{long}password":1, "{long}card":{{"number":1}}, "a":{{"number":1}}}}')


# --- texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("hunter2", "bad hunter2"),
        ("hunter2", "hunter2hunter2"),
        ('say "frïend"\n', "got {value!r}"),
        ('say "frïend"\n', "got {value!a}"),
        ('say "frïend"\n', "got {json}"),
        ('say "frïend"\n', "KeyError: {nested!r}"),
        ("it's", "got {value!r}"),
        ("ключ-и-замок", "got {bytes!r}"),
        ("a b/c?d", "GET https://x.example/?q={quoted}"),
        ("a" * 12 + "canary" + "b" * 40, "input_value={value:.25}...{tail}, input_type=str"),
        ("canary-canary", "the answer was cut at canary-c"),
        ("canary-canary", "anary-canary: the beginning was cut"),
        ("-----BEGIN\ncanarycanary\n-----END", "  |   canarycanary\n  | other"),
        (4111111111111111, "card 4111111111111111 was declined"),
        (4111111111111111, "card 4,111,111,111,111,111 was declined"),
        (12345.5, "amount 12345.5"),
        (-98765, "amount -98765"),
        ({"inner": ["canary"], "n": 123456}, "bad canary and 123456"),
    ],
)
def test_a_marked_value_is_scrubbed_in_all_its_forms(value: Any, text: str) -> None:
    payload = json.dumps({"password": value, "user": "ada"})
    if isinstance(value, str):
        shown = text.format(
            value=value,
            json=json.dumps(value),
            nested=repr(value),
            bytes=value.encode(),
            quoted=quote(value),
            tail=value[-24:],
        )
    else:
        shown = text

    scrubbed = PLAIN.text(f"{shown}", payload)

    assert MASK in scrubbed
    leaves = ["canary", "123456"] if isinstance(value, dict) else [str(value), str(value)[:PIECE_SEEN]]
    assert all(leaf not in scrubbed for leaf in leaves)
    assert PLAIN.text(scrubbed, payload) == scrubbed


PIECE_SEEN = 6


def test_other_words_stay_and_short_values_are_not_looked_for() -> None:
    payload = '{"password": "abc", "card": {"number": 12}, "user": "ada lovelace", "flag": true}'

    assert PLAIN.text("abc: ada lovelace has 12 true cards", payload) == "abc: ada lovelace has 12 true cards"
    assert PLAIN.text("true", '{"password": true}') == "true"
    assert PLAIN.text("user name", '{"password": {"user": 1}}') == "user name"


def test_a_whole_value_is_not_taken_for_a_part_of_another_form_of_it() -> None:
    value = "CANARY 'top' in\nquotes"

    for shown in (value, json.dumps(value), repr(value), repr(json.dumps(value))):
        assert PLAIN.text(shown, json.dumps({"password": value})).strip("\"'") == MASK


def test_the_longest_value_goes_first() -> None:
    assert PLAIN.text("secret-secret", '[{"password": "secret"}, {"password": "secret-secret"}]') == MASK


def test_too_many_values_hide_the_text_and_too_much_text_is_cut() -> None:
    many = json.dumps([{"password": f"value-{n}"} for n in range(MAX_VALUES + 1)])

    assert PLAIN.text("anything", many) == MASK
    long = PLAIN.text("a" * 10_000_000 + "hunter2", '{"password": "hunter2"}')
    assert len(long) < 100_000
    assert long.endswith(MASK)


def test_a_value_at_the_place_where_a_long_text_is_cut_is_not_shown_in_part() -> None:
    payload = '{"password": "canary-hunter"}'

    for shift in range(14):
        text = PLAIN.text("x" * shift + "canary-hunter" * 20_000, payload)
        before, after = text.replace(MASK, "").replace("x", "").split("…")[::2]
        assert len(before.strip()) < 4 > len(after.strip())


def test_as_many_values_as_there_may_be_take_little_time() -> None:
    values = [f"välue {number} 'of' \"many\" with a long tail" for number in range(MAX_VALUES)]
    started = time.process_time()

    text = PLAIN.text(repr(values)[:100_000], json.dumps({"password": values}))

    assert "long tail" not in text
    assert time.process_time() - started < 20  # about one


# --- what must not be written back


def test_a_mask_in_a_marked_field_is_refused_and_elsewhere_it_is_a_text() -> None:
    for payload in (f'{{"password": "{MASK}"}}', f'{{"a": [{{"card": {{"number":"{MASK}"}}}}]}}'):
        with pytest.raises(InvalidPayload, match=r"only stands for a hidden value: give the value itself$"):
            PLAIN.refuse_masked(payload)
        with pytest.raises(InvalidPayload, match="leave payload out to keep the present one, or give the value itself"):
            PLAIN.refuse_masked(payload, is_edit=True)
        NO_REDACTION.refuse_masked(payload)
    PLAIN.refuse_masked(f'{{"user": "{MASK}", "password": "x {MASK}"}}')


# --- how long it may take

LINES = ["\n".join(f"line {number} {each} é" for each in range(30)) for number in range(990)]
LONG = "x" * 60_000


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (LINES, LONG),
        (LINES[:100], LONG),
        (LINES[:100], "x" * 3_000),
        ([f"é{number} '\"" for number in range(990)], LONG),
        ([f"é{number} '\"" for number in range(990)], "x" * 500),
        ([f"abcd{number}" for number in range(990)], "x" * 15_000),
        (['é"\n' * 30_000], LONG),
        (['é"\n' * 20_000], LONG),
        ([1] * 400_000, LONG),
        ([f"{'abcdefghijklmnop' * 60}{number}é" for number in range(40)], "abcdefghijklmnop" * 3_700),
        ([MASK[start:end] for start in range(7) for end in range(start + 4, 11)], MASK * 6_000),
    ],
    ids=lambda value: str(len(value)),
)
def test_the_worst_report_takes_a_tenth_of_a_second(values: list[object], text: str) -> None:
    payload = json.dumps({"password": values})

    def taken() -> float:
        began = time.process_time()
        mask = PLAIN.text_masker(payload)
        mask(text), mask(text)  # an error, and its traceback
        return time.process_time() - began

    shown = PLAIN.text_masker(payload)(text)
    assert not [value for value in values[:1_000] if str(value) not in f"{MASK}1" and str(value) in shown]
    assert min(taken() for _ in range(5)) < 0.1


def test_all_texts_of_one_payload_have_an_end_together() -> None:
    mask = PLAIN.text_masker(json.dumps({"password": [f"abcd{number}" for number in range(990)]}))

    shown = [mask("x" * 15_000) for _ in range(20)]

    assert shown[0] == "x" * 15_000
    assert shown[-1] == MASK
    assert mask("") == ""


def test_what_was_masked_is_known_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Redaction(["password"])
    first = own.text("it was hunter22", '{"password": "hunter22"}')
    monkeypatch.setattr(Redaction, "text_masker", None)

    assert own.text("it was hunter22", '{"password": "hunter22"}') == first == f"it was {MASK}"


async def test_masks_are_made_beside_the_event_loop() -> None:
    threads = await mask_each(lambda _: threading.current_thread(), [1, 2])

    assert threading.main_thread() not in threads
    assert await mask_each(str, []) == []


# --- the names


def test_names_are_read_from_one_line() -> None:
    assert read_redaction(" password, Card.Number ,password,").names == ("password", "card.number")
    assert read_redaction("").names == ()
    assert read_redaction("a") is read_redaction("a")


@pytest.mark.parametrize(
    "name", [".a", "a.", "a..b", "$.card", "card[0]", "card.*", "*", '"a"', "a\nb", "x" * 201, 7, ""]
)
def test_what_is_no_name_is_refused_with_what_would_be(name: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"^redact must have names of fields, .+ such as card\.number, not "):
        Redaction([name])


def test_there_is_an_end_to_names() -> None:
    with pytest.raises(InvalidSettings, match="at most 1000"):
        Redaction(f"name{number}" for number in range(1_001))
