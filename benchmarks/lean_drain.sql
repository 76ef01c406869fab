-- The leanest drain we could write: the same columns, the same durable operations (claim with lease, attempt and fence;
-- complete with result, guarded by the fence), and nothing else. It has no pauses, no deadlines, no low-water marks, no
-- workers, no tallies, no unique keys, and only the two indexes that it needs; complete waits for locked rows.

-- name: create_schema()
drop schema if exists lean cascade;
create schema lean;
create table lean.jobs (like pulse.jobs including defaults, primary key (bucket, id)) with (fillfactor = 70);
create index on lean.jobs (bucket, topic, (-priority), ready_at, id) where status = 'PENDING';

-- name: fill(topic, jobs)
insert into lean.jobs (bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, status, lease_id)
select bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, status, lease_id
from pulse.jobs where topic = :topic limit :jobs;

-- name: claim(topic, limit, worker, lease)
with first as materialized (
    select id from lean.jobs
    where bucket = 0 and topic = :topic and status = 'PENDING'
    order by -priority, ready_at, id
    limit :limit
    for no key update skip locked
)
update lean.jobs
set status = 'RUNNING', attempt = attempt + 1, lease_id = lease_id + 1, locked_by = :worker,
    claimed_at = statement_timestamp(), lease_until = statement_timestamp() + :lease::interval
from first
where jobs.bucket = 0 and jobs.id = first.id
returning jobs.id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
    ready_at, claimed_at, lease_until, timeout, deadline, trace;

-- name: complete(ids, lease_ids, results)
update lean.jobs
set status = 'COMPLETED', result = report.result, lease_until = null, finished_at = statement_timestamp()
from unnest(:ids::uuid[], :lease_ids::bigint[], :results::jsonb[]) as report (id, lease_id, result)
where jobs.bucket = 0 and jobs.id = report.id and status = 'RUNNING' and jobs.lease_id = report.lease_id
returning jobs.id;
