-- name: look_at_leases(buckets, lease, longest_gap, spacing)
-- Note that somebody looks at the leases now. Returns the instant before which an ended lease may be taken away, how
-- long until that is so of all leases, and the buckets that have ended ones (docs/decisions/0038).
-- The look is written at most once per :spacing, however many processes look. The update that changes nothing takes the
-- lock on the table that heartbeats need: while they have to wait for somebody's lock, this waits too, and no look is
-- noted.
with patience as materialized (
    select set_config('lock_timeout', '500', true)
),
can_renew as (
    update pulse.jobs set lease_until = lease_until from unnest(:buckets::smallint[]) as home (bucket)
    where jobs.bucket = home.bucket and false
),
before as (  -- a clock that was set back must not leave instants in the future
    select pulse.now() as now, coalesce(max(seen_at) > pulse.now(), false) as was_set_back,
        least(coalesce(max(seen_at), '-infinity'), pulse.now()) as seen_at,
        least(coalesce(max(steady_since), '-infinity'), pulse.now()) as steady_since,
        least(coalesce(max(judged_to), '-infinity'), pulse.now()) as judged_to
    from pulse.watch
),
after as (
    select now, was_set_back or seen_at <= now - :spacing::interval as is_worth_writing,
        case when was_away then now else steady_since end as steady_since,
        case
            when not was_away then judged_to
            when seen_at >= steady_since + :lease::interval then seen_at
            when seen_at >= steady_since + :lease::interval / 2 then greatest(judged_to, steady_since)
            else judged_to
        end as judged_to
    from patience, before
    cross join lateral (select seen_at < now - :longest_gap::interval as was_away) as gap
),
noted as (
    insert into pulse.watch (seen_at, steady_since, judged_to)
    select now, steady_since, judged_to from after where is_worth_writing
    on conflict (only_row) do update set
        seen_at = excluded.seen_at,
        steady_since = excluded.steady_since,
        judged_to = excluded.judged_to
    where watch.seen_at <> excluded.seen_at
),
judging as (
    select case when is_steady then now else judged_to end as ended_before,
        case when is_steady then interval '0' else steady_since + :lease::interval - now end as until_steady
    from after
    cross join lateral (select now >= steady_since + :lease::interval as is_steady) as life
)
select ended_before, until_steady, array(
    select home.bucket
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select from pulse.jobs
        where jobs.bucket = home.bucket and status = 'RUNNING' and lease_until < pulse.now()
        limit 1
    ) as expired
) as buckets
from judging;
