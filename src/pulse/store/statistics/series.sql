-- What charts and metrics read. Nothing here counts jobs: the figures come from the counts, the tallies and the series.

-- name: read_series(buckets, span, topic, since)
-- Read one line of a chart, in order of time.
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
-- Read what each topic has done lately: in this minute and the one before it for rates, and in this quarter of an hour
-- and the one before it for shares.
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
-- Read what has ever happened, including tallies that are not folded yet: exact in any snapshot.
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
-- Forget topics that no longer have a job. Rows whose topic has no count are found one by one, and only for those that
-- are left are the tallies read: if both were compared at once, a backlog of tallies would be read again for every row.
-- A row that another process has folded tallies into meanwhile has changed, and stays.
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
