-- Two ways to keep finished jobs, on the same columns and with the same durable operations, for benchmarks/soak.py:
-- "one" updates the row in its table, "move" deletes it from the hot table and inserts it into another.

-- name: create_schema()
drop schema if exists soak cascade;
create schema soak;
create table soak.jobs (like pulse.jobs including defaults, primary key (bucket, id)) with (fillfactor = 70);
create index on soak.jobs (bucket, topic, (-priority), ready_at, id) where status = 'PENDING';
create index on soak.jobs (bucket, claimed_at) where status = 'RUNNING';
create index on soak.jobs (bucket, topic, status, finished_at, id) where finished_at is not null;
create table soak.done (like pulse.jobs including defaults, primary key (bucket, id));
create index on soak.done (bucket, topic, status, finished_at, id);

-- name: submit(ids)
insert into soak.jobs (bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, ready_at, status, lease_id)
select 0, id, 'bench', 'bench', '{"order_id": "6f1f6b0e-8f4b-4c40-9df4-0d2c54b34c5a", "to": "someone@example.com"}',
    0, 3, statement_timestamp(), statement_timestamp(), statement_timestamp(), 'PENDING', 1
from unnest(:ids::uuid[]) as id;

-- name: claim(limit, mark_ready_at, mark_id)
with first as materialized (
    select ctid as place from soak.jobs
    where bucket = 0 and topic = 'bench' and status = 'PENDING'
        and (-priority, ready_at, id) > (0::smallint, :mark_ready_at::timestamptz, :mark_id::uuid)
    order by -priority, ready_at, id
    limit :limit
    for no key update skip locked
)
update soak.jobs
set status = 'RUNNING', attempt = attempt + 1, lease_id = lease_id + 1, locked_by = 'bench',
    claimed_at = statement_timestamp(), lease_until = statement_timestamp() + interval '30 s'
from first
where jobs.ctid = first.place
returning jobs.id, lease_id, task, payload, attempt, ready_at;

-- name: complete_one(ids, lease_ids)
with held as materialized (
    select job.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as report (id, lease_id)
    cross join lateral (
        select ctid as place from soak.jobs
        where bucket = 0 and jobs.id = report.id and lease_until is not null and jobs.lease_id = report.lease_id
        offset 0
    ) as job
)
update soak.jobs
set status = 'COMPLETED', result = 'true', lease_until = null, finished_at = statement_timestamp()
from held
where jobs.ctid = held.place and lease_until is not null
returning jobs.id;

-- name: complete_move(ids, lease_ids)
with held as materialized (
    select job.place
    from unnest(:ids::uuid[], :lease_ids::bigint[]) as report (id, lease_id)
    cross join lateral (
        select ctid as place from soak.jobs
        where bucket = 0 and jobs.id = report.id and lease_until is not null and jobs.lease_id = report.lease_id
        offset 0
    ) as job
),
gone as (
    delete from soak.jobs using held
    where jobs.ctid = held.place and lease_until is not null
    returning jobs.*
)
insert into soak.done (bucket, id, topic, task, payload, priority, max_attempts, attempt, lease_id, submitted_at, run_at,
    ready_at, claimed_at, locked_by, status, result, finished_at)
select bucket, id, topic, task, payload, priority, max_attempts, attempt, lease_id, submitted_at, run_at,
    ready_at, claimed_at, locked_by, 'COMPLETED', 'true', statement_timestamp()
from gone
returning id;
