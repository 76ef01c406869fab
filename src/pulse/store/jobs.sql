-- Every statement that touches a job. Each is guarded by the state it moves from, and none waits for a row
-- that someone else holds: SKIP LOCKED (complete_jobs says why it differs), so that a handler's own transaction
-- stalls nobody and no two of them can deadlock. Each names one bucket and appends what it moved to the tallies.
--
-- Four habits keep their plans right even if they were planned on an empty table (docs/decisions/0011):
-- rows are looked up one by one in a LATERAL subquery, which cannot be turned into a scan of everything; once found they
-- are reached by their place (ctid), which does not change while they are locked; and where a worker shows its fence,
-- "running" is said as `lease_until is not null`, which a CHECK makes the same, so that no smaller index tempts;
-- and what drives an update ends in a limit that does not limit: of a limit it does not know the planner takes a
-- tenth, so it expects one row, and on a table that was analyzed when it was empty one step to a row's place still
-- looks cheaper than a walk through everything.

-- name: submit_jobs(buckets, ids, topics, tasks, payloads, priorities, delays, run_ats, max_attempts, retries, timeouts, deadlines, unique_keys, unique_windows, result_ttls, tags, traces, channel, message)
-- Insert those that are new, and say how many; which, only if not all. A key that another transaction is just
-- submitting is waited for, but only for a second: it may be one that stays open.
-- What is the same for all jobs is sent once, and what none of them has is not sent: unnest fills up with nulls, and a
-- null where there must be a value means the first one. Seventeen full arrays cost more than the insert itself.
-- A message to whoever waits for work goes with the commit, if there is one. Such commits wait for each other, for as long
-- as one takes on its disk or standby: that is nobody's key, so the second is over once all rows are in.
with patience as materialized (
    select set_config('lock_timeout', '1000', true)
),
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
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
    select bucket, topic, status, count(*), pulse.now() from submitted group by bucket, topic, status
)
select
    count(*)::int as jobs,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(id) end as ids,
    case when :message::text is not null then pg_notify(:channel, :message) end,
    set_config('lock_timeout', '0', true)
from submitted;

-- name: submit_job(bucket, id, topic, task, payload, priority, delay, run_at, max_attempts, retry, timeout, deadline, result_ttl, tags, trace, channel, message)
-- One job without a unique key or an id of the caller's, which is what most calls bring: submit_jobs takes a fifth more
-- time for it. Nobody else can be inserting the same, so there is nothing to wait for. Answers with a row if it is new.
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

-- name: submit_claimed(bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline, result_ttl, tags, trace, worker, lease, mark_urgency, mark_ready_at, mark_id)
-- One job without a unique key, due at once, leased to a worker that has a place for it: a submit and a claim in one
-- commit. It waits like any other if its topic is paused or someone is before it, which the same snapshot says; then
-- there is no lease in the answer. No answer at all: the id was there already, perhaps by this very call (find_own_claim). The row is
-- what submit_job and claim_jobs would have left, fence and tally included but for the state it never was in.
with patience as materialized (
    select set_config('lock_timeout', '1000', true)
),
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
    returning id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
        ready_at, claimed_at, lease_until, timeout, deadline, trace, scheduled_for, status
),
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, status, 1, pulse.now(), 0, 0 from submitted
)
select id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
    ready_at, claimed_at, lease_until, timeout, deadline, trace, scheduled_for
from submitted;

-- name: find_own_claim(bucket, id, worker)
-- The claim that submit_claimed made for this worker, if its answer was lost and nothing has happened to the job since.
select id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
    ready_at, claimed_at, lease_until, timeout, deadline, trace, scheduled_for
from pulse.jobs
where bucket = :bucket and id = :id and lease_until is not null and locked_by = :worker
    and attempt = 1 and claimed_at = submitted_at;

-- name: free_keys(buckets, topics, keys)
-- Let go of unique keys whose window has passed, before new jobs ask for them. A running job lets go when it ends.
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
-- The job that stands for each submitted one: the same id, or else the holder of its key.
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

