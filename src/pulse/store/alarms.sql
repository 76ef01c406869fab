-- Every statement that touches an alarm. Whoever delivers one holds a lease on it, whose number is the fence; whatever
-- takes an alarm away from its holder makes the number grow.

-- name: set_alarm(alarm)
select alarm_id, deed from pulse.set_alarm(:alarm::jsonb);

-- name: get_alarm(id)
select * from pulse.shown_alarms where id = :id;

-- name: find_alarm(owner, name)
select * from pulse.shown_alarms where owner = :owner and name = :name;

-- name: find_headers(owner, name)
-- What they really say: to be kept, and not to be shown.
select url, headers from pulse.alarms where owner = :owner and name = :name;

-- name: find_by_call(call_id, owner, name)
-- What this very call has set before, whether it was made then or replaced.
select * from pulse.alarms where id = :call_id and owner = :owner
union all
select * from pulse.alarms where owner = :owner and name = :name and call_id = :call_id and id <> :call_id;

-- name: list_alarms(owner, before, status, paused, label, limit)
-- Newest first.
select * from pulse.shown_alarms
where id < :before and owner = :owner
    and (:status::text is null or status = :status)
    and (:paused::boolean is null or (paused_at is not null) = :paused)
    and (:label::text is null or label = :label)
order by id desc
limit :limit;

-- name: list_all_alarms(before, status, paused, label, limit)
select * from pulse.shown_alarms
where id < :before
    and (:status::text is null or status = :status)
    and (:paused::boolean is null or (paused_at is not null) = :paused)
    and (:label::text is null or label = :label)
order by id desc
limit :limit;

-- name: search_alarms(before, status, paused, part, scan, limit)
-- Newest first: those among the first so many that match, and last where the scan ended.
with scanned as materialized (
    select id,
        (:status::text is null or status = :status)
        and (:paused::boolean is null or (paused_at is not null) = :paused)
        and (:part::text is null or strpos(lower(coalesce(name collate "default", '')), lower(:part)) > 0
            or strpos(lower(label), lower(:part)) > 0 or strpos(lower(coalesce(url, '')), lower(:part)) > 0) as matches
    from pulse.alarms
    where id < :before
    order by id desc
    limit :scan
)
(select id, true as matches, 0::bigint as seen from scanned where matches order by id desc limit :limit)
union all
(select id, false, count(*) over () from scanned order by id limit 1);

-- name: search_owned(owner, before, status, paused, part, scan, limit)
-- The same among those of an owner.
with scanned as materialized (
    select id,
        (:status::text is null or status = :status)
        and (:paused::boolean is null or (paused_at is not null) = :paused)
        and (:part::text is null or strpos(lower(coalesce(name collate "default", '')), lower(:part)) > 0
            or strpos(lower(label), lower(:part)) > 0 or strpos(lower(coalesce(url, '')), lower(:part)) > 0) as matches
    from pulse.alarms
    where id < :before and owner = :owner
    order by id desc
    limit :scan
)
(select id, true as matches, 0::bigint as seen from scanned where matches order by id desc limit :limit)
union all
(select id, false, count(*) over () from scanned order by id limit 1);

-- name: search_failed(before_at, before, owner, part, scan, limit)
-- The same among those that were given up, most recent first.
with scanned as materialized (
    select id, finished_at,
        (:owner::text is null or owner = :owner) and (:part::text is null or strpos(lower(coalesce(name collate "default", '')), lower(:part)) > 0
            or strpos(lower(label), lower(:part)) > 0 or strpos(lower(coalesce(url, '')), lower(:part)) > 0) as matches
    from pulse.alarms
    where status = 'failed' and (finished_at, id) < (:before_at::timestamptz, :before::uuid)
    order by finished_at desc, id desc
    limit :scan
)
(select id, finished_at, true as matches, 0::bigint as seen from scanned where matches order by finished_at desc, id desc limit :limit)
union all
(select id, finished_at, false, count(*) over () from scanned order by finished_at, id limit 1);

-- name: search_failing(after_at, after, owner, part, scan, limit)
-- The same among those that will be tried again, the next to be tried first.
with scanned as materialized (
    select id, next_fire_at,
        (:owner::text is null or owner = :owner) and (:part::text is null or strpos(lower(coalesce(name collate "default", '')), lower(:part)) > 0
            or strpos(lower(label), lower(:part)) > 0 or strpos(lower(coalesce(url, '')), lower(:part)) > 0) as matches
    from pulse.alarms
    where failure_count > 0 and finished_at is null and (next_fire_at, id) > (:after_at::timestamptz, :after::uuid)
    order by next_fire_at, id
    limit :scan
)
(select id, next_fire_at, true as matches, 0::bigint as seen from scanned where matches order by next_fire_at, id limit :limit)
union all
(select id, next_fire_at, false, count(*) over () from scanned order by next_fire_at desc, id desc limit 1);

-- name: read_alarms(ids)
select alarm.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (select * from pulse.shown_alarms where shown_alarms.id = wanted.id offset 0) as alarm;

