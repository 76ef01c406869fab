-- name: roll_tallies(bucket, limit)
-- Fold tallies into the counts and the series. The rows are sorted, so that two processes that roll at once lock them
-- in one order.
with taken as materialized (
    select ctid as place from pulse.tallies where bucket = :bucket limit :limit for update skip locked
),
gone as (
    delete from pulse.tallies using taken
    where tallies.bucket = :bucket and tallies.ctid = taken.place
    returning topic, from_status, to_status, jobs, moved_at, took, seconds
),
rolled as (
    insert into pulse.counts as counts (bucket, topic, status, jobs)
    select :bucket, topic, status, sum(jobs)
    from (
        select topic, to_status as status, jobs from gone where to_status is not null
        union all
        select topic, from_status, -jobs from gone where from_status is not null
    ) as moves
    group by topic, status
    order by topic, status
    on conflict (bucket, topic, status) do update set jobs = counts.jobs + excluded.jobs
),
events as (
    select topic, moved_at, pulse.event_of(from_status, to_status) as event, coalesce(took, -1) as took, jobs,
        coalesce(seconds, 0) as seconds
    from gone
    union all
    select topic, moved_at, 'submitted', -1, jobs, 0 from gone where from_status is null
    union all
    select topic, moved_at, 'reaped', -1, jobs, 0 from gone
    where from_status = 'RUNNING' and to_status in ('RETRYING', 'DEAD_LETTERED') and took = -1
),
charted as (
    insert into pulse.series as series (bucket, span, topic, at, event, took, jobs, seconds)
    select :bucket, span, line.topic, at, event, took, sum(jobs), sum(seconds)
    from events
    cross join lateral (values (events.topic), ('*')) as line (topic)
    cross join lateral (values
        ('minute', date_bin('1 minute', moved_at, timestamptz 'epoch')),
        ('quarter', date_bin('15 minutes', moved_at, timestamptz 'epoch')),
        ('hour', date_bin('1 hour', moved_at, timestamptz 'epoch')),
        ('ever', timestamptz 'epoch')
    ) as drawn (span, at)
    where event is not null
    group by span, line.topic, at, event, took
    order by span, line.topic, at, event, took
    on conflict (bucket, span, topic, at, event, took) do update
    set jobs = series.jobs + excluded.jobs, seconds = series.seconds + excluded.seconds
)
select count(*)::int from gone;

-- name: forget_counts()
-- Forget topics that no longer have a job.
delete from pulse.counts where jobs = 0;

-- name: tallied_buckets()
select distinct bucket from pulse.tallies;

-- name: count_jobs()
-- Exact at every instant, and as cheap with ten million rows as with ten.
select topic, status, sum(jobs)::bigint as jobs
from (
    select topic, status, jobs from pulse.counts
    union all
    select topic, to_status, jobs from pulse.tallies where to_status is not null
    union all
    select topic, from_status, -jobs from pulse.tallies where from_status is not null
) as moves
group by topic, status
having sum(jobs) <> 0
order by topic, status;
