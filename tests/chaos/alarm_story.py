"""What became of every alarm of a run? Who claimed it, how each claim ended, who was woken; and what must hold of that.

A trigger writes down each claim with the process that made it, and how it ended. A wake may be made again only when
the process that had claimed it died, or stood still, while it held the claim, and only after the claim's lease. What
was recorded is never made again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from pulse.model.alarms import wake_id
from tests.chaos.checks import say
from tests.chaos.receiver import Arrival

HISTORY = """
create schema if not exists chaos;
create table chaos.claims (
    alarm_id uuid, lease_id bigint, attempt int, worker text, claimed_at timestamptz, primary key (alarm_id, lease_id)
);
create table chaos.ends (alarm_id uuid, lease_id bigint, is_recorded boolean, ended_at timestamptz, worker text);
create table chaos.touched (alarm_id uuid, was text, became text, worker text);
create function chaos.note_alarm() returns trigger language plpgsql as $$
begin
    if old.status <> 'active' then
        insert into chaos.touched values
            (new.id, old.status, new.status, current_setting('application_name'));
    end if;
    if old.lease_until is null and new.lease_until is not null then
        insert into chaos.claims values
            (new.id, new.lease_id, new.attempt, current_setting('application_name'), clock_timestamp());
    elsif old.lease_until is not null and new.lease_until is null then
        insert into chaos.ends values
            (new.id, old.lease_id, new.lease_id = old.lease_id, clock_timestamp(), current_setting('application_name'));
    end if;
    return new;
end
$$;
create trigger note_alarm after update on pulse.alarms for each row execute function chaos.note_alarm();
"""
FILL = """
insert into pulse.alarms (
    id, owner, fingerprint, kind, payload, url, destination, max_failures, occurrence, next_fire_at, created_at,
    updated_at
)
select gen_random_uuid(), 'chaos', '', 'once', '{}', place.destination || '/wake', place.destination, 5, due.at, due.at,
    now(), now()
from generate_series(1, $1::int) as n
cross join lateral (select ($2::text[])[1 + n % cardinality($2::text[])] as destination) as place
cross join lateral (select now() + interval '1 second' + n * $3::interval as at) as due
returning id
"""
CLAIMS = """
select claims.*, is_recorded from chaos.claims left join chaos.ends using (alarm_id, lease_id) order by lease_id
"""


@dataclass(frozen=True, slots=True)
class Claim:
    alarm_id: UUID
    lease_id: int
    attempt: int
    pid: int
    claimed_at: float
    is_recorded: bool | None  # none: it has not ended


@dataclass
class AlarmStory:
    alarms: dict[UUID, Mapping[str, Any]]
    claims: dict[UUID, list[Claim]]
    touched: list[Mapping[str, Any]]
    outcomes: Counter[str]
    arrivals: Sequence[Arrival]

    @property
    def by_alarm(self) -> dict[UUID, list[Arrival]]:
        found: dict[UUID, list[Arrival]] = defaultdict(list)
        for arrival in self.arrivals:
            found[arrival.alarm_id].append(arrival)
        return found


async def read_alarm_story(conn: Any, arrivals: Sequence[Arrival]) -> AlarmStory:
    claims: dict[UUID, list[Claim]] = defaultdict(list)
    for row in await conn.fetch(CLAIMS):
        pid = int(row["worker"].split()[-1])
        claims[row["alarm_id"]].append(
            Claim(
                row["alarm_id"],
                row["lease_id"],
                row["attempt"],
                pid,
                row["claimed_at"].timestamp(),
                row["is_recorded"],
            )
        )
    return AlarmStory(
        alarms={row["id"]: row for row in await conn.fetch("select * from pulse.alarms")},
        claims=claims,
        touched=await conn.fetch("select * from chaos.touched"),
        outcomes=Counter(row["outcome"] for row in await conn.fetch("select outcome from pulse.deliveries")),
        arrivals=arrivals,
    )


def always(story: AlarmStory, absences: Mapping[int, Sequence[tuple[float, float]]], lease: float) -> list[str]:
    return [
        *undelivered(story),
        *unfinished(story),
        *misnamed(story),
        *without_a_claim(story),
        *claimed_again(story, absences, lease),
        *changed_after_the_end(story),
    ]


def undelivered(story: AlarmStory) -> list[str]:
    came = story.by_alarm
    wrong = [f"{alarm_id} is {row['status']}" for alarm_id, row in story.alarms.items() if alarm_id not in came]
    return say("alarms that never arrived", wrong)


def unfinished(story: AlarmStory) -> list[str]:
    wrong = [
        f"{alarm_id} is {row['status']}, next {row['next_fire_at']}, lease {row['lease_until']}, {row['last_error']}"
        for alarm_id, row in story.alarms.items()
        if row["status"] != "fired" or row["failure_count"] or row["last_fired_at"] is None
    ]
    return say("alarms that have not fired in the end", wrong)


def misnamed(story: AlarmStory) -> list[str]:
    """Every repetition of an occurrence bears its id, and no other does."""
    wrong = [
        f"{arrival.alarm_id}, attempt {arrival.attempt}: {arrival.wake_id}"
        for arrival in story.arrivals
        if arrival.wake_id != wake_id(arrival.alarm_id, 1, story.alarms[arrival.alarm_id]["occurrence"])
        or arrival.occurrence != story.alarms[arrival.alarm_id]["occurrence"]
    ]
    return say("wakes with an id that is not their occurrence's", wrong)


def without_a_claim(story: AlarmStory) -> list[str]:
    """A wake is made once for each claim, and not otherwise."""
    claimed = {(claim.alarm_id, claim.attempt) for claims in story.claims.values() for claim in claims}
    came = Counter((arrival.alarm_id, arrival.attempt) for arrival in story.arrivals)
    return [
        *say("wakes without a claim", [f"{alarm}, attempt {attempt}" for alarm, attempt in came.keys() - claimed]),
        *say(
            "wakes made twice for one claim", [f"{alarm}: {times}" for (alarm, _), times in came.items() if times > 1]
        ),
    ]


def claimed_again(story: AlarmStory, absences: Mapping[int, Sequence[tuple[float, float]]], lease: float) -> list[str]:
    """Only what was in flight when its process died or stood still, and only after its lease."""
    healthy, early, recorded = [], [], []
    for alarm_id, claims in story.claims.items():
        for one, two in pairwise(claims):
            seconds = two.claimed_at - one.claimed_at
            if not any(one.claimed_at < until and since < two.claimed_at for since, until in absences.get(one.pid, ())):
                healthy.append(f"{alarm_id}, claimed by {one.pid}, and {seconds:.1f} s later by {two.pid}")
            if seconds < lease:
                early.append(f"{alarm_id}, after {seconds:.1f} s")
            if one.is_recorded:
                recorded.append(f"{alarm_id}, attempt {one.attempt}")
    return [
        *say("alarms claimed again while their holders were well", healthy),
        *say("alarms claimed again before their leases had ended", early),
        *say("alarms claimed again after they were recorded", recorded),
    ]


def changed_after_the_end(story: AlarmStory) -> list[str]:
    wrong = [f"{row['alarm_id']} was {row['was']} and became {row['became']}" for row in story.touched]
    return say("alarms changed after they had ended", wrong)


def repeated(story: AlarmStory) -> int:
    return len(story.arrivals) - len(story.by_alarm)