-- name: list_deliveries(alarm_id, before, limit)
-- Newest first.
select lease_id, occurrence, attempt, outcome, started_at, duration, status, error, answer, note
from pulse.deliveries
where alarm_id = :alarm_id and lease_id < :before
order by lease_id desc
limit :limit;

-- name: cancel_alarm(id)
-- Whoever is delivering it will find the claim gone.
update pulse.alarms
set status = 'cancelled', next_fire_at = null, ready_at = null, lease_until = null, lease_id = lease_id + 1,
    finished_at = pulse.now(), updated_at = pulse.now()
where id = :id and status = 'active'
returning *;

-- name: pause_alarm(id)
-- A delivery under way ends as it will, and the alarm stays paused.
update pulse.alarms
set paused_at = coalesce(paused_at, pulse.now()), updated_at = pulse.now(),
    ready_at = case when lease_until is not null then ready_at end
where id = :id and status = 'active'
returning *;

-- name: lock_alarm(id)
select * from pulse.alarms where id = :id for no key update;

-- name: resume_alarm(id, occurrence, next)
update pulse.alarms
set paused_at = null, updated_at = pulse.now(), occurrence = :occurrence, next_fire_at = :next,
    attempt = case when occurrence = :occurrence then attempt else 0 end,
    failure_count = case when occurrence = :occurrence then failure_count else 0 end
where id = :id
returning *;

-- name: end_alarm(id, status, error)
update pulse.alarms
set status = :status, next_fire_at = null, ready_at = null, lease_until = null, lease_id = lease_id + 1,
    last_error = :error, paused_at = null, finished_at = pulse.now(), updated_at = pulse.now()
where id = :id
returning *;

-- name: fire_alarm(id, occurrence)
-- Wake it at once.
update pulse.alarms
set status = 'active', occurrence = :occurrence, next_fire_at = pulse.now(), ready_at = null, finished_at = null,
    lease_id = lease_id + 1, updated_at = pulse.now(),
    attempt = case when occurrence = :occurrence then attempt else 0 end,
    failure_count = case when status = 'active' and occurrence = :occurrence then failure_count else 0 end
where id = :id
returning *;

-- name: peek_alarms()
-- When the next one falls due, and whether there is anything to be made ready again or to be delivered.
select
    (select greatest(next_fire_at, pulse.now() - interval '1 day') - pulse.now() from pulse.alarms
     where next_fire_at is not null and ready_at is null and paused_at is null order by next_fire_at limit 1)
        as until_due,
    coalesce((select lease_until <= pulse.now() from pulse.alarms
     where lease_until is not null order by lease_until limit 1), false) as has_expired,
    exists (select from pulse.alarms where ready_at is not null and lease_until is null) as has_ready;

-- name: ready_alarms(limit)
-- Those whose time has come wait for their turn from now on.
with due as materialized (
    select ctid as place from pulse.alarms
    where next_fire_at <= pulse.now() and ready_at is null and paused_at is null
    order by next_fire_at
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.alarms set ready_at = pulse.now() from due where alarms.ctid = due.place returning 1
)
select count(*)::int as alarms from moved;

-- name: expire_alarms(limit)
-- Whoever held these is gone, or too late: what they report will be refused.
with lost as materialized (
    select ctid as place from pulse.alarms
    where lease_until <= pulse.now()
    order by lease_until
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.alarms
    set lease_until = null, lease_id = lease_id + 1, ready_at = case when paused_at is null then ready_at end
    from lost where alarms.ctid = lost.place
    returning 1
)
select count(*)::int as alarms from moved;

-- name: ready_owners(after, limit)
-- The next so many that have alarms ready, in the order of their names; one step for each, however many alarms it has.
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
-- Of each of these owners the next so many destinations that have alarms ready; one step for each, as above.
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
-- The oldest of each owner at each destination, as many as it may have. The fence is the time, as in claim_jobs.
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

-- name: record_wakes(ids, lease_ids, statuses, occurrences, nexts, failures, errors, outcomes, rung_for, attempts, starts, durations, codes, answers, notes)
-- What came of deliveries, for those whose claim still stands. Answers with which those were. A row that somebody else
-- has locked is passed over, so that one open transaction does not hold up the rest: held_wakes tells it from one whose
-- claim is gone. Each row is looked up by its key and reached by its place: a plain join would be planned, on a table
-- that was empty when it was last looked at, as a walk through all of it, and `is not null` as one through the leased.
-- What is as usual is not sent: a once alarm that was delivered by the first attempt.
with held as materialized (
    select verdict.id, verdict.lease_id, coalesce(status, 'fired') as status,
        coalesce(occurrence, rung_for) as occurrence, next, coalesce(failures, 0) as failures, error,
        coalesce(outcome, 'delivered') as outcome, rung_for, coalesce(attempt, 1) as attempt, started, duration, code,
        answer, note, mine.place
    from unnest(
        :ids::uuid[], :lease_ids::bigint[], :statuses::text[], :occurrences::timestamptz[], :nexts::timestamptz[],
        :failures::int[], :errors::text[], :outcomes::text[], :rung_for::timestamptz[], :attempts::int[],
        :starts::interval[], :durations::interval[], :codes::int[], :answers::text[], :notes::text[]
    ) as verdict (
        id, lease_id, status, occurrence, next, failures, error, outcome, rung_for, attempt, started, duration,
        code, answer, note
    )
    cross join lateral (
        select ctid as place from pulse.alarms
        where alarms.id = verdict.id and alarms.lease_id = verdict.lease_id and num_nulls(lease_until) = 0
        for no key update skip locked
    ) as mine
),
moved as (
    update pulse.alarms
    set status = verdict.status,
        next_fire_at = verdict.next,
        attempt = case when verdict.outcome = 'failed' or alarms.occurrence = verdict.occurrence then alarms.attempt else 0 end,
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
    select id, lease_id, rung_for, attempt, outcome, pulse.now() - started, duration, code, error, answer, note
    from moved
    on conflict do nothing
)
select id, lease_id from moved;

