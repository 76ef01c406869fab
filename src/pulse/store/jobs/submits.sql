-- name: submit_jobs(
--     buckets, ids, topics, tasks, payloads, priorities, delays, run_ats, max_attempts, retries, timeouts, deadlines,
--     unique_keys, unique_windows, result_ttls, tags, traces, channel, message
-- )
-- Insert the jobs that are new and return how many there are; and which, unless all are new.
-- If another transaction is just submitting the same unique key, wait for it, but only for a second: it may be one that
-- stays open.
-- What is the same for all jobs is sent once, and what no job has is not sent: unnest fills up with nulls, and a null
-- where there must be a value stands for the first one. Seventeen full arrays cost more than the insert itself.
-- The message to processes that wait for work, if there is one, is sent by the commit. Commits that send one wait for
-- each other, for as long as one takes on its disk or standby. That has nothing to do with keys, so the limit of one
-- second is lifted once all rows are in.
with {{patience}},
submitted as (
    insert into pulse.jobs (
        bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline,
        unique_key, key_held_until, result_ttl, tags, trace, submitted_at, run_at, ready_at, status, lease_id
    )
    select
        coalesce(bucket, (:buckets::smallint[])[1]), id, coalesce(topic, (:topics::text[])[1]),
        coalesce(task, (:tasks::text[])[1]), payload, coalesce(priority, (:priorities::smallint[])[1]),
        coalesce(max_attempts, (:max_attempts::int[])[1]), retry, timeout, deadline,
        unique_key, case when unique_key is not null then coalesce(pulse.now() + unique_window, 'infinity') end,
        result_ttl, tags, trace, pulse.now(), due.at,
        case when due.at <= pulse.now() then pulse.now() end,
        case when due.at <= pulse.now() then 'PENDING' else 'SCHEDULED' end,
        extract(epoch from pulse.now()) * 1000000
    from patience, unnest(
        :buckets::smallint[], :ids::uuid[], :topics::text[], :tasks::text[], :payloads::jsonb[],
        :priorities::smallint[], :delays::interval[], :run_ats::timestamptz[], :max_attempts::int[],
        :retries::jsonb[], :timeouts::interval[], :deadlines::timestamptz[], :unique_keys::text[],
        :unique_windows::interval[], :result_ttls::interval[], :tags::jsonb[], :traces::jsonb[]
    ) as new (
        bucket, id, topic, task, payload, priority, delay, run_at, max_attempts, retry, timeout, deadline,
        unique_key, unique_window, result_ttl, tags, trace
    ),
    lateral (select coalesce(run_at, pulse.now() + coalesce(delay, interval '0')) as at) as due
    on conflict do nothing
    returning bucket, id, topic, status
),
{{tallied_new}}
select
    count(*)::int as jobs,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(id) end as ids,
    case when :message::text is not null then pg_notify(:channel, :message) end,
    set_config('lock_timeout', '0', true)
from submitted;

-- name: submit_job(
--     bucket, id, topic, task, payload, priority, delay, run_at, max_attempts, retry, timeout, deadline, result_ttl,
--     tags, trace, channel, message
-- )
-- Insert one job without a unique key or an id of the caller's, which is what most calls bring: submit_jobs takes a
-- fifth more time for it. Nobody else can be inserting the same job, so there is nothing to wait for. Returns a row if
-- the job is new.
with submitted as (
    insert into pulse.jobs (
        bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline,
        result_ttl, tags, trace, submitted_at, run_at, ready_at, status, lease_id
    )
    select
        :bucket, :id, :topic, :task, :payload, :priority, :max_attempts, :retry, :timeout, :deadline,
        :result_ttl, :tags, :trace, pulse.now(), due.at,
        case when due.at <= pulse.now() then pulse.now() end,
        case when due.at <= pulse.now() then 'PENDING' else 'SCHEDULED' end,
        extract(epoch from pulse.now()) * 1000000
    from (
        select coalesce(:run_at::timestamptz, pulse.now() + coalesce(:delay::interval, interval '0')) as at
    ) as due
    on conflict do nothing
    returning bucket, topic, status
)
insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
select bucket, topic, status, 1, pulse.now() from submitted
returning case when :message::text is not null then pg_notify(:channel, :message) end;