-- name: claim_jobs(bucket, topic, workers, limit, lease, mark_urgency, mark_ready_at, mark_id)
-- Lease the first waiting jobs of a topic, dealt to the workers in turn. The scan starts behind the low-water mark.
-- MATERIALIZED keeps the limit a limit; the pause is read in the same snapshot as the jobs. The rows are locked by
-- then, so their place (ctid) cannot change, and going there directly saves a second walk down the key. An array numbers
-- them for less than a window would.
-- A row that was changed and committed between the snapshot and the lock is locked in its newest version, whose place
-- the snapshot cannot see: it does not move. So what is counted is what the update returned, never what was locked. The
-- row waits for the next claim, which is not far: whatever changes a waiting row (a passed unique key, a release) wakes
-- its topic when it commits.
-- The fence of a claim is the time, or one more than the last: a standby that takes over without the last claims knows
-- nothing of their fences, and must not give them out again.
with first as materialized (
    select bucket, ctid as place
    from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) > (:mark_urgency::smallint, :mark_ready_at::timestamptz, :mark_id::uuid)
        and (deadline is null or deadline > pulse.now())
        and not exists (select from pulse.pauses where pauses.topic in ('*', :topic))
    order by -priority, ready_at, id
    limit :limit
    for no key update skip locked
),
numbered as (
    select bucket, place, turn
    from (select bucket, array_agg(place) as places from first group by bucket) as row
    cross join lateral unnest(row.places) with ordinality as dealt (place, turn)
    limit :limit
),
claimed as (
    update pulse.jobs
    set status = 'RUNNING',
        attempt = attempt + 1,
        lease_id = greatest(lease_id + 1, (date_part('epoch', pulse.now()) * 1000000)::bigint),
        locked_by = (:workers::text[])[1 + (numbered.turn - 1) % cardinality(:workers::text[])],
        claimed_at = pulse.now(),
        lease_until = pulse.now() + :lease::interval
    from numbered
    where jobs.bucket = numbered.bucket and jobs.ctid = numbered.place
    returning jobs.id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
        ready_at, claimed_at, lease_until, timeout, deadline, trace, scheduled_for
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    select :bucket, :topic, 'PENDING', 'RUNNING', count(*), pulse.now(),
        pulse.took_class(pulse.now() - ready_at) as took, sum(date_part('epoch', pulse.now() - ready_at))
    from claimed
    group by took
)
select * from claimed;

-- name: ready_topics(buckets, topics)
-- Which of these have work waiting: what a worker asks at each tick, once for all its topics.
select wanted.topic
from unnest(:buckets::smallint[], :topics::text[]) as wanted (bucket, topic)
cross join lateral (
    select from pulse.jobs
    where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and status = 'PENDING'
    limit 1
) as ready
where not exists (select from pulse.pauses where pauses.topic in ('*', wanted.topic));

-- name: heartbeat_jobs(bucket, ids, lease_ids, lease)
with held as materialized (
    select job.bucket, job.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as beat (id, lease_id)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where bucket = :bucket and jobs.id = beat.id and lease_until is not null and jobs.lease_id = beat.lease_id
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
)
update pulse.jobs
set lease_until = pulse.now() + :lease::interval
from held
where jobs.bucket = held.bucket and jobs.ctid = held.place
returning jobs.id, jobs.lease_id;

-- name: progress_jobs(bucket, ids, lease_ids, progress)
with held as materialized (
    select job.bucket, job.place, told.progress
    from unnest(:ids::uuid[], :lease_ids::bigint[], :progress::jsonb[]) as told (id, lease_id, progress)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where bucket = :bucket and jobs.id = told.id and lease_until is not null and jobs.lease_id = told.lease_id
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
)
update pulse.jobs
set progress = held.progress
from held
where jobs.bucket = held.bucket and jobs.ctid = held.place
returning jobs.id, jobs.lease_id;

-- name: complete_jobs(bucket, ids, lease_ids, results)
-- The one statement that waits for locked rows, and for no more than a twentieth of a second: a claim with an older
-- snapshot may hold a row for as long as it runs, and a lock taken beforehand would cost every job (a fifth of this
-- statement). Where a handler's own transaction holds one, it fails and complete_free_jobs is used instead. What it
-- waits for never waits itself, so it cannot deadlock. The limit hides that the bucket is one, which would tempt the
-- planner to walk the whole bucket; so each row is looked up by its whole key.
with patience as materialized (
    select set_config('lock_timeout', '50', true)
),
completed as (
    update pulse.jobs
    set status = 'COMPLETED',
        result = report.result,
        result_until = pulse.now() + result_ttl,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from patience, (
        select :bucket::smallint as bucket, *
        from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
        limit cardinality(:ids::uuid[])
    ) as report
    where jobs.bucket = report.bucket and jobs.id = report.id
        and lease_until is not null and jobs.lease_id = report.lease_id
    returning jobs.id, topic, jobs.lease_id, claimed_at
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, 'RUNNING', 'COMPLETED', count(*), pulse.now(),
        pulse.took_class(pulse.now() - claimed_at) as took, sum(date_part('epoch', pulse.now() - claimed_at))
    from completed
    group by topic, took
)
select
    count(*)::int as jobs,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(id) end as ids,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(lease_id) end as lease_ids
from completed;

