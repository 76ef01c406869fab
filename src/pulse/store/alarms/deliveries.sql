-- fragment: where_delivery_stands
-- The row of the claim in `report`, unless the claim has ended. With `lease_until is not null` the planner might walk
-- through the index of leased alarms instead of looking up the id, so the same is said with num_nulls.
where alarms.id = report.id and alarms.lease_id = report.lease_id and num_nulls(lease_until) = 0

-- name: ready_owners(after, limit)
-- The next owners that have alarms ready, in the order of their names. Each is one step of the index, however many
-- alarms the owner has.
with recursive visited as (
    (select owner, 1 as number from pulse.alarms
     where ready_at is not null and lease_until is null and owner > :after
     order by owner limit 1)
    union all
    select following.owner, number + 1
    from visited
    cross join lateral (
        select owner from pulse.alarms
        where ready_at is not null and lease_until is null and alarms.owner > visited.owner
        order by alarms.owner limit 1
    ) as following
    where number < :limit
)
select owner from visited;

-- name: ready_turns(owners, afters, limit)
-- The next destinations of each of these owners that have alarms ready: one step of the index for each destination.
select wanted.owner, ready.destination
from unnest(:owners::text[], :afters::text[]) as wanted (owner, after)
cross join lateral (
    with recursive visited as (
        (select destination, 1 as number from pulse.alarms
         where ready_at is not null and lease_until is null
             and alarms.owner = wanted.owner and alarms.destination > wanted.after
         order by destination limit 1)
        union all
        select following.destination, number + 1
        from visited
        cross join lateral (
            select destination from pulse.alarms
            where ready_at is not null and lease_until is null
                and alarms.owner = wanted.owner and alarms.destination > visited.destination
            order by alarms.destination limit 1
        ) as following
        where number < :limit
    )
    select destination from visited
) as ready;

-- name: claim_alarms(owners, destinations, quotas, lease)
-- Lease the oldest alarms of each owner at each destination, up to its quota. The fence is the time, as in claim_jobs.
with first as materialized (
    select ready.place
    from unnest(:owners::text[], :destinations::text[], :quotas::int[]) as wanted (owner, destination, quota)
    cross join lateral (
        select ctid as place from pulse.alarms
        where ready_at is not null and lease_until is null
            and alarms.owner = wanted.owner and alarms.destination = wanted.destination
        order by next_fire_at
        limit wanted.quota
        for no key update skip locked
    ) as ready
)
update pulse.alarms
set lease_id = greatest(lease_id + 1, (date_part('epoch', pulse.now()) * 1000000)::bigint),
    lease_until = pulse.now() + :lease::interval, attempt = attempt + 1
from first
where alarms.ctid = first.place
returning id, lease_id, owner, label, payload, url, headers, destination, revision, occurrence, attempt, failure_count,
    max_failures, cron, tz, pulse.now() - next_fire_at as lateness;

-- name: record_wakes(
--     ids, lease_ids, statuses, occurrences, nexts, failures, errors, outcomes, delivered_for, attempts, starts,
--     durations, codes, answers, notes
-- )
-- Record what came of deliveries whose claims still stand, and return those claims. A row that somebody else has locked
-- is passed over, so that one open transaction does not hold up the rest: held_wakes tells it from a row whose claim
-- has ended. Each row is looked up by its key and then reached by its place: for a plain join, on a table that was
-- empty when it was last analyzed, the planner would scan the whole table.
-- A column in which every row has the usual value is not sent. The usual values are those of an alarm that fires once
-- and was delivered by the first attempt.
with held as materialized (
    select report.id, report.lease_id, coalesce(status, 'fired') as status,
        coalesce(occurrence, delivered_for) as occurrence, next, coalesce(failures, 0) as failures, error,
        coalesce(outcome, 'delivered') as outcome, delivered_for, coalesce(attempt, 1) as attempt, started, duration,
        code, answer, note, mine.place
    from unnest(
        :ids::uuid[], :lease_ids::bigint[], :statuses::text[], :occurrences::timestamptz[], :nexts::timestamptz[],
        :failures::int[], :errors::text[], :outcomes::text[], :delivered_for::timestamptz[], :attempts::int[],
        :starts::interval[], :durations::interval[], :codes::int[], :answers::text[], :notes::text[]
    ) as report (
        id, lease_id, status, occurrence, next, failures, error, outcome, delivered_for, attempt, started, duration,
        code, answer, note
    )
    cross join lateral (
        select ctid as place from pulse.alarms
        {{where_delivery_stands}}
        for no key update skip locked
    ) as mine
),
moved as (
    update pulse.alarms
    set status = verdict.status,
        next_fire_at = verdict.next,
        attempt = case
            when verdict.outcome = 'failed' or alarms.occurrence = verdict.occurrence then alarms.attempt else 0
        end,
        occurrence = verdict.occurrence,
        ready_at = null,
        lease_until = null,
        failure_count = verdict.failures,
        last_error = verdict.error,
        last_fired_at = case when verdict.outcome = 'delivered' then pulse.now() else last_fired_at end,
        finished_at = case when verdict.status <> 'active' then pulse.now() end,
        updated_at = pulse.now()
    from held as verdict
    where alarms.ctid = verdict.place
    returning verdict.*
),
logged as (
    insert into pulse.deliveries (
        alarm_id, lease_id, occurrence, attempt, outcome, started_at, duration, status, error, answer, note
    )
    select id, lease_id, delivered_for, attempt, outcome, pulse.now() - started, duration, code, error, answer, note
    from moved
    on conflict do nothing
)
select id, lease_id from moved;

