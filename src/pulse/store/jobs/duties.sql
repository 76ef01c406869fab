-- name: promote_jobs(bucket, limit)
with waiting as materialized (
    select bucket, ctid as place, status
    from pulse.jobs
    where bucket = :bucket and status in ('SCHEDULED', 'RETRYING') and run_at <= pulse.now()
    -- among: and id = any(:ids::uuid[])
    order by run_at, id
    limit :limit
    for no key update skip locked
),
{{moved_to_pending}}
select topic, max(priority)::int as priority, count(*)::int as jobs from moved group by topic;

-- name: expire_jobs(bucket, limit)
-- Dead-letter waiting jobs whose deadline has passed: no handler may get them any more.
with late as materialized (
    select bucket, ctid as place, status
    from pulse.jobs
    where bucket = :bucket and deadline <= pulse.now() and status in ('SCHEDULED', 'PENDING', 'RETRYING')
    -- among: and id = any(:ids::uuid[])
    order by deadline
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.jobs
    set status = 'DEAD_LETTERED',
        last_error = 'deadline passed before it could run' || coalesce('; before that: ' || last_error, ''),
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from late
    where jobs.bucket = late.bucket and jobs.ctid = late.place
    returning jobs.id, topic, late.status as was, jobs.status
),
{{tallied_moves}}
select id from moved;

-- name: reap_jobs(bucket, limit, ended_before)
-- Report the failure that a dead worker could not report. This takes its claim away, so it raises the fence.
with expired as materialized (
    select jobs.bucket, jobs.ctid as place, next.run_at, jobs.lease_id,
        pulse.after_failure(jobs.attempt - jobs.refunded, jobs.max_attempts, next.run_at, jobs.deadline) as status
    from pulse.jobs
    cross join lateral (
        select pulse.now() + pulse.backoff(jobs.retry, jobs.attempt - jobs.refunded, jobs.id::text) as run_at
    ) as next
    where jobs.bucket = :bucket and jobs.status = 'RUNNING' and jobs.lease_until < :ended_before
    -- among: and jobs.id = any(:ids::uuid[])
    limit :limit
    for no key update of jobs skip locked
),
moved as (
    update pulse.jobs
    set status = expired.status,
        run_at = case when expired.status = 'DEAD_LETTERED' then jobs.run_at else expired.run_at end,
        lease_id = jobs.lease_id + 1,
        last_error = 'worker lease expired',
        lease_until = null,
        finished_at = case when expired.status = 'DEAD_LETTERED' then pulse.now() end,
        key_held_until = case
            when expired.status = 'DEAD_LETTERED' then nullif(key_held_until, 'infinity') else key_held_until
        end
    from expired
    where jobs.bucket = expired.bucket and jobs.ctid = expired.place
    returning jobs.id, topic, jobs.status, attempt, locked_by, claimed_at, last_error, expired.lease_id as claim,
        jobs.run_at
),
logged as (
    insert into pulse.attempts (bucket, job_id, lease_id, attempt, worker, started_at, ended_at, error)
    select :bucket, id, claim, attempt, locked_by, claimed_at, pulse.now(), last_error from moved
    on conflict do nothing
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took)
    select :bucket, topic, 'RUNNING', status, count(*), pulse.now(), -1 from moved group by topic, status
)
select id, status, case when status <> 'DEAD_LETTERED' then run_at - pulse.now() end as wait from moved;

-- Postgres may refuse a whole batch because of one row in it. The next three find the ids that such a batch was about,
-- so that it can be tried again in parts.

-- name: ids_to_promote(bucket, limit)
select id from pulse.jobs
where bucket = :bucket and status in ('SCHEDULED', 'RETRYING') and run_at <= pulse.now()
order by run_at, id
limit :limit;

-- name: ids_to_expire(bucket, limit)
select id from pulse.jobs
where bucket = :bucket and deadline <= pulse.now() and status in ('SCHEDULED', 'PENDING', 'RETRYING')
order by deadline
limit :limit;

-- name: ids_to_reap(bucket, limit, ended_before)
select id from pulse.jobs
where bucket = :bucket and status = 'RUNNING' and lease_until < :ended_before
order by lease_until
limit :limit;

-- name: prune_jobs(bucket, keep_completed, keep_cancelled, keep_dead_lettered, limit)
-- Remove finished jobs past their retention, oldest first within each topic. The topics come from the counts,
-- so that one index serves retention and lists alike. A unique key whose window is still open keeps its job.
with past as materialized (
    select old.*
    from pulse.counts
    cross join lateral (
        select jobs.bucket, jobs.ctid as place from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = counts.topic and jobs.status = counts.status
            and finished_at < pulse.now() - case counts.status
                when 'COMPLETED' then :keep_completed::interval
                when 'CANCELLED' then :keep_cancelled::interval
                else :keep_dead_lettered::interval
            end
            and (key_held_until is null or key_held_until <= pulse.now())
        order by finished_at
        limit :limit
        for update skip locked
    ) as old
    where counts.bucket = :bucket and counts.status in ('COMPLETED', 'CANCELLED', 'DEAD_LETTERED')
    limit :limit
),
pruned as (
    delete from pulse.jobs using past
    where jobs.bucket = past.bucket and jobs.ctid = past.place
    returning jobs.id, topic, status
),
logged as materialized (
    select attempt.*
    from pruned
    cross join lateral (
        select bucket, ctid as place from pulse.attempts where bucket = :bucket and job_id = pruned.id offset 0
    ) as attempt
),
forgotten as (
    delete from pulse.attempts using logged
    where attempts.bucket = logged.bucket and attempts.ctid = logged.place
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, jobs, moved_at)
    select :bucket, topic, status, count(*), pulse.now() from pruned group by topic, status
)
select count(*)::int from pruned;

-- name: prune_results(bucket, limit)
with past as materialized (
    select bucket, ctid as place from pulse.jobs
    where bucket = :bucket and result_until <= pulse.now()
    order by result_until
    limit :limit
    for no key update skip locked
),
cleared as (
    update pulse.jobs set result = null, result_until = null
    from past
    where jobs.bucket = past.bucket and jobs.ctid = past.place
    returning jobs.id
)
select count(*)::int from cleared;
