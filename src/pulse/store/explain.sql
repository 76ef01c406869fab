-- What there is to find out about a job that does not run. None of them reads more than a bounded number of rows, with a
-- million jobs in line as with ten.

-- name: count_ahead(bucket, topic, urgency, ready_at, id, limit)
-- How many will be claimed before it, up to a limit. Backwards from its own place: what claims have left behind at the
-- head of the index and vacuum could not remove yet comes last, and is not walked over where the limit is met before.
select count(*)::int as jobs
from (
    select from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) < (:urgency::smallint, :ready_at::timestamptz, :id::uuid)
    order by -priority desc, ready_at desc, id desc
    limit :limit
) as ahead;

-- name: count_behind(bucket, topic, urgency, ready_at, id, limit)
-- The same from the other end: of a long line, whoever stands near its end can be told the exact place.
select count(*)::int as jobs
from (
    select from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) > (:urgency::smallint, :ready_at::timestamptz, :id::uuid)
    order by -priority, ready_at, id
    limit :limit
) as behind;

-- name: count_pending(bucket, topic)
-- As count_jobs, of one topic.
select coalesce(sum(jobs), 0)::bigint as jobs
from (
    select jobs from pulse.counts where bucket = :bucket and topic = :topic and status = 'PENDING'
    union all
    select jobs from pulse.tallies where bucket = :bucket and topic = :topic and to_status = 'PENDING'
    union all
    select -jobs from pulse.tallies where bucket = :bucket and topic = :topic and from_status = 'PENDING'
) as moves;

-- name: read_pace(bucket, topic, within, limit)
-- How many jobs of a topic have ended lately, and since when: the latest of them, up to a limit.
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
-- A row if nobody holds it. Whoever asks lets go at once.
select from pulse.jobs where bucket = :bucket and id = :id for no key update skip locked;

-- name: list_holders(limit)
-- Sessions that have locked or written rows of jobs, the oldest transaction first: which row, Postgres does not tell.
select activity.pid, application_name as application, state, xact_start as since, query
from pg_locks as locks
join pg_stat_activity as activity on activity.pid = locks.pid
where locks.relation = 'pulse.jobs'::regclass and locks.granted
    and locks.mode in ('RowShareLock', 'RowExclusiveLock') and locks.pid <> pg_backend_pid()
order by xact_start
limit :limit;