-- name: submit_claimed(
--     bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline, result_ttl, tags, trace,
--     worker, lease, mark_urgency, mark_ready_at, mark_id
-- )
-- Insert one job without a unique key that is due at once, and lease it to a worker that has a free slot: a submit and
-- a claim in one commit. The job waits like any other if its topic is paused or other jobs come before it, which is
-- read in the same snapshot; the row that is returned then has no lease. No row is returned if the id was there
-- already, perhaps because of this very call (see find_own_claim). The job's row is the one that submit_job and
-- claim_jobs would have left, and so are the fence and the tally, except that the job was never PENDING.
with {{patience}},
turn as materialized (
    select (:deadline::timestamptz is null or :deadline > pulse.now())
        and not exists (select from pulse.pauses where pauses.topic in ('*', :topic))
        and not exists (
            select from pulse.jobs
            where jobs.bucket = :bucket and jobs.topic = :topic and status = 'PENDING'
                and (-priority, ready_at, id) > (:mark_urgency::smallint, :mark_ready_at::timestamptz, :mark_id::uuid)
        ) as has_come
),
submitted as (
    insert into pulse.jobs (
        bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline,
        result_ttl, tags, trace, submitted_at, run_at, ready_at,
        status, attempt, lease_id, locked_by, claimed_at, lease_until
    )
    select
        :bucket, :id, :topic, :task, :payload, :priority, :max_attempts, :retry, :timeout, :deadline,
        :result_ttl, :tags, :trace, pulse.now(), pulse.now(), pulse.now(),
        case when has_come then 'RUNNING' else 'PENDING' end,
        has_come::int,
        extract(epoch from pulse.now()) * 1000000 + has_come::int,
        case when has_come then :worker end,
        case when has_come then pulse.now() end,
        case when has_come then pulse.now() + :lease::interval end
    from patience, turn
    on conflict do nothing
    returning {{claim_columns}}, status
),
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, status, 1, pulse.now(), 0, 0 from submitted
)
select {{claim_columns}}
from submitted;

-- name: find_own_claim(bucket, id, worker)
-- Find the claim that submit_claimed made for this worker, if its answer was lost and the job is still as it was then.
select {{claim_columns}}
from pulse.jobs
where bucket = :bucket and id = :id and lease_until is not null and locked_by = :worker
    and attempt = 1 and claimed_at = submitted_at;

-- name: free_keys(buckets, topics, keys)
-- Free unique keys whose window has passed, before new jobs ask for them. A running job frees its key when it ends.
with passed as materialized (
    select job.*
    from unnest(:buckets::smallint[], :topics::text[], :keys::text[]) as wanted (bucket, topic, key)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and jobs.unique_key = wanted.key
            and jobs.key_held_until <= pulse.now() and lease_until is null
        for no key update skip locked
    ) as job
    limit cardinality(:keys::text[])
)
update pulse.jobs set key_held_until = null
from passed
where jobs.bucket = passed.bucket and jobs.ctid = passed.place;

-- name: find_submitted(buckets, ids, topics, keys)
-- Find the job that stands for each submitted one: the job with the same id, or else the one that holds its unique key.
select new.id as wanted, coalesce(same.id, holder.id) as id
from unnest(:buckets::smallint[], :ids::uuid[], :topics::text[], :keys::text[]) as new (bucket, id, topic, key)
left join lateral (
    select id from pulse.jobs where jobs.bucket = new.bucket and jobs.id = new.id offset 0
) as same on true
left join lateral (
    select id from pulse.jobs
    where jobs.bucket = new.bucket and jobs.topic = new.topic and unique_key = new.key and key_held_until is not null
    offset 0
) as holder on true;

-- name: compare_payloads(ones, others)
-- Compare pairs of JSON texts as jsonb does, and return the answers in the order of the pairs: the order of keys does
-- not matter, and 1 equals 1.0.
select one::jsonb = other::jsonb as is_same
from unnest(:ones::text[], :others::text[]) with ordinality as pair (one, other, number)
order by number;
