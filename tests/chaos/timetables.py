"""Which schedules are there in a run? Every kind and policy, most of them at times that clock changes touch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pulse.model.jobs import NewJob
from pulse.model.schedules import CatchUp, NewSchedule, Overlap
from tests.chaos import almanac
from tests.chaos.almanac import DAY, HOUR, MINUTE
from tests.chaos.foretold import Foretold

ZONES = (
    "UTC",
    "Pacific/Apia",  # without a 30 December 2011
    "Australia/Lord_Howe",  # half an hour
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kathmandu",  # and a quarter
    "America/Sao_Paulo",  # without a midnight, once a year
    "Africa/Casablanca",  # four changes in 2012
    "Europe/London",
    "Asia/Gaza",
)
TOPICS = [f"topic {number}" for number in range(8)]
NEAR_CHANGES = ("0 0", "30 0", "0 1", "30 1", "0 2", "15,45 2", "30 2", "0 3", "59 23", "5 0-3", "0,30 1-2")

Given = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """The simulated time, in seconds since 1970, and a while after it."""

    begin: int
    end: int

    @property
    def horizon(self) -> int:
        return self.end + 40 * DAY


def instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def seconds(instant: datetime) -> int:
    return round(instant.timestamp())


def occurrences(given: Given, now: int, span: Span) -> Sequence[int]:
    """What is to come of a schedule that is made at an instant."""
    starts_at, ends_at = given.get("starts_at"), given.get("ends_at")
    begin = max(now + 1, seconds(starts_at)) if starts_at else now + 1
    end = min(span.horizon, seconds(ends_at)) if ends_at else span.horizon
    if "every" in given:
        anchor = seconds(starts_at) if starts_at else now
        return almanac.of_interval(int(given["every"].total_seconds()), anchor, begin, end)
    if "cron" in given:
        found = almanac.of_cron(given["cron"], given["tz"], span.begin, span.horizon)
        return found[bisect_left(found, begin) : bisect_left(found, end)]
    at = seconds(given["run_at"]) if "run_at" in given else now + int(given["delay"].total_seconds())
    return [at] if begin <= at < end else []


def make(random: Random, name: str, kind: str, now: int, span: Span) -> tuple[NewSchedule, Foretold]:
    while True:
        given: Given = {"tz": random.choice(ZONES)} | KINDS[kind](random, now, span)
        found = occurrences(given, now, span)
        if found:
            break
    if "overlap" not in given and random.random() < 0.15:
        given["jitter"] = timedelta(seconds=random.randint(1, 7200))
    job = NewJob(task="tick", topic=random.choice(TOPICS), payload='{"a": 1}')
    foretold = Foretold(
        name,
        found,
        catch_up=str(given.get("catch_up", "fire_once")),
        replay_limit=given.get("replay_limit", 100),
        overlap=str(given.get("overlap", "allow")),
        max_occurrences=given.get("max_occurrences"),
        jitter=int(given["jitter"].total_seconds()) if "jitter" in given else None,
        created_at=now,
        is_once=bool(given.keys() & {"run_at", "delay"}),
        is_endless=not given.keys() & {"run_at", "delay", "ends_at", "starts_at", "max_occurrences"},
    )
    return NewSchedule(name=name, job=job, **given), foretold


def kinds_of(number: int) -> list[str]:
    """So many in all, the rarer kinds at least once."""
    found = [kind for kind, share in SHARES.items() for _ in range(max(1, round(share * number)))]
    return found[:number] if len(found) >= number else found + ["daily"] * (number - len(found))


# --- kinds


def _replayed(random: Random, limit: int = 1_000) -> Given:
    return {"catch_up": CatchUp.REPLAY, "replay_limit": limit}


def hourly(random: Random, now: int, span: Span) -> Given:
    """These make most of the jobs."""
    timed: Given = (
        {"cron": f"{random.randrange(60)} * * * *"} if random.random() < 0.6 else {"every": timedelta(hours=1)}
    )
    return timed | _replayed(random)


def every_few_hours(random: Random, now: int, span: Span) -> Given:
    cron = {"cron": f"{random.choice((0, 30, 59))} */{random.choice((6, 8))} * * *"}
    interval = {"every": timedelta(hours=random.choice((6, 7, 8, 9)), seconds=random.randrange(600))}
    return random.choice((cron, interval)) | _replayed(random)


def daily(random: Random, now: int, span: Span) -> Given:
    return {"cron": f"{random.choice(NEAR_CHANGES)} * * *"} | _replayed(random, random.choice((1_000, 1_000, 5)))


def fixed(random: Random, now: int, span: Span) -> Given:
    days = random.choice(("* * *", "* * 1-5", "* * 0", "* 3,4,10,11 *", "*/2 * *"))
    return {"cron": f"{random.choice(NEAR_CHANGES)} {days}", "catch_up": CatchUp.FIRE_ONCE}


def dense(random: Random, now: int, span: Span) -> Given:
    """So many that they are counted, not gone through."""
    timed = random.choice(({"cron": "* * * * *"}, {"cron": "*/7 * * * *"}, {"every": timedelta(seconds=97)}))
    return dict(timed) | random.choice(({"catch_up": CatchUp.FIRE_ONCE}, _replayed(random, 7)))


def skipped(random: Random, now: int, span: Span) -> Given:
    timed = random.choice(
        ({"cron": "*/10 * * * *"}, {"cron": "0 * * * *"}, {"every": timedelta(minutes=random.randint(5, 90))})
    )
    return dict(timed) | {"catch_up": CatchUp.SKIP}


def rare(random: Random, now: int, span: Span) -> Given:
    cron = random.choice(("0 0 1 * *", "30 2 13 * 5", "0 12 31 * *", "0 0 29 2 *", "*/20 4 1-7 * 1", "0 9 30 12 *"))
    return {"cron": cron} | random.choice((_replayed(random), {}))


def once(random: Random, now: int, span: Span) -> Given:
    after = random.randrange(1, max(2, span.end - now))
    timed: Given = {"run_at": instant(now + after)} if random.random() < 0.5 else {"delay": timedelta(seconds=after)}
    return timed | {"catch_up": random.choice(list(CatchUp))}


def overlapping(random: Random, now: int, span: Span) -> Given:
    timed = random.choice(({"every": timedelta(hours=random.randint(3, 30))}, {"cron": "30 1,2 * * *"}))
    given = dict(timed) | {"overlap": random.choice((Overlap.SKIP, Overlap.BUFFER_ONE))}
    given |= random.choice(({}, {"catch_up": CatchUp.SKIP}, _replayed(random, 3)))
    return given | random.choice(({}, {}, {"max_occurrences": random.randint(1, 20)}))


def bounded(random: Random, now: int, span: Span) -> Given:
    timed: Given = random.choice((hourly, daily, fixed, every_few_hours))(random, now, span)
    begin = now + random.randrange(-30 * DAY, span.end - now)
    begin -= begin % random.choice((1, MINUTE, HOUR))
    end = begin + random.choice((1, 10, 40)) * DAY
    bounds: Given = {"starts_at": instant(begin), "ends_at": instant(end)}
    limit: Given = {"max_occurrences": random.randint(1, 60)}
    return timed | random.choice((bounds, limit, bounds | limit, {"starts_at": instant(begin)} | limit))


KINDS: dict[str, Callable[[Random, int, Span], Given]] = {
    kind.__name__: kind
    for kind in (hourly, every_few_hours, daily, fixed, dense, skipped, rare, once, overlapping, bounded)
}
SHARES = {
    "hourly": 0.03,
    "every_few_hours": 0.06,
    "daily": 0.14,
    "fixed": 0.18,
    "dense": 0.01,
    "skipped": 0.10,
    "rare": 0.11,
    "once": 0.13,
    "overlapping": 0.12,
    "bounded": 0.12,
}