-- name: complete_free_jobs(bucket, ids, lease_ids, results)
-- As complete_jobs, passing over rows that are locked.
with held as materialized (
    select job.bucket, job.place, report.result
    from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where bucket = :bucket and jobs.id = report.id and lease_until is not null and jobs.lease_id = report.lease_id
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
),
completed as (
    update pulse.jobs
    set status = 'COMPLETED',
        result = held.result,
        result_until = pulse.now() + result_ttl,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from held
    where jobs.bucket = held.bucket and jobs.ctid = held.place
    returning jobs.id, topic, lease_id, claimed_at
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, 'RUNNING', 'COMPLETED', count(*), pulse.now(),
        pulse.took_class(pulse.now() - claimed_at) as took, sum(date_part('epoch', pulse.now() - claimed_at))
    from completed
    group by topic, took
)
select id, lease_id from completed;

-- name: fail_jobs(bucket, ids, lease_ids, outcomes, errors, tracebacks, delays)
-- FAIL, SNOOZE and DISCARD. What follows a failure is decided by pulse.after_failure, here as in reap_jobs.
with held as materialized (
    select
        job.bucket, job.place, report.outcome, report.error, report.traceback, next.run_at,
        case report.outcome
            when 'SNOOZE' then 'SCHEDULED'
            when 'DISCARD' then 'DEAD_LETTERED'
            else pulse.after_failure(job.charged, job.max_attempts, next.run_at, job.deadline)
        end as status
    from unnest(
        :ids::uuid[], :lease_ids::bigint[], :outcomes::text[], :errors::text[], :tracebacks::text[], :delays::interval[]
    ) as report (id, lease_id, outcome, error, traceback, delay)
    cross join lateral (
        select bucket, ctid as place, attempt - refunded as charged, max_attempts, deadline, retry from pulse.jobs
        where bucket = :bucket and jobs.id = report.id and lease_until is not null and jobs.lease_id = report.lease_id
        for no key update skip locked
    ) as job
    cross join lateral (
        select pulse.now() + coalesce(report.delay, pulse.backoff(job.retry, job.charged, report.id::text)) as run_at
    ) as next
    limit cardinality(:ids::uuid[])
),
moved as (
    update pulse.jobs
    set status = held.status,
        run_at = case when held.status = 'DEAD_LETTERED' then jobs.run_at else held.run_at end,
        refunded = refunded + case when held.outcome = 'SNOOZE' then 1 else 0 end,
        last_error = case when held.outcome = 'SNOOZE' then coalesce(held.error, last_error) else held.error end,
        lease_until = null,
        finished_at = case when held.status = 'DEAD_LETTERED' then pulse.now() end,
        key_held_until = case
            when held.status = 'DEAD_LETTERED' then nullif(key_held_until, 'infinity') else key_held_until
        end
    from held
    where jobs.bucket = held.bucket and jobs.ctid = held.place
    returning jobs.id, topic, jobs.status, lease_id, attempt, locked_by, claimed_at, jobs.run_at,
        held.outcome, held.error, held.traceback
),
logged as (
    insert into pulse.attempts (bucket, job_id, lease_id, attempt, worker, started_at, ended_at, error, traceback)
    select :bucket, id, lease_id, attempt, locked_by, claimed_at, pulse.now(), error, traceback
    from moved
    where outcome <> 'SNOOZE'
    on conflict do nothing
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, 'RUNNING', status, count(*), pulse.now(),
        pulse.took_class(pulse.now() - claimed_at) as took, sum(date_part('epoch', pulse.now() - claimed_at))
    from moved
    group by topic, status, took
)
select id, lease_id, case when status <> 'DEAD_LETTERED' then run_at - pulse.now() end as wait from moved;

-- name: reap_jobs(bucket, limit, ended_before)
-- The failure report a worker did not live to make. It takes the claim away, so it raises the fence.
with expired as materialized (
    select jobs.bucket, jobs.ctid as place, next.run_at, jobs.lease_id,
        pulse.after_failure(jobs.attempt - jobs.refunded, jobs.max_attempts, next.run_at, jobs.deadline) as status
    from pulse.jobs
    cross join lateral (
        select pulse.now() + pulse.backoff(jobs.retry, jobs.attempt - jobs.refunded, jobs.id::text) as run_at
    ) as next
    where jobs.bucket = :bucket and jobs.status = 'RUNNING' and jobs.lease_until < :ended_before
    -- among: and jobs.id = any(:ids::uuid[])
    limit :limit
    for no key update of jobs skip locked
),
moved as (
    update pulse.jobs
    set status = expired.status,
        run_at = case when expired.status = 'DEAD_LETTERED' then jobs.run_at else expired.run_at end,
        lease_id = jobs.lease_id + 1,
        last_error = 'worker lease expired',
        lease_until = null,
        finished_at = case when expired.status = 'DEAD_LETTERED' then pulse.now() end,
        key_held_until = case
            when expired.status = 'DEAD_LETTERED' then nullif(key_held_until, 'infinity') else key_held_until
        end
    from expired
    where jobs.bucket = expired.bucket and jobs.ctid = expired.place
    returning jobs.id, topic, jobs.status, attempt, locked_by, claimed_at, last_error, expired.lease_id as claim,
        jobs.run_at
),
logged as (
    insert into pulse.attempts (bucket, job_id, lease_id, attempt, worker, started_at, ended_at, error)
    select :bucket, id, claim, attempt, locked_by, claimed_at, pulse.now(), last_error from moved
    on conflict do nothing
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took)
    select :bucket, topic, 'RUNNING', status, count(*), pulse.now(), -1 from moved group by topic, status
)
select id, status, case when status <> 'DEAD_LETTERED' then run_at - pulse.now() end as wait from moved;

