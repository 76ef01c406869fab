-- What is overdue counts as overdue by a day at most, so that no instant, however far back, can stop the loop that
-- asks. (`greatest` skips nulls, so a null is tested for first.)

-- fragment: until_jobs
case when due.run_at is not null
    then greatest(due.run_at, pulse.now() - interval '1 day') - pulse.now() end as until_due,
case when late.deadline is not null
    then greatest(late.deadline, pulse.now() - interval '1 day') - pulse.now() end as until_late

-- fragment: next_jobs
from unnest(:buckets::smallint[]) as bucket
left join lateral (
    select run_at from pulse.jobs
    where jobs.bucket = bucket.bucket and status in ('SCHEDULED', 'RETRYING')
    order by run_at limit 1
) as due on true
left join lateral (
    select deadline from pulse.jobs
    where jobs.bucket = bucket.bucket and deadline is not null and status in ('SCHEDULED', 'PENDING', 'RETRYING')
    order by deadline limit 1
) as late on true

-- fragment: until_schedule
(
    select greatest(next_run_at, pulse.now() - interval '1 day') - pulse.now() from pulse.schedules
    where next_run_at is not null and paused_at is null order by next_run_at limit 1
)

-- fragment: has_buffered
exists (select from pulse.schedules where buffered_for is not null and paused_at is null)

-- fragment: has_ready_alarms
exists (select from pulse.alarms where ready_at is not null and lease_until is null)

-- name: peek_duties(buckets, schedules, alarms)
-- Tell the loops in one read when the next job of each bucket, the next schedule and the next alarm fall due. Schedules
-- and alarms are read only if they are asked for.
select
    bucket,
    {{until_jobs}},
    case when :schedules::boolean then {{until_schedule}} end as until_fire,
    case when :schedules::boolean then {{has_buffered}} else false end as is_buffering,
    case when not :alarms::boolean then null
    when {{has_ready_alarms}} then interval '0'
    else (select greatest(least(next_fire_at, lease_until), pulse.now() - interval '1 day') - pulse.now() from (
        select
            (select next_fire_at from pulse.alarms
             where next_fire_at is not null and ready_at is null and paused_at is null
             order by next_fire_at limit 1) as next_fire_at,
            (select lease_until from pulse.alarms where lease_until is not null order by lease_until limit 1)
                as lease_until
    ) as first where coalesce(next_fire_at, lease_until) is not null) end as until_wake
{{next_jobs}};

-- name: peek_jobs(buckets)
-- The same for jobs alone, so that nobody's lock on schedules or alarms holds it up.
select
    bucket,
    {{until_jobs}},
    null::interval as until_fire,
    false as is_buffering,
    null::interval as until_wake
{{next_jobs}};

-- name: peek_schedules()
select {{until_schedule}} as until_due, {{has_buffered}} as is_buffering;

-- name: peek_alarms()
-- Tell when the next alarm falls due, and whether any lease has expired or any alarm is ready to be delivered.
select
    (select greatest(next_fire_at, pulse.now() - interval '1 day') - pulse.now() from pulse.alarms
     where next_fire_at is not null and ready_at is null and paused_at is null order by next_fire_at limit 1)
        as until_due,
    coalesce((select lease_until <= pulse.now() from pulse.alarms
     where lease_until is not null order by lease_until limit 1), false) as has_expired,
    {{has_ready_alarms}} as has_ready;
