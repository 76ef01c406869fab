-- How many, how fast and how long: what charts and metrics are drawn from. And who is signed in at the dashboard.
-- works with code from: 1

-- How long the jobs were in the state they left, as a class of pulse.took_class; -1: their lease ran out, and nobody knows.
-- Null where it means nothing, and from releases that did not say.
alter table pulse.tallies add column if not exists took smallint;

alter table pulse.tallies add column if not exists seconds float8;   -- all of them together

-- The class of a length of time: how many of these bounds it has reached. The same as pulse.model.statistics.BOUNDS.
create or replace function pulse.took_class(length interval) returns smallint
language sql immutable parallel safe
as $$
    select width_bucket(date_part('epoch', length), array[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400
    ]::float8[])::smallint
$$;

-- As 0003_fence.sql has it, and tallied with how long the job ran.
create or replace function pulse.complete(job_id uuid, lease_id bigint, result jsonb default null) returns boolean
language plpgsql
set enable_seqscan = off
as $$
declare
    v_bucket smallint := pulse.bucket_of_id(job_id);
    v_topic text;
    v_ran interval;
begin
    if octet_length(result::text) > 1048576 then
        perform pulse.refuse('result must be at most 1 MiB: store more elsewhere and return a reference');
    end if;
    update pulse.jobs
    set status = 'COMPLETED',
        result = complete.result,
        result_until = pulse.now() + result_ttl,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    where bucket = v_bucket and id = job_id
        and lease_until is not null and jobs.lease_id = complete.lease_id
    returning topic, pulse.now() - claimed_at into v_topic, v_ran;
    if not found then
        return false;
    end if;
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    values (
        v_bucket, v_topic, 'RUNNING', 'COMPLETED', 1, pulse.now(), pulse.took_class(v_ran), date_part('epoch', v_ran)
    );
    return true;
end
$$;

-- What a move means to people; null: nothing worth a chart.
create or replace function pulse.event_of(from_status text, to_status text) returns text
language sql immutable parallel safe
as $$
    select case
        when to_status = 'RUNNING' then 'started'
        when to_status = 'COMPLETED' then 'completed'
        when to_status = 'RETRYING' then 'retried'
        when to_status = 'DEAD_LETTERED' then 'dead_lettered'
        when to_status = 'CANCELLED' then 'cancelled'
        when from_status = 'RUNNING' and to_status = 'SCHEDULED' then 'snoozed'
        when from_status = 'RUNNING' and to_status = 'PENDING' then 'released'
        when from_status = 'DEAD_LETTERED' and to_status = 'PENDING' then 'replayed'
    end
$$;

-- What happened in each minute, quarter of an hour and hour, and ever: for each topic, and for all of them as '*'.
-- Written from the tallies while they are folded, so that it costs what the moves cost and never a look at a job.
create table if not exists pulse.series (
    bucket smallint not null,
    span text collate "C" not null check (span in ('minute', 'quarter', 'hour', 'ever')),
    topic text collate "C" not null,
    at timestamptz not null,                 -- its beginning
    event text collate "C" not null,
    took smallint not null,                  -- as in tallies; -1 also where it means nothing
    jobs bigint not null,
    seconds float8 not null,
    primary key (bucket, span, topic, at, event, took)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- The newest of all topics at once; and the oldest, for retention.
create index if not exists series_age on pulse.series (bucket, span, at);

-- What an operator looks at first, each of them few.
create index if not exists schedules_broken on pulse.schedules (name) where status = 'BROKEN';

create index if not exists alarms_failing on pulse.alarms (next_fire_at) where failure_count > 0 and finished_at is null;

create index if not exists alarms_failed on pulse.alarms (finished_at) where status = 'failed';

-- Who is signed in at the dashboard. The cookie's secret is nowhere but with the browser.
create table if not exists pulse.sessions (
    hash bytea primary key,                  -- sha256 of the cookie
    token_hash bytea not null,               -- of the token that was shown; it must still be usable
    created_at timestamptz not null,
    seen_at timestamptz not null,
    expires_at timestamptz not null
);

create index if not exists sessions_expired on pulse.sessions (expires_at);