-- name: release_jobs(bucket, ids, lease_ids)
-- Give claims back that were never started: not charged, and out of the releaser's hands for good.
with held as materialized (
    select job.bucket, job.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as given (id, lease_id)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where bucket = :bucket and jobs.id = given.id and lease_until is not null and jobs.lease_id = given.lease_id
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
),
released as (
    update pulse.jobs
    set status = 'PENDING',
        ready_at = pulse.now(),
        refunded = refunded + 1,
        lease_id = lease_id + 1,
        locked_by = null,
        lease_until = null
    from held
    where jobs.bucket = held.bucket and jobs.ctid = held.place
    returning jobs.id, topic, priority, lease_id - 1 as lease_id
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, 'RUNNING', 'PENDING', count(*), pulse.now() from released group by topic
)
select id, lease_id, topic, priority from released;

-- name: compare_payloads(ones, others)
-- Which pairs of JSON texts say the same, as jsonb does, in their order: keys in any order, 1 and 1.0 alike.
select one::jsonb = other::jsonb as is_same
from unnest(:ones::text[], :others::text[]) with ordinality as pair (one, other, number)
order by number;

-- name: read_clock()
select pulse.now() as now;

-- name: release_unheld(bucket, workers, ids, lease_ids, after, before)
-- As release_jobs, for all that is leased to these workers but what they hold: it never arrived. Only what was claimed
-- between the two instants: whoever runs this late must not take away what they were given since. Reads what was claimed
-- meanwhile and still runs, which is little beside what such a worker has lost.
with held as materialized (
    select bucket, ctid as place
    from pulse.jobs
    where bucket = :bucket and status = 'RUNNING' and locked_by = any(:workers::text[])
        and claimed_at > :after::timestamptz and claimed_at < :before::timestamptz
        and (id, lease_id) not in (select * from unnest(:ids::uuid[], :lease_ids::bigint[]))
    limit 10000
    for no key update skip locked
),
released as (
    update pulse.jobs
    set status = 'PENDING',
        ready_at = pulse.now(),
        refunded = refunded + 1,
        lease_id = lease_id + 1,
        locked_by = null,
        lease_until = null
    from held
    where jobs.bucket = held.bucket and jobs.ctid = held.place
    returning jobs.id, topic, priority, lease_id - 1 as lease_id
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, 'RUNNING', 'PENDING', count(*), pulse.now() from released group by topic
)
select id, lease_id, topic, priority from released;

-- name: read_leases(bucket, ids)
-- What the rows say now, for items that a guarded statement did not move.
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select id, status, lease_id from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;

-- name: read_claims(bucket, ids)
-- Who holds what: for a server that is asked about claims it did not make.
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select id, lease_id, topic, locked_by from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;

-- name: promote_jobs(bucket, limit)
with due as materialized (
    select bucket, ctid as place, status
    from pulse.jobs
    where bucket = :bucket and status in ('SCHEDULED', 'RETRYING') and run_at <= pulse.now()
    -- among: and id = any(:ids::uuid[])
    order by run_at, id
    limit :limit
    for no key update skip locked
),
promoted as (
    update pulse.jobs
    set status = 'PENDING', ready_at = pulse.now()
    from due
    where jobs.bucket = due.bucket and jobs.ctid = due.place
    returning jobs.id, topic, priority, due.status as was
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, was, 'PENDING', count(*), pulse.now() from promoted group by topic, was
)
select topic, max(priority)::int as priority, count(*)::int as jobs from promoted group by topic;

