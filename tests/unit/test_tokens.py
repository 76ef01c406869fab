"""Are scopes read as they are written, and do they grant what the table says and no more?"""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from pulse.model.errors import InvalidName, InvalidOption
from pulse.model.tokens import (
    GRANTS,
    MAX_SCOPES,
    Right,
    Scope,
    ScopeKind,
    check_lifetime,
    check_token_name,
    hash_of,
    is_secret,
    known_scopes,
    new_secret,
    read_scopes,
)


@pytest.mark.parametrize(
    "text",
    [
        *("submit", "work", "alarms", "operate", "admin"),
        *("submit:mail", "work:mail", "work:a:b", "work: x y", "work:füße", "alarms:ada", "alarms:a:b"),
    ],
)
def test_a_scope_is_written_as_it_was_read(text: str) -> None:
    assert str(Scope.parse(text)) == text


def test_a_scope_for_a_topic_ends_at_the_first_colon() -> None:
    assert Scope.parse("work:a:b") == Scope(ScopeKind.WORK, "a:b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "scope must be submit, submit:TOPIC, work, work:TOPIC, alarms, alarms:OWNER, read, operate or admin"),
        ("alarm", "scope must be submit"),
        ("alarms:", r"scope must name an owner after the colon \(for all owners, alarms alone\), not 'alarms:'"),
        ("alarms:*", "for all owners, alarms alone"),
        ("Submit", "scope must be submit"),
        ("follow", "scope must be submit"),
        (" work", "scope must be submit"),
        ("work ", "scope must be submit"),
        ("work:", "name a topic after the colon"),
        ("work:*", "for all topics, work alone"),
        ("operate:mail", "operate alone, which is for all topics"),
        ("admin:mail", "admin alone, which is for all topics"),
        ("read:mail", "read alone, which is for all topics"),
    ],
)
def test_what_is_no_scope_is_refused_and_says_what_would_be(text: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        Scope.parse(text)


@pytest.mark.parametrize("topic", ["a\n", "\x00", "x" * 201])
def test_a_topic_that_could_not_be_one_is_refused(topic: str) -> None:
    with pytest.raises(InvalidName):
        Scope.parse(f"work:{topic}")


@pytest.mark.parametrize(("kind", "right"), list(product(ScopeKind, Right)))
def test_a_scope_grants_what_the_table_says(kind: ScopeKind, right: Right) -> None:
    expected: dict[str, set[str]] = {
        "submit": {"submit", "follow", "manage"},
        "work": {"work"},
        "alarms": {"set_alarm", "view_alarm", "manage_alarm"},
        "read": {"follow", "view", "view_alarm"},
        "operate": {"operate", "view", "follow", "manage", "view_alarm", "manage_alarm"},
        "admin": set(Right),
    }

    assert Scope(kind).grants(right) is Scope(kind).grants(right, "mail") is (right in expected[kind])
    assert set(GRANTS[kind]) == expected[kind]


def test_a_scope_for_one_topic_grants_nothing_for_another() -> None:
    scope = Scope.parse("work:mail")

    assert scope.grants(Right.WORK, "mail")
    assert scope.grants(Right.WORK), "there is a topic for which it does"
    assert not scope.grants(Right.WORK, "mails")
    assert not scope.grants(Right.WORK, "")
    assert not scope.grants(Right.SUBMIT, "mail")


def test_scopes_are_kept_once_and_at_least_one_is_needed() -> None:
    assert [str(scope) for scope in read_scopes(["work", "submit", "work"])] == ["work", "submit"]
    with pytest.raises(InvalidOption, match="at least one"):
        read_scopes([])
    with pytest.raises(InvalidOption, match=f"at most {MAX_SCOPES}"):
        read_scopes(f"work:{number}" for number in range(MAX_SCOPES + 1))


def test_a_scope_of_a_newer_release_grants_nothing_and_harms_nothing() -> None:
    assert [str(scope) for scope in known_scopes(["clocks:all", "work", "work:\n"])] == ["work"]


@pytest.mark.parametrize("name", ["web", "A-1_b.c", "x" * 60])
def test_names_are_plain(name: str) -> None:
    assert check_token_name(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "a b", "füße", "web\n", "x" * 61, None, 7])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidName, match="letters, digits"):
        check_token_name(name)


@pytest.mark.parametrize("lifetime", [timedelta(), timedelta(seconds=-1), timedelta(days=4000)])
def test_a_lifetime_is_a_second_to_ten_years(lifetime: timedelta) -> None:
    assert check_lifetime(None) is None
    assert check_lifetime(timedelta(days=90)) == timedelta(days=90)
    with pytest.raises(InvalidOption, match="one second to ten years"):
        check_lifetime(lifetime)


def test_secrets_differ_and_look_like_secrets() -> None:
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert all(is_secret(secret) for secret in made)
    assert len({hash_of(secret) for secret in made}) == 100


@pytest.mark.parametrize(
    "text", ["", "pulse_", "pulse_" + "a" * 42, "pulse_" + "a" * 44, "Pulse_" + "a" * 43, "é" * 49]
)
def test_what_cannot_be_a_secret_is_seen_at_once(text: str) -> None:
    assert not is_secret(text)