-- name: held_wakes(ids, lease_ids)
-- Those whose claim still stands.
select mine.id, mine.lease_id
from unnest(:ids::uuid[], :lease_ids::bigint[]) as wanted (id, lease_id)
cross join lateral (
    select id, lease_id from pulse.alarms
    where alarms.id = wanted.id and alarms.lease_id = wanted.lease_id and num_nulls(lease_until) = 0
    offset 0
) as mine;

-- name: log_late(ids, lease_ids, revisions, outcomes, occurrences, attempts, starts, durations, codes, errors, answers)
-- Deliveries whose claim is gone: they happened, and count for nothing. Unless the alarm was set anew meanwhile, perhaps by
-- the very one it woke: then it was delivered as it was. Answers with those that were not in the log: what is there was
-- recorded, and only the answer to that was lost.
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
-- Given back undelivered, or not known to be: the next process makes the attempt. One that somebody has locked comes
-- back when its lease ends.
with held as materialized (
    select mine.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as wanted (id, lease_id)
    cross join lateral (
        select ctid as place from pulse.alarms
        where alarms.id = wanted.id and alarms.lease_id = wanted.lease_id and num_nulls(lease_until) = 0
        for no key update skip locked
    ) as mine
)
update pulse.alarms
set lease_until = null, lease_id = lease_id + 1, ready_at = case when paused_at is null then ready_at end
from held where alarms.ctid = held.place;

-- name: defer_alarms(owners, destinations, waits, errors, limit)
-- Nobody is to knock at these doors for a while. It costs the alarms no failure.
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

-- name: wake_secrets()
select secret, created_at, expires_at, is_shared from pulse.wake_secrets
where expires_at is null or expires_at > pulse.now()
order by number desc;

-- name: rotate_wake_secret(secret, overlap)
-- The new one signs from now on, those before it for a while yet: none for longer, so that one that leaked can be ended.
with ending as (
    update pulse.wake_secrets set expires_at = pulse.now() + :overlap::interval
    where expires_at is null or expires_at > pulse.now() + :overlap::interval
)
insert into pulse.wake_secrets (secret, created_at) values (:secret, pulse.now());

-- name: wake_generations()
-- Of the owners whose secret was replaced, those that sign, newest first.
select owner, generation, created_at, expires_at from pulse.wake_generations
where expires_at is null or expires_at > pulse.now()
order by owner, generation desc;

-- name: rotate_owner_secret(owner, overlap)
-- As above, for one owner. Nobody has a line before the first time: generation 0 is what all begin with.
with known as materialized (
    select max(generation) as newest from pulse.wake_generations where owner = :owner
),
ending as (
    update pulse.wake_generations set expires_at = pulse.now() + :overlap::interval
    where owner = :owner and (expires_at is null or expires_at > pulse.now() + :overlap::interval)
),
ended as (
    delete from pulse.wake_generations where owner = :owner and expires_at <= pulse.now()
),
first as (
    insert into pulse.wake_generations (owner, generation, created_at, expires_at)
    select :owner, 0, pulse.now(), pulse.now() + :overlap::interval from known where newest is null
)
insert into pulse.wake_generations (owner, generation, created_at)
select :owner, coalesce(newest, 0) + 1, pulse.now() from known
on conflict do nothing;

-- name: prune_alarms(keep, keep_deliveries, limit)
with old as materialized (
    select ctid as place, id from pulse.alarms
    where finished_at < pulse.now() - :keep::interval
    order by finished_at
    limit :limit
    for update skip locked
),
removed as (
    delete from pulse.alarms using old where alarms.ctid = old.place returning 1
),
theirs as materialized (
    select line.place from old
    cross join lateral (select ctid as place from pulse.deliveries where alarm_id = old.id offset 0) as line
),
past as materialized (
    select ctid as place from pulse.deliveries
    where started_at < pulse.now() - :keep_deliveries::interval
    order by started_at
    limit :limit
),
forgotten as (
    delete from pulse.deliveries using (select place from theirs union select place from past) as line
    where deliveries.ctid = line.place
    returning 1
)
select (select count(*) from removed)::int as alarms, (select count(*) from past)::int as deliveries;

-- name: find_by_key(owner, idempotency_key)
select * from pulse.alarms where owner = :owner and idempotency_key = :idempotency_key;