-- name: expire_jobs(bucket, limit)
-- Waiting jobs whose deadline passed: no handler may see them any more.
with late as materialized (
    select bucket, ctid as place, status
    from pulse.jobs
    where bucket = :bucket and deadline <= pulse.now() and status in ('SCHEDULED', 'PENDING', 'RETRYING')
    -- among: and id = any(:ids::uuid[])
    order by deadline
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.jobs
    set status = 'DEAD_LETTERED',
        last_error = 'deadline passed before it could run' || coalesce('; before that: ' || last_error, ''),
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from late
    where jobs.bucket = late.bucket and jobs.ctid = late.place
    returning jobs.id, topic, late.status as was
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, was, 'DEAD_LETTERED', count(*), pulse.now() from moved group by topic, was
)
select id from moved;

-- name: ids_to_reap(bucket, limit, ended_before)
-- These three: what a batch is about that was refused.
select id from pulse.jobs
where bucket = :bucket and status = 'RUNNING' and lease_until < :ended_before
order by lease_until
limit :limit;

-- name: ids_to_promote(bucket, limit)
select id from pulse.jobs
where bucket = :bucket and status in ('SCHEDULED', 'RETRYING') and run_at <= pulse.now()
order by run_at, id
limit :limit;

-- name: ids_to_expire(bucket, limit)
select id from pulse.jobs
where bucket = :bucket and deadline <= pulse.now() and status in ('SCHEDULED', 'PENDING', 'RETRYING')
order by deadline
limit :limit;

-- name: peek_duties(buckets, schedules, alarms)
-- One read that tells the loops which buckets have anything to do, and when the next job and the next schedule fall
-- due. What is long past is past by a day: an instant of any size must not stop the loop (and `greatest` skips nulls).
-- Schedules and alarms are looked at only if that is wanted.
select
    bucket,
    case when due.run_at is not null
        then greatest(due.run_at, pulse.now() - interval '1 day') - pulse.now() end as until_due,
    case when late.deadline is not null
        then greatest(late.deadline, pulse.now() - interval '1 day') - pulse.now() end as until_late,
    case when :schedules::boolean then (
        select greatest(next_run_at, pulse.now() - interval '1 day') - pulse.now() from pulse.schedules
        where next_run_at is not null and paused_at is null order by next_run_at limit 1
    ) end as until_fire,
    case when :schedules::boolean
        then exists (select from pulse.schedules where buffered_for is not null and paused_at is null)
        else false end as is_buffering,
    case when not :alarms::boolean then null
    when exists (select from pulse.alarms where ready_at is not null and lease_until is null) then interval '0'
    else (select greatest(least(next_fire_at, lease_until), pulse.now() - interval '1 day') - pulse.now() from (
        select
            (select next_fire_at from pulse.alarms
             where next_fire_at is not null and ready_at is null and paused_at is null
             order by next_fire_at limit 1) as next_fire_at,
            (select lease_until from pulse.alarms where lease_until is not null order by lease_until limit 1)
                as lease_until
    ) as first where coalesce(next_fire_at, lease_until) is not null) end as until_wake
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
) as late on true;

-- name: peek_jobs(buckets)
-- The same of jobs alone: it waits for nobody's lock on schedules or alarms.
select
    bucket,
    case when due.run_at is not null
        then greatest(due.run_at, pulse.now() - interval '1 day') - pulse.now() end as until_due,
    case when late.deadline is not null
        then greatest(late.deadline, pulse.now() - interval '1 day') - pulse.now() end as until_late,
    null::interval as until_fire,
    false as is_buffering,
    null::interval as until_wake
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
) as late on true;

-- name: cancel_jobs(bucket, ids, reason)
with open as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, status from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id and finished_at is null
        for no key update skip locked
    ) as job
    limit cardinality(:ids::uuid[])
),
cancelled as (
    update pulse.jobs
    set status = 'CANCELLED',
        lease_id = lease_id + 1,
        last_error = :reason,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    from open
    where jobs.bucket = open.bucket and jobs.ctid = open.place
    returning jobs.id, topic, open.status as was
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, was, 'CANCELLED', count(*), pulse.now() from cancelled group by topic, was
)
select id, was from cancelled;

-- name: free_replayed_keys(bucket, ids)
-- As free_keys, for the keys that these jobs want back.
with passed as materialized (
    select holder.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select topic, unique_key from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
    ) as named
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = named.topic and jobs.unique_key = named.unique_key
            and jobs.key_held_until <= pulse.now() and lease_until is null
        for no key update skip locked
    ) as holder
    limit cardinality(:ids::uuid[])
)
update pulse.jobs set key_held_until = null
from passed
where jobs.bucket = passed.bucket and jobs.ctid = passed.place;

