-- A schedule is changed under a lock on its row. Firing passes over rows that somebody is changing, and finds them
-- later as that change left them.

-- fragment: due_columns
-- The fields of a DueSchedule, in their order.
id, bucket, next_run_at, buffered_for, fired, max_occurrences, jitter, catch_up, replay_limit, overlap, cron,
every, anchor, run_at, tz, starts_at, ends_at, pulse.now() as now

-- fragment: fired_job_columns
bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, result_ttl, tags,
schedule_id, scheduled_for, submitted_at, run_at, ready_at, status, lease_id

-- name: due_schedules(limit)
-- Lock the schedules that are due, the longest due first. If a row was paused, edited or removed meanwhile, Postgres
-- checks it again once it is locked, so the change that was committed first wins.
select {{due_columns}}
from pulse.schedules
where next_run_at <= pulse.now() and paused_at is null
order by next_run_at
limit :limit
for no key update skip locked;

-- name: due_among(ids)
-- Lock those of the given schedules that are still due: after a batch has failed, its parts are tried again.
select due.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select {{due_columns}}
    from pulse.schedules
    where schedules.id = wanted.id and paused_at is null and (next_run_at <= pulse.now() or buffered_for is not null)
    for no key update skip locked
) as due;

-- name: unbuffered_schedules(limit)
-- Lock the schedules whose buffered occurrence no longer has an earlier job to wait for.
select {{due_columns}}
from pulse.schedules
where buffered_for is not null and paused_at is null
    and not exists (select from pulse.jobs where jobs.schedule_id = schedules.id and finished_at is null)
order by buffered_for
limit :limit
for no key update skip locked;

-- name: busy_schedules(ids)
-- Find which of these schedules have unfinished jobs.
select id from unnest(:ids::uuid[]) as wanted (id)
where exists (select from pulse.jobs where jobs.schedule_id = wanted.id and finished_at is null);

-- name: fire_regular(ids, cursors, nexts, job_ids)
-- Fire schedules that make one job for their cursor's occurrence, due at once, and go on to the next, as nearly all do.
-- The cursors move, and every row that moved makes the job that it describes and a line in the log. An occurrence that
-- is in the log as fired makes Postgres refuse the batch.
with {{patience}},
moved as (
    update pulse.schedules
    set next_run_at = plan.next, last_run_at = plan.cursor, fired = fired + 1, error = null, buffered_for = null
    from (
        select * from unnest(:ids::uuid[], :cursors::timestamptz[], :nexts::timestamptz[], :job_ids::uuid[])
            as plan (id, cursor, next, job_id)
        limit cardinality(:ids::uuid[])
    ) as plan
    where schedules.id = plan.id and schedules.next_run_at = plan.cursor
    returning plan.job_id, plan.cursor as occurrence, schedules.id as schedule_id, bucket, topic, task, payload,
        priority, max_attempts, retry, timeout, result_ttl, tags
),
logged as (
    insert into pulse.fires (schedule_id, occurrence, outcome, cause, logged_at, newest, job_id)
    select schedule_id, occurrence, 'FIRED', 'timetable', pulse.now(), occurrence, job_id
    from patience, moved
),
made as (
    insert into pulse.jobs ({{fired_job_columns}})
    select
        bucket, job_id, topic, task, payload, priority, max_attempts, retry, timeout, result_ttl, tags,
        schedule_id, occurrence, pulse.now(), pulse.now(), pulse.now(), 'PENDING',
        (select extract(epoch from pulse.now()) * 1000000)
    from patience, moved
),
summed as materialized (
    select bucket, topic, max(priority) as priority, count(*) as jobs from moved group by bucket, topic
),
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
    select bucket, topic, 'PENDING', jobs, pulse.now() from summed
)
select
    (select coalesce(sum(jobs), 0) from summed)::int as moved,
    (select coalesce(json_agg(ready), '[]') from (select topic, priority from summed) as ready)::text as ready;

