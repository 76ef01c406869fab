-- The statements of `pulse bench`. The first ones are bare SQL for the same operations on the same columns: no pauses, no
-- deadlines, no low-water marks, no workers, no tallies, no unique keys, and only the two indexes that they need.

-- name: create_lean()
drop table if exists pulse.lean;
create table pulse.lean (like pulse.jobs including defaults, primary key (bucket, id)) with (fillfactor = 70);
create index on pulse.lean (bucket, topic, (-priority), ready_at, id) where status = 'PENDING';

-- name: drop_lean()
drop table if exists pulse.lean;

-- name: fill_lean(topic, jobs, payload)
insert into pulse.lean (bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, status, lease_id)
select 0, pulse.make_id(clock_timestamp(), 0::smallint, gen_random_uuid()), :topic, :topic, :payload::jsonb, 0, 3,
    statement_timestamp(), statement_timestamp(), statement_timestamp(), 'PENDING', 1
from generate_series(1, :jobs::int);

-- name: claim_lean(topic, limit, worker, lease)
with first as materialized (
    select id from pulse.lean
    where bucket = 0 and topic = :topic and status = 'PENDING'
    order by -priority, ready_at, id
    limit :limit
    for no key update skip locked
)
update pulse.lean
set status = 'RUNNING', attempt = attempt + 1, lease_id = lease_id + 1, locked_by = :worker,
    claimed_at = statement_timestamp(), lease_until = statement_timestamp() + :lease::interval
from first
where lean.bucket = 0 and lean.id = first.id
returning lean.id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
    ready_at, claimed_at, lease_until, timeout, deadline, trace;

-- name: complete_lean(ids, lease_ids, results)
update pulse.lean
set status = 'COMPLETED', result = report.result, lease_until = null, finished_at = statement_timestamp()
from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
where lean.bucket = 0 and lean.id = report.id and status = 'RUNNING' and lean.lease_id = report.lease_id
returning lean.id;

-- name: insert_lean(ids, topics, payloads)
insert into pulse.lean (bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, status, lease_id)
select 0, id, topic, topic, payload, 0, 3, statement_timestamp(), statement_timestamp(), statement_timestamp(), 'PENDING', 1
from unnest(:ids::uuid[], :topics::text[], :payloads::jsonb[]) as new (id, topic, payload)
returning id;

-- name: empty_jobs()
truncate pulse.jobs, pulse.attempts, pulse.tallies, pulse.counts, pulse.pauses;

-- name: bench_now()
select extract(epoch from clock_timestamp())::float8 as seconds;

-- name: last_finished(bucket, topic)
select extract(epoch from max(finished_at))::float8 as seconds
from pulse.jobs where bucket = :bucket and topic = :topic and status = 'COMPLETED' and finished_at is not null;

-- name: count_completed(bucket, topic)
select count(*)::int as jobs
from pulse.jobs where bucket = :bucket and topic = :topic and status = 'COMPLETED' and finished_at is not null;

-- name: bench_lateness(bucket, topic)
-- How long after its instant each job that had to wait was claimed.
select extract(epoch from claimed_at - run_at)::float8 * 1000 as milliseconds
from pulse.jobs where bucket = :bucket and topic = :topic and status = 'COMPLETED' and finished_at is not null;

-- name: bench_waits(bucket, topic)
select extract(epoch from claimed_at - submitted_at)::float8 * 1000 as milliseconds
from pulse.jobs where bucket = :bucket and topic = :topic and status = 'COMPLETED' and finished_at is not null;

-- name: fill_background(bucket, topic, other_topics, rows, status, ready, due_in, finished)
-- Insert rows that the benchmark does not drain.
insert into pulse.jobs (
    bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, finished_at, status, lease_id
)
select :bucket, pulse.make_id(statement_timestamp() - interval '1 hour', :bucket::smallint, gen_random_uuid()),
    :topic || case when :other_topics::int > 0 then '-' || number % :other_topics::int else '' end, :topic, '{}', -1, 3,
    statement_timestamp(), statement_timestamp() + :due_in::interval,
    case when :ready::boolean then statement_timestamp() end,
    case when :finished::boolean then statement_timestamp() - interval '1 hour' end, :status, 1
from generate_series(1, :rows::int) as number;

-- name: transactions()
select xact_commit as commits, xact_rollback as rollbacks from pg_stat_database where datname = current_database();

-- name: vacuum_lean()
vacuum (analyze) pulse.lean;

-- name: empty_schedules()
truncate pulse.schedules, pulse.fires;

