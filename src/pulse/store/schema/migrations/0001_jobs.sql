-- The life of a job as rows.
-- works with code from: 1

-- Database time, the only clock leases, delays and retries know. statement_timestamp() and not now():
-- inside a caller's long transaction now() is long past, and a delay of five minutes would already be due.
-- Every statement asks here, so a test can freeze time for all connections by replacing one function.
create or replace function pulse.now() returns timestamptz
language sql stable parallel safe
as 'select statement_timestamp()';

-- One row: what was decided when the schema was made. An id carries its bucket, so it cannot change in place.
create table if not exists pulse.installation (
    only_row boolean primary key default true check (only_row),
    buckets int not null check (buckets between 1 and 4096),
    installed_at timestamptz not null default now()
);

create table if not exists pulse.jobs (
    bucket smallint not null,
    priority smallint not null check (priority between -100 and 100),
    attempt int not null default 0,          -- claims so far; only ever grows
    max_attempts int not null,               -- how many may be charged
    refunded int not null default 0,         -- claims that are not charged: attempt - refunded is the bill
    lease_id bigint not null,                -- the fence: raised by each claim and by whatever takes one away. It
                                             -- starts at the time, so that an id used again after retention goes on
    submitted_at timestamptz not null,
    ready_at timestamptz,                    -- when it last became PENDING
    run_at timestamptz not null,             -- not before; each retry and snooze moves it
    claimed_at timestamptz,
    lease_until timestamptz,                 -- in no index, so that a heartbeat stays a HOT update
    finished_at timestamptz,
    id uuid not null,
    status text collate "C" not null,        -- "C": compared byte by byte, in every index, whatever the database's
    topic text collate "C" not null,         -- language
    task text not null,
    payload jsonb not null,
    locked_by text,                          -- the worker of the newest claim, kept when it ends
    last_error text,
    result jsonb,
    progress jsonb,
    retry jsonb,                             -- the back-off policy; null is the default one
    tags jsonb,
    trace jsonb,                             -- W3C trace context of whoever submitted
    timeout interval,
    deadline timestamptz,
    result_ttl interval,
    result_until timestamptz,
    unique_key text collate "C",
    key_held_until timestamptz,              -- infinity: while unfinished; an instant: until then; null: free
    primary key (bucket, id),
    -- No orphan window: a running job has a lease from birth, and nothing else has one. One expression and not three
    -- constraints, because every move of every job pays for it.
    check (case
        when status = 'RUNNING' then lease_until is not null and finished_at is null
        when status in ('PENDING', 'SCHEDULED', 'RETRYING') then lease_until is null and finished_at is null
        when status in ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED') then lease_until is null and finished_at is not null
        else false
    end)
) with (
    fillfactor = 70,                         -- room for heartbeats to stay on the page
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

-- What a claim reads: one topic, most urgent first, then first in first out. -priority and not "priority desc",
-- because a row comparison can start the scan at the low-water mark only where all columns run the same way.
create index if not exists jobs_claim on pulse.jobs (bucket, topic, (-priority), ready_at, id)
    where status = 'PENDING';

-- Waiting for their time: outside the claim index, however many there are.
create index if not exists jobs_due on pulse.jobs (bucket, run_at, id)
    where status in ('SCHEDULED', 'RETRYING');

-- What the watchdog scans. By claimed_at, which only grows, so that each entry goes to the index's end; lease_until is
-- not in it: see above.
create index if not exists jobs_running on pulse.jobs (bucket, claimed_at)
    where status = 'RUNNING';

create index if not exists jobs_deadline on pulse.jobs (bucket, deadline)
    where deadline is not null and status in ('SCHEDULED', 'PENDING', 'RETRYING');

-- Retention and the lists of finished jobs. A row enters it once, when it finishes. Without the id, a batch that
-- finished together is one entry with a list of places, which halves what completing pays for it (0.2 to 0.1 ms per
-- hundred jobs); a list sorts the few that share an instant.
create index if not exists jobs_finished on pulse.jobs (bucket, topic, status, finished_at)
    where finished_at is not null;

-- Dead letters of all topics at once: what an operator looks at first, and few enough to be indexed twice.
create index if not exists jobs_dead on pulse.jobs (bucket, finished_at, id)
    where status = 'DEAD_LETTERED';

create index if not exists jobs_result on pulse.jobs (bucket, result_until)
    where result_until is not null;

-- A unique key is unique within its topic, for as long as it is held. Rows without one are not in it.
create unique index if not exists jobs_key on pulse.jobs (bucket, topic, unique_key)
    where key_held_until is not null;

-- One row per failed attempt, keyed by its claim. No foreign key: the pruner removes them with their job.
create table if not exists pulse.attempts (
    bucket smallint not null,
    job_id uuid not null,
    lease_id bigint not null,
    attempt int not null,
    worker text,
    started_at timestamptz,
    ended_at timestamptz not null,
    error text not null,
    traceback text,
    primary key (bucket, job_id, lease_id)
);

-- A pause is a row, so it survives restarts and holds for every process. '*' stands for all topics.
create table if not exists pulse.pauses (
    topic text collate "C" primary key,
    reason text not null default '',
    paused_at timestamptz not null
);

-- How many jobs moved from where to where, appended by every statement that moves some. Appending never
-- waits for anyone, which a counter row would inside a caller's long transaction. Rolled into counts later;
-- counts plus tallies is exact at every instant.
create table if not exists pulse.tallies (
    bucket smallint not null,
    topic text collate "C" not null,
    from_status text collate "C",                        -- null: submitted
    to_status text collate "C",                          -- null: pruned
    jobs bigint not null,
    moved_at timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1);

create table if not exists pulse.counts (
    bucket smallint not null,
    topic text collate "C" not null,
    status text collate "C" not null,
    jobs bigint not null,
    primary key (bucket, topic, status)
) with (fillfactor = 50);

-- The bucket of a topic: the first two bytes of its SHA-256, modulo the number of buckets. The same rule as
-- pulse.model.ids.bucket_of_topic; tests/vectors/ids.json holds both to it.
create or replace function pulse.bucket_of_topic(topic text, buckets int) returns smallint
language sql immutable strict parallel safe
as $$
    select (((get_byte(digest, 0) << 8) + get_byte(digest, 1)) % buckets)::smallint
    from sha256(convert_to(topic, 'UTF8')) as digest
$$;

-- An id carries its bucket in its last twelve bits.
create or replace function pulse.bucket_of_id(id uuid) returns smallint
language sql immutable strict parallel safe
as $$
    select (((get_byte(octets, 14) & 15) << 8) + get_byte(octets, 15))::smallint
    from uuid_send(id) as octets
$$;

-- A version 7 uuid: 48 bits of milliseconds, 12 bits of the fraction of the millisecond, 50 bits of noise
-- (those of the given uuid), 12 bits of bucket. The same rule as pulse.model.ids.make_id.
create or replace function pulse.make_id(at timestamptz, bucket smallint, noise uuid) returns uuid
language plpgsql immutable strict parallel safe
as $$
declare
    micros bigint := round(extract(epoch from at) * 1000000);
    fraction int := ((micros % 1000) * 4096 / 1000)::int;
    octets bytea := uuid_send(noise);
begin
    octets := overlay(octets placing substring(int8send(micros / 1000) from 3) from 1 for 6);
    octets := set_byte(octets, 6, 112 | (fraction >> 8));
    octets := set_byte(octets, 7, fraction & 255);
    octets := set_byte(octets, 8, 128 | (get_byte(octets, 8) & 63));
    octets := set_byte(octets, 14, (get_byte(octets, 14) & 240) | (bucket >> 8));
    octets := set_byte(octets, 15, bucket & 255);
    return encode(octets, 'hex')::uuid;
end
$$;

-- A number of a policy, whatever is in it: recording a failure must never itself fail.
create or replace function pulse.bounded(value jsonb, fallback float8, minimum float8, maximum float8) returns float8
language sql immutable parallel safe
as $$
    select case
        when jsonb_typeof(value) = 'number'
        then least(greatest(value::numeric, minimum::numeric), maximum::numeric)::float8
        else fallback
    end
$$;

-- How long a job waits after its nth failure. Jitter comes from a hash and not from random(): a volatile
-- function in an UPDATE is refused by Citus, and a hash spreads a burst of failures just as well.
create or replace function pulse.backoff(retry jsonb, failures int, seed text) returns interval
language sql immutable parallel safe
as $$
    select make_interval(secs => least(
        case coalesce(retry ->> 'kind', 'quadratic')
            when 'fixed' then pulse.bounded(retry -> 'base', 1, 0, 315619200)
            when 'list' then pulse.bounded(retry -> 'delays' -> least(failures, case
                when jsonb_typeof(retry -> 'delays') = 'array' then jsonb_array_length(retry -> 'delays') else 0
            end) - 1, 1, 0, 315619200)
            when 'exponential' then
                pulse.bounded(retry -> 'base', 1, 0, 315619200)
                * power(pulse.bounded(retry -> 'factor', 2, 1, 100), least(failures - 1, 64))
            else pulse.bounded(retry -> 'base', 1, 0, 315619200) * failures::float8 * failures
        end,
        pulse.bounded(retry -> 'max_delay', 86400, 0, 315619200)
    ) * (1 + pulse.bounded(retry -> 'jitter', 0.1, 0, 1)
             * ((hashtextextended(seed, failures) & 65535) / 32767.5 - 1)))
$$;

-- The one rule of what follows a failure, for a report and for the watchdog alike.
create or replace function pulse.after_failure(
    charged int, max_attempts int, retry_at timestamptz, deadline timestamptz
) returns text
language sql immutable parallel safe
as $$
    select case
        when charged >= max_attempts or retry_at >= deadline then 'DEAD_LETTERED'
        else 'RETRYING'
    end
$$;

-- Whether a job fits a filter, for the part of it that no index answers.
create or replace function pulse.job_matches(job pulse.jobs, filter jsonb) returns boolean
language sql stable parallel safe
as $$
    select (filter ->> 'topic' is null or job.topic = filter ->> 'topic')
        and (filter ->> 'task' is null or job.task = filter ->> 'task')
        and (filter ->> 'status' is null or job.status = filter ->> 'status')
        and (filter ->> 'tag' is null or coalesce(job.tags ? (filter ->> 'tag'), false))
        and (filter ->> 'error' is null
            or position(lower(filter ->> 'error') in lower(coalesce(job.last_error, ''))) > 0)
        and (filter ->> 'submitted_after' is null or job.submitted_at >= (filter ->> 'submitted_after')::timestamptz)
        and (filter ->> 'submitted_before' is null or job.submitted_at < (filter ->> 'submitted_before')::timestamptz)
$$;
