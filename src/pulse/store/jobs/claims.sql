-- fragment: where_claim_stands
-- The row of the claim in `report`, unless the claim has ended, or somebody else has locked the row.
where bucket = :bucket and jobs.id = report.id and lease_until is not null and jobs.lease_id = report.lease_id
for no key update skip locked

-- fragment: held_claims
-- Lock the jobs whose claims still stand.
held as materialized (
    select job.bucket, job.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as report (id, lease_id)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        {{where_claim_stands}}
    ) as job
    limit cardinality(:ids::uuid[])
)

-- fragment: set_completed
set status = 'COMPLETED',
    result = report.result,
    result_until = pulse.now() + result_ttl,
    lease_until = null,
    finished_at = pulse.now(),
    key_held_until = nullif(key_held_until, 'infinity')

-- fragment: tallied_completed
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at, took, seconds)
    select :bucket, topic, 'RUNNING', 'COMPLETED', count(*), pulse.now(),
        pulse.took_class(pulse.now() - claimed_at) as took, sum(date_part('epoch', pulse.now() - claimed_at))
    from completed
    group by topic, took
)

-- fragment: released
-- Give the jobs in `held` back to their topics: the attempt is not charged, and the fence rises, so that nobody can
-- report on the claim any more.
moved as (
    update pulse.jobs
    set status = 'PENDING',
        ready_at = pulse.now(),
        refunded = refunded + 1,
        lease_id = lease_id + 1,
        locked_by = null,
        lease_until = null
    from held
    where jobs.bucket = held.bucket and jobs.ctid = held.place
    returning jobs.id, topic, priority, lease_id - 1 as lease_id, 'RUNNING' as was, jobs.status
),
{{tallied_moves}}
select id, lease_id, topic, priority from moved

-- name: claim_jobs(bucket, topic, workers, limit, lease, mark_urgency, mark_ready_at, mark_id)
-- Lease the first waiting jobs of a topic, dealt to the workers in turn. The scan starts behind the low-water mark.
-- MATERIALIZED makes sure that no more rows are locked than the limit says. The pause is read in the same snapshot as
-- the jobs. Once rows are locked, their place (ctid) cannot change, and going there directly saves a second walk down
-- the key. Numbering them by an array costs less than by a window function.
-- If a row was changed and committed between the snapshot and the lock, its newest version is locked, whose place the
-- snapshot cannot see, so that the row is not updated. That is why the tally counts what the update returned, never
-- what was locked. The row waits for the next claim, which comes soon: whatever changes a waiting row (a unique key
-- whose window has passed, a release) notifies its topic when it commits.
-- The fence of a claim is the time, or one more than the last fence. A standby that takes over without the last claims
-- does not know their fences, and must not give them out again.
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
    returning {{claim_columns}}
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
-- Find which of these topics have jobs waiting. A worker asks at each of its polls, once for all its topics.
select wanted.topic
from unnest(:buckets::smallint[], :topics::text[]) as wanted (bucket, topic)
cross join lateral (
    select from pulse.jobs
    where jobs.bucket = wanted.bucket and jobs.topic = wanted.topic and status = 'PENDING'
    limit 1
) as ready
where not exists (select from pulse.pauses where pauses.topic in ('*', wanted.topic));

-- name: heartbeat_jobs(bucket, ids, lease_ids, lease)
with {{held_claims}}
update pulse.jobs
set lease_until = pulse.now() + :lease::interval
from held
where jobs.bucket = held.bucket and jobs.ctid = held.place
returning jobs.id, jobs.lease_id;

-- name: progress_jobs(bucket, ids, lease_ids, progress)
with held as materialized (
    select job.bucket, job.place, report.progress
    from unnest(:ids::uuid[], :lease_ids::bigint[], :progress::jsonb[]) as report (id, lease_id, progress)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        {{where_claim_stands}}
    ) as job
    limit cardinality(:ids::uuid[])
)
update pulse.jobs
set progress = held.progress
from held
where jobs.bucket = held.bucket and jobs.ctid = held.place
returning jobs.id, jobs.lease_id;

-- name: complete_jobs(bucket, ids, lease_ids, results)
-- The only statement that waits for locked rows, and for no more than a twentieth of a second: a claim with an older
-- snapshot may hold a row for as long as it runs. Locking the rows first, and passing over those that are locked, would
-- make every call a fifth slower. Where a handler's own transaction holds a row, this statement fails, and
-- complete_free_jobs is used instead. It cannot deadlock, because nothing that it waits for ever waits itself.
-- The limit hides from the planner that all rows have one bucket: otherwise it might walk through the whole bucket
-- instead of looking up each row by its whole key.
with patience as materialized (
    select set_config('lock_timeout', '50', true)
),
completed as (
    update pulse.jobs
    {{set_completed}}
    from patience, (
        select :bucket::smallint as bucket, *
        from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
        limit cardinality(:ids::uuid[])
    ) as report
    where jobs.bucket = report.bucket and jobs.id = report.id
        and lease_until is not null and jobs.lease_id = report.lease_id
    returning jobs.id, topic, jobs.lease_id, claimed_at
),
{{tallied_completed}}
select
    count(*)::int as jobs,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(id) end as ids,
    case when count(*) < cardinality(:ids::uuid[]) then array_agg(lease_id) end as lease_ids
from completed;

-- name: complete_free_jobs(bucket, ids, lease_ids, results)
-- As complete_jobs, but pass over rows that are locked.
with held as materialized (
    select job.bucket, job.place, report.result
    from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
    cross join lateral (
        select bucket, ctid as place from pulse.jobs
        {{where_claim_stands}}
    ) as job
    limit cardinality(:ids::uuid[])
),
completed as (
    update pulse.jobs
    {{set_completed}}
    from held as report
    where jobs.bucket = report.bucket and jobs.ctid = report.place
    returning jobs.id, topic, lease_id, claimed_at
),
{{tallied_completed}}
select id, lease_id from completed;

-- name: fail_jobs(bucket, ids, lease_ids, outcomes, errors, tracebacks, delays)
-- FAIL, SNOOZE and DISCARD. pulse.after_failure decides what follows a failure, here as in reap_jobs.
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
        {{where_claim_stands}}
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

-- name: release_jobs(bucket, ids, lease_ids)
-- Give back claims that were never started.
with {{held_claims}},
{{released}};

-- name: release_unheld(bucket, workers, ids, lease_ids, after, before)
-- Release everything that is leased to these workers except the claims that they name: the answer that gave them the
-- others was lost. Only claims between the two instants are released, because the workers may have been given more
-- since. The statement reads only what was claimed in between and still runs: little, compared with what such a worker
-- has lost.
with held as materialized (
    select bucket, ctid as place
    from pulse.jobs
    where bucket = :bucket and status = 'RUNNING' and locked_by = any(:workers::text[])
        and claimed_at > :after::timestamptz and claimed_at < :before::timestamptz
        and (id, lease_id) not in (select * from unnest(:ids::uuid[], :lease_ids::bigint[]))
    limit 10000
    for no key update skip locked
),
{{released}};
