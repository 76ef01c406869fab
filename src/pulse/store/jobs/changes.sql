-- name: cancel_jobs(bucket, ids, reason)
with open as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, status from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id and finished_at is null
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
),
moved as (
    update pulse.jobs
    set status = 'CANCELLED',
        lease_id = lease_id + 1,
        last_error = :reason,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from open
    where jobs.bucket = open.bucket and jobs.ctid = open.place
    returning jobs.id, topic, open.status as was, jobs.status
),
{{tallied_moves}}
select id, was from moved;

-- name: free_replayed_keys(bucket, ids)
-- As free_keys, for the unique keys that these jobs want back.
with passed as materialized (
    select holder.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select topic, unique_key from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
    ) as named
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = named.topic and jobs.unique_key = named.unique_key
            and jobs.key_held_until <= pulse.now() and lease_until is null
        for no key update skip locked
    ) as holder
    limit cardinality(:ids::uuid[])
)
update pulse.jobs set key_held_until = null
from passed
where jobs.bucket = passed.bucket and jobs.ctid = passed.place;

-- name: replay_jobs(bucket, ids, before)
-- Put dead letters back to work with a fresh budget of attempts, if they died at that instant or earlier. Each takes
-- its unique key back. Where another job holds the key by now, the dead letter stays as it is; where several of these
-- jobs have one key, only one of them is replayed.
with {{patience}},
named as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, id, topic, status, unique_key, finished_at from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id
        for no key update skip locked
    ) as job
),
dead as (
    select named.*
    from named
    left join lateral (
        select id from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = named.topic and jobs.unique_key = named.unique_key
            and key_held_until is not null and jobs.id <> named.id
        offset 0
    ) as holder on true
    where status = 'DEAD_LETTERED' and finished_at <= :before::timestamptz and holder.id is null
),
chosen as materialized (
    select distinct on (topic, coalesce(unique_key, id::text)) bucket, place from dead
    order by topic, coalesce(unique_key, id::text), id
    limit cardinality(:ids::uuid[])
),
moved as (
    update pulse.jobs
    set status = 'PENDING',
        ready_at = pulse.now(),
        run_at = pulse.now(),
        refunded = attempt,
        lease_id = lease_id + 1,
        finished_at = null,
        deadline = case when deadline > pulse.now() then deadline end,
        key_held_until = case
            when unique_key is null then null
            when key_held_until > pulse.now() then key_held_until
            else 'infinity'
        end
    from patience, chosen
    where jobs.bucket = chosen.bucket and jobs.ctid = chosen.place
    returning jobs.id, topic, priority, 'DEAD_LETTERED' as was, jobs.status
),
{{tallied_moves}}
select id, topic, priority from moved;

-- name: run_jobs_now(bucket, ids)
-- As promote_jobs, for these jobs and before they are due. Their run_at stays as it is, because a repeated submit is
-- compared with it. Their fence stays too: nobody holds a claim on a job that waits.
-- The state is checked after the look-up by id. Checked together with the id, it would let the planner choose jobs_due,
-- the index of all jobs that wait for their time.
with named as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, status from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id
        for no key update skip locked
    ) as job
),
waiting as materialized (
    select * from named where status in ('SCHEDULED', 'RETRYING') limit cardinality(:ids::uuid[])
),
{{moved_to_pending}}
select id, topic, priority from moved;

-- name: pause_topic(topic, reason)
insert into pulse.pauses (topic, reason, paused_at) values (:topic, :reason, pulse.now())
on conflict (topic) do update set reason = excluded.reason
returning topic, reason, paused_at;

-- name: resume_topic(topic)
delete from pulse.pauses where topic = :topic returning topic;

-- name: list_pauses()
select topic, reason, paused_at from pulse.pauses order by topic;
