-- What can be found out about a job that does not run. Each statement reads a bounded number of rows, whether ten jobs
-- are in line or a million.

-- name: count_ahead(bucket, topic, urgency, ready_at, id, limit)
-- Count the jobs that will be claimed before this one, up to a limit. The scan goes backwards from the job's own place:
-- dead entries that claims have left at the head of the index, until vacuum removes them, come last, and are not read
-- at all if the limit is reached before.
select count(*)::int as jobs
from (
    select from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) < (:urgency::smallint, :ready_at::timestamptz, :id::uuid)
    order by -priority desc, ready_at desc, id desc
    limit :limit
) as ahead;

-- name: count_behind(bucket, topic, urgency, ready_at, id, limit)
-- Count the jobs behind this one, up to a limit, so that a job near the end of a long line can be told its exact place.
select count(*)::int as jobs
from (
    select from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) > (:urgency::smallint, :ready_at::timestamptz, :id::uuid)
    order by -priority, ready_at, id
    limit :limit
) as behind;

-- name: count_pending(bucket, topic)
-- As count_jobs, for the PENDING jobs of one topic.
select coalesce(sum(jobs), 0)::bigint as jobs
from (
    select jobs from pulse.counts where bucket = :bucket and topic = :topic and status = 'PENDING'
    union all
    select jobs from pulse.tallies where bucket = :bucket and topic = :topic and to_status = 'PENDING'
    union all
    select -jobs from pulse.tallies where bucket = :bucket and topic = :topic and from_status = 'PENDING'
) as moves;

-- name: read_pace(bucket, topic, within, limit)
-- Count the jobs of a topic that have ended within a length of time, the latest ones up to a limit, and tell since
-- when.
select count(*)::int as jobs, min(finished_at) as since
from (
    select finished_at
    from unnest(array['COMPLETED', 'DEAD_LETTERED']) as ended (status)
    cross join lateral (
        select finished_at from pulse.jobs
        where bucket = :bucket and topic = :topic and jobs.status = ended.status and finished_at is not null
            and finished_at > pulse.now() - :within::interval
        order by finished_at desc
        limit :limit
    ) as latest
    order by finished_at desc
    limit :limit
) as latest;

-- name: is_row_free(bucket, id)
-- Returns a row if nobody has locked the job. The lock that this takes ends with its transaction, at once.
select from pulse.jobs where bucket = :bucket and id = :id for no key update skip locked;

-- name: list_holders(limit)
-- Find sessions that have locked or written rows of jobs, the oldest transaction first. Postgres does not tell which
-- rows.
select activity.pid, application_name as application, state, xact_start as since, query
from pg_locks as locks
join pg_stat_activity as activity on activity.pid = locks.pid
where locks.relation = 'pulse.jobs'::regclass and locks.granted
    and locks.mode in ('RowShareLock', 'RowExclusiveLock') and locks.pid <> pg_backend_pid()
order by xact_start
limit :limit;
