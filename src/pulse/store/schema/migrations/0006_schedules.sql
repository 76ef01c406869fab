-- Timetables that make jobs, and what became of every occurrence.
-- works with code from: 1

-- Which schedule made a job, and for which instant of its timetable.
alter table pulse.jobs add column if not exists schedule_id uuid;
alter table pulse.jobs add column if not exists scheduled_for timestamptz;

-- Whether a schedule has work unfinished: what `overlap` asks. Other jobs are not in it.
create index if not exists jobs_schedule on pulse.jobs (schedule_id)
    where schedule_id is not null and finished_at is null;

-- A schedule is a row that makes jobs. next_run_at is its cursor and the only place where its time lives.
create table if not exists pulse.schedules (
    id uuid primary key,
    name text collate "C" not null unique,
    status text collate "C" not null default 'ACTIVE',
    next_run_at timestamptz,                 -- the next occurrence; null: there is none to wait for
    buffered_for timestamptz,                -- an occurrence that waits until the jobs before it have finished
    last_run_at timestamptz,                 -- the newest occurrence that made a job
    fired bigint not null default 0,         -- jobs its timetable has made
    paused_at timestamptz,                   -- a person's; never touched by a deploy
    pause_reason text not null default '',
    error text,                              -- why it is broken
    app text collate "C",                    -- whose code declares it; null: made by someone at a door
    created_at timestamptz not null,
    updated_at timestamptz not null,

    kind text collate "C" not null,
    cron text,
    every interval,
    anchor timestamptz,                      -- the intervals are counted from here
    run_at timestamptz,
    tz text not null default 'UTC',
    starts_at timestamptz,
    ends_at timestamptz,
    max_occurrences int,
    jitter interval,
    catch_up text collate "C" not null,
    replay_limit int not null,
    overlap text collate "C" not null,

    task text not null,
    topic text collate "C" not null,
    bucket smallint not null,                -- of the topic, and so of the jobs
    payload jsonb not null,
    priority smallint not null,
    max_attempts int not null,
    retry jsonb,
    timeout interval,
    result_ttl interval,
    tags jsonb,

    check (status in ('ACTIVE', 'COMPLETED', 'BROKEN', 'DISABLED')),
    check ((status = 'ACTIVE') = (next_run_at is not null)),
    check (case kind
        when 'once' then run_at is not null and every is null and cron is null
        when 'interval' then every is not null and anchor is not null and run_at is null and cron is null
        when 'cron' then cron is not null and run_at is null and every is null
        else false
    end)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- What the fire duty reads, and all it reads while nothing is due.
create index if not exists schedules_due on pulse.schedules (next_run_at)
    where next_run_at is not null and paused_at is null;

create index if not exists schedules_buffered on pulse.schedules (buffered_for)
    where buffered_for is not null and paused_at is null;

create index if not exists schedules_app on pulse.schedules (app) where app is not null;

-- What became of occurrences. One line may stand for many that were missed together: `occurrences` of them, from
-- `occurrence` up to `newest`. An occurrence makes one job, ever: the key says so, after the job is long gone.
create table if not exists pulse.fires (
    schedule_id uuid not null,
    occurrence timestamptz not null,
    outcome text collate "C" not null check (outcome in ('FIRED', 'COALESCED', 'SKIPPED', 'BUFFERED')),
    cause text collate "C" not null check (cause in ('timetable', 'trigger', 'backfill')),
    logged_at timestamptz not null,
    occurrences bigint not null default 1,
    newest timestamptz not null,
    run_at timestamptz,                      -- with jitter: when its job may start
    job_id uuid,
    reason text,
    primary key (schedule_id, occurrence, outcome)
) with (autovacuum_vacuum_cost_delay = 1);

-- The newest deploy that has declared its schedules, for each app.
create table if not exists pulse.deploys (
    app text collate "C" primary key,
    deploy bigint,
    synced_at timestamptz not null
);

-- As in 0002, but for two seconds: so seldom does a process look that hears of what falls due sooner.
create or replace function pulse.wake(topic text, priority int, delay interval) returns void
language plpgsql
as $$
begin
    if delay <= interval '0' then
        perform pg_notify('pulse.notify', priority || ' ' || topic);
    elsif delay <= interval '2 seconds' then
        perform pg_notify('pulse.notify', '+' || round(extract(milliseconds from delay)));
    end if;
end
$$;