-- name: replay_jobs(bucket, ids, before)
-- Dead letters back to work with a fresh budget, if they died by then. A unique key is taken back with it; where another job holds
-- the key by now, or two of these share one, the job stays where it is.
with patience as materialized (
    select set_config('lock_timeout', '1000', true)
),
named as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, id, topic, status, unique_key, finished_at from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id
        for no key update skip locked
    ) as job
),
dead as (
    select named.*
    from named
    left join lateral (
        select id from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = named.topic and jobs.unique_key = named.unique_key
            and key_held_until is not null and jobs.id <> named.id
        offset 0
    ) as holder on true
    where status = 'DEAD_LETTERED' and finished_at <= :before::timestamptz and holder.id is null
),
chosen as materialized (
    select distinct on (topic, coalesce(unique_key, id::text)) bucket, place from dead
    order by topic, coalesce(unique_key, id::text), id
    limit cardinality(:ids::uuid[])
),
replayed as (
    update pulse.jobs
    set status = 'PENDING',
        ready_at = pulse.now(),
        run_at = pulse.now(),
        refunded = attempt,
        lease_id = lease_id + 1,
        finished_at = null,
        deadline = case when deadline > pulse.now() then deadline end,
        key_held_until = case
            when unique_key is null then null
            when key_held_until > pulse.now() then key_held_until
            else 'infinity'
        end
    from patience, chosen
    where jobs.bucket = chosen.bucket and jobs.ctid = chosen.place
    returning jobs.id, topic, priority
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, 'DEAD_LETTERED', 'PENDING', count(*), pulse.now() from replayed group by topic
)
select id, topic, priority from replayed;

-- name: run_jobs_now(bucket, ids)
-- As promote_jobs, for these and before their time, which stays on the row: a repeated submit is compared with it.
-- The fence stays as well: nobody holds a claim on a job that waits.
-- Their state is looked at last, or it would offer the index of all that are due.
with named as materialized (
    select job.*
    from unnest(:ids::uuid[]) as wanted (id)
    cross join lateral (
        select bucket, ctid as place, status from pulse.jobs
        where bucket = :bucket and jobs.id = wanted.id
        for no key update skip locked
    ) as job
),
early as materialized (
    select * from named where status in ('SCHEDULED', 'RETRYING') limit cardinality(:ids::uuid[])
),
hastened as (
    update pulse.jobs
    set status = 'PENDING', ready_at = pulse.now()
    from early
    where jobs.bucket = early.bucket and jobs.ctid = early.place
    returning jobs.id, topic, priority, early.status as was
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, was, 'PENDING', count(*), pulse.now() from hastened group by topic, was
)
select id, topic, priority from hastened;

-- name: prune_jobs(bucket, keep_completed, keep_cancelled, keep_dead_lettered, limit)
-- Remove finished jobs past their retention, oldest first within each topic. The topics come from the counts,
-- so that one index serves retention and lists alike. A key whose window is still open keeps its job.
with past as materialized (
    select old.*
    from pulse.counts
    cross join lateral (
        select jobs.bucket, jobs.ctid as place from pulse.jobs
        where jobs.bucket = :bucket and jobs.topic = counts.topic and jobs.status = counts.status
            and finished_at < pulse.now() - case counts.status
                when 'COMPLETED' then :keep_completed::interval
                when 'CANCELLED' then :keep_cancelled::interval
                else :keep_dead_lettered::interval
            end
            and (key_held_until is null or key_held_until <= pulse.now())
        order by finished_at
        limit :limit
        for update skip locked
    ) as old
    where counts.bucket = :bucket and counts.status in ('COMPLETED', 'CANCELLED', 'DEAD_LETTERED')
    limit :limit
),
pruned as (
    delete from pulse.jobs using past
    where jobs.bucket = past.bucket and jobs.ctid = past.place
    returning jobs.id, topic, status
),
logged as materialized (
    select attempt.*
    from pruned
    cross join lateral (
        select bucket, ctid as place from pulse.attempts where bucket = :bucket and job_id = pruned.id offset 0
    ) as attempt
),
forgotten as (
    delete from pulse.attempts using logged
    where attempts.bucket = logged.bucket and attempts.ctid = logged.place
),
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, jobs, moved_at)
    select :bucket, topic, status, count(*), pulse.now() from pruned group by topic, status
)
select count(*)::int from pruned;

-- name: prune_results(bucket, limit)
with past as materialized (
    select bucket, ctid as place from pulse.jobs
    where bucket = :bucket and result_until <= pulse.now()
    order by result_until
    limit :limit
    for no key update skip locked
),
cleared as (
    update pulse.jobs set result = null, result_until = null
    from past
    where jobs.bucket = past.bucket and jobs.ctid = past.place
    returning jobs.id
)
select count(*)::int from cleared;

