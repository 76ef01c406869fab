-- name: last_fires(ids, occurrences)
-- Read when these occurrences were fired.
select fires.schedule_id, fires.logged_at
from unnest(:ids::uuid[], :occurrences::timestamptz[]) as wanted (id, occurrence)
cross join lateral (
    select schedule_id, logged_at from pulse.fires
    where fires.schedule_id = wanted.id and fires.occurrence = wanted.occurrence and outcome = 'FIRED'
    offset 0
) as fires;

-- name: list_fires(schedule_id, before_occurrence, before_outcome, limit)
-- The newest first, each with the state of its job.
select occurrence, outcome, cause, logged_at, occurrences, newest, reason, job_id, job.status as job_status
from (
    select *, pulse.bucket_of_id(job_id) as bucket
    from pulse.fires
    where schedule_id = :schedule_id
        and (occurrence, outcome) < (:before_occurrence::timestamptz, :before_outcome::text)
    order by occurrence desc, outcome desc
    limit :limit
) as fire
left join lateral (
    select status from pulse.jobs
    where jobs.bucket = fire.bucket and jobs.id = fire.job_id
    offset 0
) as job on true
order by occurrence desc, outcome desc;

-- name: fired_occurrences(schedule_id, occurrences)
select occurrence from pulse.fires
where schedule_id = :schedule_id and occurrence = any(:occurrences::timestamptz[]) and outcome = 'FIRED';

-- name: prune_fires(after, schedules, keep, limit)
-- Prune a number of schedules, one after the other along the key, from where the last call ended: an index by age would
-- make each fire a twentieth slower. Returns the last schedule that it came to, and how many lines were removed.
with recursive visited as (
    (select schedule_id, 1 as number from pulse.fires where schedule_id > :after order by schedule_id limit 1)
    union all
    select following.schedule_id, number + 1
    from visited
    cross join lateral (
        select schedule_id from pulse.fires
        where fires.schedule_id > visited.schedule_id
        order by schedule_id limit 1
    ) as following
    where number < :schedules
),
past as materialized (
    select old.place
    from visited
    cross join lateral (
        select ctid as place from pulse.fires
        where fires.schedule_id = visited.schedule_id
            and occurrence < pulse.now() - :keep::interval and logged_at < pulse.now() - :keep
        order by occurrence
        limit :limit
        for update skip locked
    ) as old
    limit :limit
),
pruned as (
    delete from pulse.fires using past where fires.ctid = past.place returning 1
)
select
    (select schedule_id from visited where number = :schedules) as last,
    (select count(*) from pruned)::int as lines;