-- name: fire_schedules(
--     ids, cursors, nexts, statuses, errors, buffered, counts, lasts, fired_by, occurrences, job_ids, run_ats, cause,
--     noted_by, noted, outcomes, reasons, missed, newest
-- )
-- Fire schedules in any other way, in one statement: move the cursors, make the jobs, log what became of every
-- occurrence. The job is the one that its schedule describes. An occurrence that is in the log as fired makes no job
-- again, even if its job is long gone. If another job has the id of an occurrence, Postgres refuses the batch.
-- Every list is looked up through an index: with hash and merge joins switched off, joining two of the lists would
-- compare each row of one with each row of the other.
with {{patience}},
moved as (
    update pulse.schedules
    set next_run_at = plan.next,
        status = plan.status,
        error = plan.error,
        buffered_for = plan.buffered,
        fired = fired + plan.count,
        last_run_at = coalesce(plan.last, last_run_at)
    from (
        select * from unnest(
            :ids::uuid[], :cursors::timestamptz[], :nexts::timestamptz[], :statuses::text[], :errors::text[],
            :buffered::timestamptz[], :counts::int[], :lasts::timestamptz[]
        ) as plan (id, cursor, next, status, error, buffered, count, last)
        limit cardinality(:ids::uuid[])
    ) as plan
    where schedules.id = plan.id and schedules.next_run_at is not distinct from plan.cursor
    returning 1
),
new as materialized (
    select fire.*, template.*
    from patience, unnest(
        :fired_by::uuid[], :occurrences::timestamptz[], :run_ats::timestamptz[], :job_ids::uuid[]
    ) as fire (schedule_id, occurrence, run_at, job_id)
    cross join lateral (
        select bucket, topic, task, payload, priority, max_attempts, retry, timeout, result_ttl, tags
        from pulse.schedules where schedules.id = fire.schedule_id offset 0
    ) as template
    left join lateral (
        select true as is_known from pulse.fires
        where fires.schedule_id = fire.schedule_id and fires.occurrence = fire.occurrence and outcome = 'FIRED'
        offset 0
    ) as before on true
    where is_known is null
),
fired as (
    insert into pulse.fires (schedule_id, occurrence, outcome, cause, logged_at, newest, run_at, job_id)
    select schedule_id, occurrence, 'FIRED', :cause, pulse.now(), occurrence, run_at, job_id from new
),
noted as (
    insert into pulse.fires (schedule_id, occurrence, outcome, cause, reason, logged_at, occurrences, newest)
    select schedule_id, occurrence, outcome, :cause, reason, pulse.now(), missed, newest
    from unnest(
        :noted_by::uuid[], :noted::timestamptz[], :outcomes::text[], :reasons::text[], :missed::bigint[],
        :newest::timestamptz[]
    ) as note (schedule_id, occurrence, outcome, reason, missed, newest)
    on conflict do nothing
),
submitted as (
    insert into pulse.jobs ({{fired_job_columns}})
    select
        new.bucket, new.job_id, new.topic, new.task, new.payload, new.priority,
        new.max_attempts, new.retry, new.timeout, new.result_ttl, new.tags,
        new.schedule_id, new.occurrence, pulse.now(), coalesce(new.run_at, pulse.now()),
        case when new.run_at > pulse.now() then null else pulse.now() end,
        case when new.run_at > pulse.now() then 'SCHEDULED' else 'PENDING' end,
        (select extract(epoch from pulse.now()) * 1000000)
    from new
    left join lateral (
        select true as is_known from pulse.jobs
        where jobs.bucket = new.bucket and jobs.id = new.job_id
            and (jobs.schedule_id, jobs.scheduled_for) is not distinct from (new.schedule_id, new.occurrence)
        offset 0
    ) as before on true
    where is_known is null
    returning bucket, topic, priority, status
),
{{tallied_new}}
select
    (select count(*) from moved)::int as moved,
    (select coalesce(json_agg(ready), '[]') from (
        select topic, max(priority) as priority from submitted where status = 'PENDING' group by topic
    ) as ready)::text as ready;

-- name: taken_occurrences(job_ids, schedule_ids, occurrences)
-- Find the ids of these occurrences that another job has.
select wanted.id
from (
    select *, pulse.bucket_of_id(id) as bucket
    from unnest(:job_ids::uuid[], :schedule_ids::uuid[], :occurrences::timestamptz[])
        as made (id, schedule_id, occurrence)
) as wanted
cross join lateral (
    select schedule_id, scheduled_for from pulse.jobs
    where jobs.bucket = wanted.bucket and jobs.id = wanted.id
    offset 0
) as job
where (job.schedule_id, job.scheduled_for) is distinct from (wanted.schedule_id, wanted.occurrence);