-- name: roll_tallies(bucket, limit)
-- Fold appended tallies into the counts and the series. Sorted, so that two rollers take the rows in one order.
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
-- Topics that have had no job for a while leave no trace.
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

-- name: pause_topic(topic, reason)
insert into pulse.pauses (topic, reason, paused_at) values (:topic, :reason, pulse.now())
on conflict (topic) do update set reason = excluded.reason
returning topic, reason, paused_at;

-- name: resume_topic(topic)
delete from pulse.pauses where topic = :topic returning topic;

-- name: list_pauses()
select topic, reason, paused_at from pulse.pauses order by topic;

-- name: get_jobs(bucket, ids)
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select
        id, status, topic, task, payload, priority, attempt, max_attempts, refunded, lease_id, submitted_at, ready_at,
        run_at, claimed_at, lease_until, finished_at, locked_by, last_error,
        case when result_until <= pulse.now() then null else result end as result,
        progress, retry, tags, trace, timeout, deadline, result_ttl, unique_key, key_held_until, schedule_id,
        scheduled_for
    from pulse.jobs
    where bucket = :bucket and jobs.id = wanted.id
    offset 0
) as job;

-- name: get_job_heads(bucket, ids)
select job.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select
        id, status, topic, task, priority, attempt, max_attempts, refunded, submitted_at, ready_at, run_at, claimed_at,
        finished_at, locked_by, left(last_error, 500) as last_error
    from pulse.jobs
    where bucket = :bucket and jobs.id = wanted.id
    offset 0
) as job;

-- name: finished_ids(bucket, ids)
-- Which of many are over. Asked again and again for all that anybody waits for, so it reads no more than it must.
select wanted.id
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select status from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job
where job.status in ('COMPLETED', 'DEAD_LETTERED', 'CANCELLED');

-- name: read_topics(bucket, ids)
select wanted.id, job.topic
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select topic from pulse.jobs where bucket = :bucket and jobs.id = wanted.id offset 0
) as job;

-- name: list_attempts(bucket, id)
select lease_id, attempt, worker, started_at, ended_at, error, traceback
from pulse.attempts
where bucket = :bucket and job_id = :id
order by lease_id;

-- name: read_installation()
select buckets from pulse.installation;

-- The lists. Each walks one index from a key, looks at no more than :scan rows, and answers with ids; a page may
-- come back short, and its last row (the one that was merely passed) tells where the next one begins.

-- name: list_newest(buckets, after_id, filter, scan, limit)
-- Newest submitted first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and jobs.id < :after_id
        order by jobs.id desc
        limit :scan
    ) as found
    order by id desc
    limit :scan
)
(select id, true as matches from scanned where pulse.job_matches(scanned, :filter::jsonb) order by id desc limit :limit)
union all
(select id, false from scanned order by id limit 1);

-- name: list_of_schedule(buckets, schedule_id, after_id, filter, scan, limit)
-- Those that one schedule has made, newest first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and jobs.schedule_id = :schedule_id and jobs.id < :after_id
        order by jobs.id desc
        limit :scan
    ) as found
    order by id desc
    limit :scan
)
(select id, true as matches from scanned where pulse.job_matches(scanned, :filter::jsonb) order by id desc limit :limit)
union all
(select id, false from scanned order by id limit 1);

-- name: list_pending(bucket, topic, after_urgency, after_ready_at, after_id, filter, scan, limit)
-- In the order in which they will be claimed.
with scanned as materialized (
    select * from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) > (:after_urgency::smallint, :after_ready_at::timestamptz, :after_id::uuid)
    order by -priority, ready_at, id
    limit :scan
)
(
    select id, true as matches, -priority as urgency, ready_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by -priority, ready_at, id limit :limit
)
union all
(select id, false, -priority, ready_at from scanned order by -priority desc, ready_at desc, id desc limit 1);

-- name: list_due(buckets, after_run_at, after_id, filter, scan, limit)
-- SCHEDULED and RETRYING, the next to fall due first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status in ('SCHEDULED', 'RETRYING')
            and (run_at, id) > (:after_run_at::timestamptz, :after_id::uuid)
        order by run_at, id
        limit :scan
    ) as found
    order by run_at, id
    limit :scan
)
(
    select id, true as matches, run_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by run_at, id limit :limit
)
union all
(select id, false, run_at from scanned order by run_at desc, id desc limit 1);

-- name: list_running(buckets, after_claimed_at, after_id, filter, scan, limit)
-- The longest running first. There are never more of them than slots, so sorting them is cheap.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status = 'RUNNING'
            and (claimed_at, id) > (:after_claimed_at::timestamptz, :after_id::uuid)
        offset 0
    ) as found
    order by claimed_at, id
    limit :scan
)
(
    select id, true as matches, claimed_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by claimed_at, id limit :limit
)
union all
(select id, false, claimed_at from scanned order by claimed_at desc, id desc limit 1);