-- name: held_wakes(ids, lease_ids)
-- Find which of these claims still stand.
select mine.id, mine.lease_id
from unnest(:ids::uuid[], :lease_ids::bigint[]) as report (id, lease_id)
cross join lateral (
    select id, lease_id from pulse.alarms
    {{where_delivery_stands}}
    offset 0
) as mine;

-- name: log_late(ids, lease_ids, revisions, outcomes, occurrences, attempts, starts, durations, codes, errors, answers)
-- Log deliveries whose claims have ended: they happened, but change nothing. If the alarm was set anew meanwhile,
-- perhaps by the very service that it woke, the delivery is logged with its own outcome, and otherwise as late. Returns
-- the outcomes of those that were not in the log: what is in the log was recorded before, and only the answer was lost.
insert into pulse.deliveries (
    alarm_id, lease_id, occurrence, attempt, outcome, started_at, duration, status, error, answer, note
)
select id, lease_id, occurrence, attempt, case when is_replaced then late.outcome else 'late' end,
    pulse.now() - started, duration, code, error, answer, case when is_replaced then 'it was set anew meanwhile' end
from unnest(
    :ids::uuid[], :lease_ids::bigint[], :revisions::int[], :outcomes::text[], :occurrences::timestamptz[],
    :attempts::int[], :starts::interval[], :durations::interval[], :codes::int[], :errors::text[], :answers::text[]
) as late (id, lease_id, revision, outcome, occurrence, attempt, started, duration, code, error, answer)
left join lateral (
    select alarms.revision > late.revision as is_replaced from pulse.alarms where alarms.id = late.id offset 0
) as now on true
on conflict do nothing
returning outcome;

-- name: release_alarms(ids, lease_ids)
-- Give back alarms that were not delivered, as far as this process knows: the next process makes the attempt. An alarm
-- that somebody has locked comes back when its lease ends.
with held as materialized (
    select mine.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as report (id, lease_id)
    cross join lateral (
        select ctid as place from pulse.alarms
        {{where_delivery_stands}}
        for no key update skip locked
    ) as mine
)
update pulse.alarms
set lease_until = null, lease_id = lease_id + 1, ready_at = case when paused_at is null then ready_at end
from held where alarms.ctid = held.place;

-- name: defer_alarms(owners, destinations, waits, errors, limit)
-- Put off the ready alarms of destinations that are not to be called for a while. This costs the alarms no failure.
with waiting as materialized (
    select ready.place, closed.wait, closed.error
    from unnest(:owners::text[], :destinations::text[], :waits::interval[], :errors::text[])
        as closed (owner, destination, wait, error)
    cross join lateral (
        select ctid as place from pulse.alarms
        where ready_at is not null and lease_until is null
            and alarms.owner = closed.owner and alarms.destination = closed.destination
        order by next_fire_at
        limit :limit
        for no key update skip locked
    ) as ready
),
moved as (
    update pulse.alarms
    set ready_at = null, next_fire_at = pulse.now() + waiting.wait, last_error = waiting.error,
        updated_at = pulse.now()
    from waiting where alarms.ctid = waiting.place
    returning 1
)
select count(*)::int as alarms from moved;
