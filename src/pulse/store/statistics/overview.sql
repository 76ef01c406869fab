-- What overviews and metrics show beside the series. Nothing here counts jobs: what is looked up in the jobs is the
-- first entries of an index.

-- name: oldest_pending(buckets, topics)
-- Read since when the oldest waiting job of each topic has waited. The claim index has the jobs by urgency first, so
-- the oldest job of each urgency is read, stepping from one urgency to the next: there are few.
select wanted.topic, min(step.ready_at) as ready_at
from unnest(:buckets::smallint[], :topics::text[]) as wanted (bucket, topic)
cross join lateral (
    with recursive urgencies as (
        (
            select -priority as urgency, ready_at from pulse.jobs
            where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and status = 'PENDING'
            order by -priority, ready_at
            limit 1
        )
        union all
        select next.urgency, next.ready_at
        from urgencies
        cross join lateral (
            select -priority as urgency, ready_at from pulse.jobs
            where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and status = 'PENDING'
                and -priority > urgencies.urgency
            order by -priority, ready_at
            limit 1
        ) as next
    )
    select ready_at from urgencies
) as step
group by wanted.topic;

-- name: recent_tasks(buckets, topics, limit)
-- Find which tasks there are: those of the next jobs of each topic, and of the last ones that completed or were
-- dead-lettered.
select distinct wanted.topic, seen.task
from unnest(:buckets::smallint[], :topics::text[]) as wanted (bucket, topic)
cross join lateral (
    (
        select task from pulse.jobs
        where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and status = 'PENDING'
        order by -priority, ready_at, id
        limit :limit
    )
    union all
    select recent.task
    from unnest(array['COMPLETED', 'DEAD_LETTERED']) as ended (status)
    cross join lateral (
        select task from pulse.jobs
        where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and jobs.status = ended.status
            and finished_at is not null
        order by finished_at desc
        limit :limit
    ) as recent
) as seen
order by wanted.topic, seen.task;

-- name: read_concerns()
-- Read what needs attention, each figure from a partial index with few entries. Counts go up to a thousand.
select
    pulse.now() as now,
    (select count(*) from (select from pulse.schedules where status = 'BROKEN' limit 1000) as first)::int
        as broken_schedules,
    (select pulse.now() - next_run_at from pulse.schedules
     where next_run_at is not null and paused_at is null and next_run_at < pulse.now() and isfinite(next_run_at)
     order by next_run_at limit 1) as schedules_overdue,
    (select count(*) from (
        select from pulse.alarms where failure_count > 0 and finished_at is null limit 1000
    ) as first)::int as failing_alarms,
    (select count(*) from (
        select from pulse.alarms where status = 'failed' and finished_at > pulse.now() - interval '1 day' limit 1000
    ) as first)::int as failed_alarms,
    (select pulse.now() - next_fire_at from pulse.alarms
     where next_fire_at is not null and ready_at is null and paused_at is null and next_fire_at < pulse.now()
     order by next_fire_at limit 1) as alarms_overdue;

-- name: oldest_snapshot(age)
-- Find the transaction that has kept vacuum from cleaning up for the longest time, if that is longer than :age.
select pid, coalesce(application_name, '') as application, coalesce(state, '') as state,
    pulse.now() - xact_start as age
from pg_stat_activity
where backend_xmin is not null and xact_start < pulse.now() - :age::interval and pid <> pg_backend_pid()
    and backend_type = 'client backend' and datname = current_database()
order by xact_start
limit 1;