-- name: fill_schedules(name, schedules, due_in, spacing, task, bucket, payload)
-- Insert schedules that are due at one instant, or one after the other; half by cron in five time zones, half at
-- intervals.
insert into pulse.schedules (
    id, name, status, next_run_at, created_at, updated_at, kind, cron, every, anchor, tz, catch_up, replay_limit,
    overlap, task, topic, bucket, payload, priority, max_attempts
)
select
    pulse.make_id(clock_timestamp(), 0::smallint, gen_random_uuid()), :name || n, 'ACTIVE', due.at,
    clock_timestamp(), clock_timestamp(),
    case n % 2 when 0 then 'cron' else 'interval' end,
    case n % 2 when 0 then (n % 60) || ' ' || (n % 24) || ' * * *' end,
    case n % 2 when 1 then interval '1 hour' + n % 1000 * interval '1 second' end,
    case n % 2 when 1 then due.at end,
    (array['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Australia/Sydney'])[1 + n % 5],
    'fire_once', 100, 'allow', :task, :task, :bucket, :payload::jsonb, 0, 3
from generate_series(0, :schedules::int - 1) as n
cross join lateral (select statement_timestamp() + :due_in::interval + n * :spacing::interval as at) as due;

-- name: has_unfired()
-- Schedules that have not fired are the first in the order in which they fall due, so this reads a single row.
select exists (
    select from pulse.schedules
    where next_run_at is not null and paused_at is null and fired = 0
    order by next_run_at limit 1
);

-- name: fire_seconds(name)
-- The seconds from the instant at which the schedules were due to the last fire.
select extract(epoch from max(logged_at) - min(occurrence))::float8
from pulse.fires where outcome = 'FIRED' and schedule_id in (
    select id from pulse.schedules where name >= :name and name < :name || ':'
);

-- name: fire_lateness(name)
select extract(epoch from logged_at - occurrence)::float8 * 1000
from pulse.fires where outcome = 'FIRED' and schedule_id in (
    select id from pulse.schedules where name >= :name and name < :name || ':'
);

-- name: start_lateness(bucket, topic)
select extract(epoch from claimed_at - scheduled_for)::float8 * 1000
from pulse.jobs where bucket = :bucket and topic = :topic and claimed_at is not null;

-- name: list_made_jobs(bucket, topic)
select id, scheduled_for from pulse.jobs where bucket = :bucket and topic = :topic;

-- name: create_copy()
-- A table with the same columns and indexes as jobs, to measure what any insert of such rows costs.
drop table if exists pulse.jobs_copy;
create table pulse.jobs_copy (like pulse.jobs including all) with (fillfactor = 70);

-- name: drop_copy()
drop table if exists pulse.jobs_copy;

-- name: insert_copy(ids, topics, buckets, payloads, instants)
insert into pulse.jobs_copy (
    bucket, id, topic, task, payload, priority, max_attempts, schedule_id, scheduled_for, submitted_at, run_at, ready_at,
    status, lease_id
)
select bucket, id, topic, topic, payload, 0, 3, id, instant, statement_timestamp(), statement_timestamp(),
    statement_timestamp(), 'PENDING', 1
from unnest(:ids::uuid[], :topics::text[], :buckets::smallint[], :payloads::jsonb[], :instants::timestamptz[])
    as new (id, topic, bucket, payload, instant);

-- name: empty_alarms()
truncate pulse.alarms, pulse.deliveries;

-- name: fill_alarms(owner, alarms, due_at, spacing, destinations, payload)
-- Insert alarms that are due at one instant, or one after the other; destinations take turns.
insert into pulse.alarms (
    id, owner, fingerprint, kind, payload, url, destination, max_failures, occurrence, next_fire_at, created_at, updated_at
)
select
    pulse.make_id(clock_timestamp(), 0::smallint, gen_random_uuid()), :owner, '', 'once', :payload::jsonb,
    place.destination || '/wake', place.destination, 5, due.at, due.at, clock_timestamp(), clock_timestamp()
from generate_series(0, :alarms::int - 1) as n
cross join lateral (
    select (:destinations::text[])[1 + n % cardinality(:destinations::text[])] as destination
) as place
cross join lateral (select to_timestamp(:due_at::float8) + n * :spacing::interval as at) as due;

-- name: has_unfinished_alarms()
-- Whether there is an alarm that was not delivered and has no error.
select exists (select from pulse.alarms where status = 'active' and last_error is null);

-- name: count_alarms()
-- The number of alarms in each state. None may be lost: an alarm that was not delivered has a next try and an error.
select
    count(*) filter (where status = 'fired')::int as delivered,
    count(*) filter (where is_waiting and last_error not like 'deferred%')::int as retried,
    count(*) filter (where is_waiting and last_error like 'deferred%')::int as deferred,
    count(*) filter (where status <> 'fired' and not is_waiting)::int as lost
from (
    select status, last_error, status = 'active' and next_fire_at is not null and last_error is not null as is_waiting
    from pulse.alarms
) as standing;
