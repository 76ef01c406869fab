"""Which options does a job take in Python, and how are they read?"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pulse.model.errors import InvalidOption
from pulse.model.jobs import NewJob, RetryPolicy
from pulse.model.text import check_storable, check_topic
from pulse.sdk.python_words import in_python_words
from pulse.timing.duration import InvalidDuration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Length = timedelta | str | int | float  # "5m", seconds, or a timedelta
Kind = Literal["quadratic", "exponential", "fixed", "list"]

DEFAULT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Retry:
    """What happens after a failure: `Retry(5, on=(OSError,))` tries five times, and only after an OSError.

    The wait grows with the failures: quadratic (base × n²), exponential (base × factorⁿ⁻¹), fixed (base), or the nth
    of `delays`; never longer than `max_delay`, and spread by `jitter`, a share. An exception not in `on` ends the job
    at once, as a dead letter.
    """

    max_attempts: int = DEFAULT_ATTEMPTS
    backoff: Kind = "quadratic"
    base: Length = 1
    factor: float = 2.0
    delays: tuple[Length, ...] = ()
    max_delay: Length = "1d"
    jitter: float = 0.1
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        attempts: object = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 1_000:
            raise InvalidOption("max_attempts", self.max_attempts, "be a whole number from 1 to 1000")
        for name in ("factor", "jitter"):
            if not isinstance(getattr(self, name), int | float):
                raise InvalidOption(name, getattr(self, name), "be a number")
        if not isinstance(self.delays, list | tuple):
            raise InvalidOption("delays", self.delays, 'be a tuple of lengths, such as ("10s", "1m")')
        if not _are_exceptions(self.on):
            raise InvalidOption("on", self.on, "be a tuple of exception classes, such as (OSError,)")
        if self.delays and self.backoff == "quadratic":
            object.__setattr__(self, "backoff", "list")
        self.policy()  # raises at once for a value that is out of range

    def policy(self) -> RetryPolicy | None:
        """Return the policy to store with the job, or None for the default."""
        policy = RetryPolicy(
            kind=self.backoff,
            base=length("base", self.base).total_seconds(),
            factor=self.factor,
            delays=tuple(length("delays", delay).total_seconds() for delay in self.delays),
            max_delay=length("max_delay", self.max_delay).total_seconds(),
            jitter=self.jitter,
        )
        return None if policy == RetryPolicy() else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a job is to be run. An option that is None was not given: the task's own or the default holds."""

    topic: str | None = None
    priority: int | None = None
    delay: Length | None = None
    run_at: datetime | None = None
    retry: Retry | None = None
    timeout: Length | None = None
    deadline: datetime | Length | None = None  # a length counts from now
    unique_key: str | None = None
    unique_window: Length | None = None
    result_ttl: Length | None = None
    tags: Sequence[str] | None = None
    conn: Any = None  # the caller's own connection: the job commits or rolls back with its transaction

    def merged(self, over: Options) -> Options:
        """Return these options with those that `over` gives in their place."""
        given = {field.name: value for field in fields(over) if (value := getattr(over, field.name)) is not None}
        if "delay" in given:
            given.setdefault("run_at", None)
        elif "run_at" in given:
            given["delay"] = None
        return replace(self, **given)

    def maker(self, task: str) -> Callable[[str], NewJob]:
        """Return a function that makes a job from a payload, with everything else read and checked once."""
        retry = self.retry
        if not isinstance(retry, Retry | None):
            raise InvalidOption("retry", retry, "be a Retry, such as Retry(5, on=(OSError,))")
        common: dict[str, Any] = {
            "task": task,
            "topic": "" if self.topic is None else check_topic(self.topic),
            "priority": 0 if self.priority is None else self.priority,
            "delay": _maybe_length("delay", self.delay),
            "run_at": self.run_at,
            "max_attempts": retry.max_attempts if retry else DEFAULT_ATTEMPTS,
            "retry": retry.policy() if retry else None,
            "timeout": _maybe_length("timeout", self.timeout),
            "unique_key": self.unique_key,
            "unique_window": _maybe_length("unique_window", self.unique_window),
            "result_ttl": _maybe_length("result_ttl", self.result_ttl),
            "tags": _tags(self.tags),
        }

        def make(payload: str) -> NewJob:  # the task wrote the payload, so it is JSON
            with in_python_words():
                return NewJob(payload=payload, deadline=_instant(self.deadline), **common)

        if self.deadline is not None:
            return make
        checked = make("{}")

        def make_like(payload: str) -> NewJob:
            """Copy the checked job and give it this payload: checking is most of the cost of making a job."""
            job = copy(checked)
            msgspec.structs.force_setattr(job, "payload", check_storable("payload", payload))
            return job

        return make_like


def length(option: str, value: object) -> timedelta:
    """Return a length of time as a timedelta: "5m", a number of seconds, or a timedelta."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except InvalidDuration:
            raise InvalidOption(option, value, "be a length of time, such as 30s, 5m, 1h30m, 2d or 250ms") from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise InvalidOption(option, value, "be a number of seconds up to ten years") from None
    raise InvalidOption(option, value, 'be a length of time, such as "5m", a number of seconds or a timedelta')


def read_aliases(aliases: object) -> tuple[Any, ...]:
    if isinstance(aliases, str):
        return (aliases,)
    if not isinstance(aliases, Iterable):
        raise InvalidOption("aliases", aliases, 'be a list of names, such as ["shop.charge"]')
    return tuple(aliases)


def _maybe_length(option: str, value: Length | None) -> timedelta | None:
    return None if value is None else length(option, value)


def _instant(deadline: datetime | Length | None) -> datetime | None:
    if deadline is None or isinstance(deadline, datetime):
        return deadline
    return datetime.now().astimezone() + length("deadline", deadline)


def _tags(tags: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(tags, str):  # iterating over it would make each letter a tag
        raise InvalidOption("tags", tags, 'be a list of names, such as ["billing"]')
    if not isinstance(tags, Iterable | None):
        raise InvalidOption("tags", tags, 'be a list of names, such as ["billing"]')
    return tuple(tags or ())


def _are_exceptions(kinds: object) -> bool:
    if not isinstance(kinds, tuple):
        return False
    return all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)
