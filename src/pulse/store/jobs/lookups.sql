-- name: get_jobs(bucket, ids)
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select
        id, status, topic, task, payload, priority, attempt, max_attempts, refunded, lease_id, submitted_at, ready_at,
        run_at, claimed_at, lease_until, finished_at, locked_by, last_error,
        case when result_until <= pulse.now() then null else result end as result,
        progress, retry, tags, trace, timeout, deadline, result_ttl, unique_key, key_held_until, schedule_id,
        scheduled_for
    from pulse.jobs
    where bucket = :bucket and jobs.id = wanted.id
    offset 0
) as job;

-- name: get_job_heads(bucket, ids)
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select
        id, status, topic, task, priority, attempt, max_attempts, refunded, submitted_at, ready_at, run_at, claimed_at,
        finished_at, locked_by, left(last_error, 500) as last_error
    from pulse.jobs
    where bucket = :bucket and jobs.id = wanted.id
    offset 0
) as job;

-- name: finished_ids(bucket, ids)
-- Find which of these jobs have finished. It is asked again and again for all jobs that anybody waits for, so it reads
-- no more than it must.
select wanted.id
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select status from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job
where job.status in ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED');

-- name: read_topics(bucket, ids)
select wanted.id, job.topic
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select topic from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;

-- name: list_attempts(bucket, id)
select lease_id, attempt, worker, started_at, ended_at, error, traceback
from pulse.attempts
where bucket = :bucket and job_id = :id
order by lease_id;

-- name: read_leases(bucket, ids)
-- Read what the rows say now, for reports that a guarded statement did not accept.
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select id, status, lease_id from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;

-- name: read_claims(bucket, ids)
-- Read who holds these jobs, for a server that is asked about claims that it did not make.
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select id, lease_id, topic, locked_by from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;
