"""What may the holder of a token do? A token has scopes, a scope grants rights, and a call needs one right."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

import msgspec

from pulse.model.errors import NOT_SHOWN, InvalidName, InvalidOption
from pulse.model.jobs import LONGEST
from pulse.model.text import check_name, check_topic
from pulse.timing.duration import format_duration

NAME_LIMIT = 60  # leaves 139 of a worker's 200 characters for its own name: `<token name>/<worker>`
MAX_SCOPES = 100
SHORTEST = timedelta(seconds=1)
SECRET_BYTES = 32

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_LIMIT}}}")
_SECRET = re.compile(r"pulse_[A-Za-z0-9_-]{43}")


class Right(StrEnum):
    """The permission for one kind of call."""

    SUBMIT = "submit"
    FOLLOW = "follow"  # read and await single jobs and schedules
    MANAGE = "manage"  # cancel such a job; pause, resume, trigger, backfill and delete such a schedule
    WORK = "work"
    VIEW = "view"  # lists, attempts, topics and workers
    OPERATE = "operate"
    ADMIN = "admin"
    SET_ALARM = "set_alarm"
    VIEW_ALARM = "view_alarm"
    MANAGE_ALARM = "manage_alarm"  # pause, resume, cancel and fire it


class ScopeKind(StrEnum):
    SUBMIT = "submit"
    WORK = "work"
    ALARMS = "alarms"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


READING = frozenset({Right.FOLLOW, Right.VIEW, Right.VIEW_ALARM})

# An operator sees and cancels jobs of every topic and alarms of every owner, but may make none. A reader sees what an
# operator sees and changes nothing, so READING must contain no right to change anything.
GRANTS: dict[ScopeKind, frozenset[Right]] = {
    ScopeKind.SUBMIT: frozenset({Right.SUBMIT, Right.FOLLOW, Right.MANAGE}),
    ScopeKind.WORK: frozenset({Right.WORK}),
    ScopeKind.ALARMS: frozenset({Right.SET_ALARM, Right.VIEW_ALARM, Right.MANAGE_ALARM}),
    ScopeKind.READ: READING,
    ScopeKind.OPERATE: READING | {Right.OPERATE, Right.MANAGE, Right.MANAGE_ALARM},
    ScopeKind.ADMIN: frozenset(Right),
}
PER_TOPIC = {ScopeKind.SUBMIT: "topic", ScopeKind.WORK: "topic", ScopeKind.ALARMS: "owner"}  # alarms: per owner
FORMS = "submit, submit:TOPIC, work, work:TOPIC, alarms, alarms:OWNER, read, operate or admin"


class Scope(NamedTuple):
    """A scope such as `work:mail` for one topic, or `work` for all of them. Scopes of alarms have an owner instead."""

    kind: ScopeKind
    topic: str | None = None

    def __str__(self) -> str:
        return self.kind.value if self.topic is None else f"{self.kind.value}:{self.topic}"

    @classmethod
    def parse(cls, text: str) -> Scope:
        name, colon, topic = text.partition(":")  # at the first colon: a topic may contain more
        if name not in set(ScopeKind):
            raise InvalidOption("scope", text, f"be {FORMS}")
        kind = ScopeKind(name)
        if not colon:
            return cls(kind)
        if kind not in PER_TOPIC:
            raise InvalidOption("scope", text, f"be {name} alone, which is for all topics")
        if topic in {"", "*"}:
            noun = PER_TOPIC[kind]
            article = "an" if noun == "owner" else "a"
            raise InvalidOption("scope", text, f"name {article} {noun} after the colon (for all {noun}s, {name} alone)")
        return cls(kind, check_topic(topic) if PER_TOPIC[kind] == "topic" else check_name("owner", topic))

    def grants(self, right: Right, topic: str | None = None) -> bool:
        """Tell whether it grants the right for this topic, or without a topic, for any."""
        return right in GRANTS[self.kind] and (topic is None or self.topic in {None, topic})


ADMIN = Scope(ScopeKind.ADMIN)


class Token(msgspec.Struct, frozen=True):
    """The current state of a token, by the database's clock. Only its holder has the secret."""

    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_expired: bool

    @property
    def is_usable(self) -> bool:
        return self.revoked_at is None and not self.is_expired


def check_token_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = name[:NAME_LIMIT] if isinstance(name, str) else name
        raise InvalidName(f"token must be 1 to {NAME_LIMIT} letters, digits, '.', '_' and '-', not {shown!r}")
    return name


def read_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes in the order given, each once. Refuse an empty list."""
    texts = tuple(texts)
    if len(texts) > MAX_SCOPES:
        raise InvalidOption("scopes", len(texts), f"number at most {MAX_SCOPES} (leave the topic out for all topics)")
    scopes = tuple(dict.fromkeys(Scope.parse(text) for text in texts))
    if not scopes:
        raise InvalidOption("scopes", NOT_SHOWN, f"have at least one of {FORMS}")
    return scopes


def known_scopes(texts: Iterable[str]) -> tuple[Scope, ...]:
    """Return the scopes of a row. Those that only a newer release knows are left out, so they grant nothing."""
    scopes = []
    for text in texts:
        try:
            scopes.append(Scope.parse(text))
        except (InvalidName, InvalidOption):
            continue
    return tuple(scopes)


def check_lifetime(lifetime: timedelta | None) -> timedelta | None:
    if lifetime is not None and not SHORTEST <= lifetime <= LONGEST:
        raise InvalidOption("lifetime", format_duration(lifetime), "be a length of time from one second to ten years")
    return lifetime


def new_secret() -> str:
    return f"pulse_{secrets.token_urlsafe(SECRET_BYTES)}"


def is_secret(text: str) -> bool:
    """Tell whether a text has the form of a secret. Other texts are never looked up."""
    return bool(_SECRET.fullmatch(text))


def hash_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