-- name: list_finished(bucket, topic, status, after_finished_at, after_id, filter, scan, limit)
-- One topic, most recently finished first.
with scanned as materialized (
    select * from pulse.jobs
    where bucket = :bucket and topic = :topic and status = :status and finished_at is not null
        and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
    order by finished_at desc, id desc
    limit :scan
)
(
    select id, true as matches, finished_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by finished_at desc, id desc limit :limit
)
union all
(select id, false, finished_at from scanned order by finished_at, id limit 1);

-- name: list_dead(buckets, after_finished_at, after_id, filter, scan, limit)
-- Dead letters of all topics, the most recent first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status = 'DEAD_LETTERED' and finished_at is not null
            and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
        order by finished_at desc, id desc
        limit :scan
    ) as found
    order by finished_at desc, id desc
    limit :scan
)
(
    select id, true as matches, finished_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by finished_at desc, id desc limit :limit
)
union all
(select id, false, finished_at from scanned order by finished_at, id limit 1);

-- Two lists over all topics whose indexes begin with the topic. The topics come from the counts; of each are read as many
-- as its share of the scan, and a page's worth at least, unless that were more than :reach of all together. Where a topic
-- had more than that, what the others have behind its last row is left for the next page (the horizon), so that the order
-- is that of one list.

-- name: list_all_pending(after_urgency, after_ready_at, after_id, filter, scan, limit, reach)
-- The most urgent first, then those that wait longest.
with topics as materialized (
    select bucket, topic from pulse.counts where status = 'PENDING'
    union
    select bucket, topic from pulse.tallies where to_status = 'PENDING'
),
share as materialized (
    select greatest(1, least(greatest(:limit::int, :scan::int / named.topics), :reach::int / named.topics)) as jobs
    from (select greatest(count(*), 1) as topics from topics) as named
),
heads as materialized (
    select found.*
    from topics
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = topics.bucket and jobs.topic = topics.topic and status = 'PENDING'
            and (-priority, ready_at, id) > (:after_urgency::smallint, :after_ready_at::timestamptz, :after_id::uuid)
        order by -priority, ready_at, id
        limit (select share.jobs from share)
    ) as found
),
horizon as materialized (
    select last.* from share
    cross join lateral (
        select (array_agg(-priority order by -priority desc, ready_at desc, id desc))[1] as urgency,
            (array_agg(ready_at order by -priority desc, ready_at desc, id desc))[1] as ready_at,
            (array_agg(id order by -priority desc, ready_at desc, id desc))[1] as id
        from heads group by topic having count(*) >= share.jobs
    ) as last
    order by urgency, ready_at, id
    limit 1
),
scanned as materialized (
    select heads.* from heads
    where not exists (
        select from horizon
        where (-heads.priority, heads.ready_at, heads.id) > (horizon.urgency, horizon.ready_at, horizon.id)
    )
    order by -priority, ready_at, id
    limit :scan
)
(
    select id, true as matches, -priority as urgency, ready_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by -priority, ready_at, id limit :limit
)
union all
(select id, false, -priority, ready_at from scanned order by -priority desc, ready_at desc, id desc limit 1);

-- name: list_all_finished(status, after_finished_at, after_id, filter, scan, limit, reach)
-- Most recently finished first.
with topics as materialized (
    select bucket, topic from pulse.counts where status = :status
    union
    select bucket, topic from pulse.tallies where to_status = :status
),
share as materialized (
    select greatest(1, least(greatest(:limit::int, :scan::int / named.topics), :reach::int / named.topics)) as jobs
    from (select greatest(count(*), 1) as topics from topics) as named
),
heads as materialized (
    select found.*
    from topics
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = topics.bucket and jobs.topic = topics.topic and status = :status
            and finished_at is not null
            and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
        order by finished_at desc, id desc
        limit (select share.jobs from share)
    ) as found
),
horizon as materialized (
    select last.* from share
    cross join lateral (
        select (array_agg(finished_at order by finished_at, id))[1] as finished_at,
            (array_agg(id order by finished_at, id))[1] as id
        from heads group by topic having count(*) >= share.jobs
    ) as last
    order by finished_at desc, id desc
    limit 1
),
scanned as materialized (
    select heads.* from heads
    where not exists (
        select from horizon where (heads.finished_at, heads.id) < (horizon.finished_at, horizon.id)
    )
    order by finished_at desc, id desc
    limit :scan
)
(
    select id, true as matches, finished_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by finished_at desc, id desc limit :limit
)
union all
(select id, false, finished_at from scanned order by finished_at, id limit 1);
