-- What charts, metrics and overviews read. Nothing here counts jobs: figures come from the counts, the tallies and the
-- series, and what is looked up in the jobs is the first entry of an index.

-- name: read_series(buckets, span, topic, since)
-- One line of a chart, in order of time.
select at, event, took, sum(jobs)::bigint as jobs, sum(seconds) as seconds
from unnest(:buckets::smallint[]) as home (bucket)
cross join lateral (
    select at, event, took, jobs, seconds from pulse.series
    where series.bucket = home.bucket and span = :span and topic = :topic and at >= :since::timestamptz
    order by at, event, took
    offset 0
) as part
group by at, event, took
order by at, event, took;

-- name: read_recent(buckets)
-- What each topic did of late: in this minute and the one before for rates, in this quarter of an hour and the one
-- before for shares.
select span, topic, event, sum(jobs)::bigint as jobs, sum(seconds) as seconds
from unnest(:buckets::smallint[]) as home (bucket)
cross join (values
    ('minute', date_bin('1 minute', pulse.now() - interval '1 minute', timestamptz 'epoch')),
    ('quarter', date_bin('15 minutes', pulse.now() - interval '15 minutes', timestamptz 'epoch'))
) as recent (span, since)
cross join lateral (
    select topic, event, jobs, seconds from pulse.series
    where series.bucket = home.bucket and series.span = recent.span and at >= since
    offset 0
) as part
group by span, topic, event;

-- name: read_totals(buckets)
-- What ever happened, with what is not folded yet: exact in any snapshot.
select topic, event, took, sum(jobs)::bigint as jobs, sum(seconds) as seconds
from (
    select kept.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select topic, event, took, jobs, seconds from pulse.series
        where series.bucket = home.bucket and span = 'ever' and topic <> '*'
        order by topic, at, event, took
        offset 0
    ) as kept
    union all
    select topic, pulse.event_of(from_status, to_status), coalesce(took, -1), jobs, coalesce(seconds, 0)
    from pulse.tallies
    union all
    select topic, 'submitted', -1, jobs, 0 from pulse.tallies where from_status is null
    union all
    select topic, 'reaped', -1, jobs, 0 from pulse.tallies
    where from_status = 'RUNNING' and to_status in ('RETRYING', 'DEAD_LETTERED') and took = -1
) as events
where event is not null
group by topic, event, took
order by topic, event, took;

-- name: prune_series(bucket, limit)
with past as materialized (
    select old.*
    from (values
        ('minute', interval '2 hours'), ('quarter', interval '2 days'), ('hour', interval '8 days')
    ) as kept (span, keep)
    cross join lateral (
        select bucket, ctid as place from pulse.series
        where bucket = :bucket and series.span = kept.span and at < pulse.now() - keep
        limit :limit
        for update skip locked
    ) as old
    limit :limit
),
pruned as (
    delete from pulse.series using past
    where series.bucket = past.bucket and series.ctid = past.place
    returning at
)
select count(*)::int from pruned;

-- name: forget_series(buckets, limit)
-- Of topics that have had no job for a while. What is not counted is looked up row by row, and the tallies are asked for
-- those that are left: compared with each other at once, a backlog of tallies would be read again for every row. One that
-- was folded into meanwhile is not what it was, and stays.
with uncounted as materialized (
    select ever.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select bucket, ctid as place, topic, jobs from pulse.series
        where series.bucket = home.bucket and span = 'ever' and topic <> '*'
        order by topic, at, event, took
        offset 0
    ) as ever
    left join lateral (
        select true as is_counted from pulse.counts
        where counts.bucket = ever.bucket and counts.topic = ever.topic
        limit 1
    ) as known on true
    where is_counted is null
),
past as materialized (
    select bucket, place, jobs from uncounted
    where topic not in (select distinct topic from pulse.tallies)
    limit :limit
)
delete from pulse.series using past
where series.bucket = past.bucket and series.ctid = past.place and series.jobs = past.jobs;

-- name: oldest_pending(buckets, topics)
-- Since when the oldest waiting job of each topic waits. The claim index has them by urgency first, so the oldest of
-- each urgency is looked at, stepping from one to the next: there are few.
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
-- Which tasks there are: those of the next jobs of each topic, and of the last that ended well or badly.
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
-- What needs somebody's attention, each from the few entries of an index of its own. Counted up to a thousand.
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
-- The transaction that has kept vacuum from cleaning up for the longest time, if that is long.
select pid, coalesce(application_name, '') as application, coalesce(state, '') as state,
    pulse.now() - xact_start as age
from pg_stat_activity
where backend_xmin is not null and xact_start < pulse.now() - :age::interval and pid <> pg_backend_pid()
    and backend_type = 'client backend' and datname = current_database()
order by xact_start
limit 1;
