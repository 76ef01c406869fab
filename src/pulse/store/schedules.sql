-- Every statement that touches a schedule. A schedule is changed by whoever holds its row; firing passes over rows
-- that someone is changing, and sees them as they were left.

-- name: due_schedules(limit)
-- Lock the schedules whose time has come, longest due first. A row that was paused, edited or removed meanwhile is
-- looked at again once it is locked, so whoever committed first has the say.
select
    id, bucket, next_run_at, buffered_for, fired, max_occurrences, jitter, catch_up, replay_limit, overlap, cron,
    every, anchor, run_at, tz, starts_at, ends_at, pulse.now() as now
from pulse.schedules
where next_run_at <= pulse.now() and paused_at is null
order by next_run_at
limit :limit
for no key update skip locked;

-- name: due_among(ids)
-- Those of the given schedules that are still due: where a batch failed, its parts are tried again.
select due.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (
    select
        id, bucket, next_run_at, buffered_for, fired, max_occurrences, jitter, catch_up, replay_limit, overlap, cron,
        every, anchor, run_at, tz, starts_at, ends_at, pulse.now() as now
    from pulse.schedules
    where schedules.id = wanted.id and paused_at is null and (next_run_at <= pulse.now() or buffered_for is not null)
    for no key update skip locked
) as due;

-- name: unbuffered_schedules(limit)
-- Lock the schedules whose buffered occurrence has nothing left to wait for.
select
    id, bucket, next_run_at, buffered_for, fired, max_occurrences, jitter, catch_up, replay_limit, overlap, cron,
    every, anchor, run_at, tz, starts_at, ends_at, pulse.now() as now
from pulse.schedules
where buffered_for is not null and paused_at is null
    and not exists (select from pulse.jobs where jobs.schedule_id = schedules.id and finished_at is null)
order by buffered_for
limit :limit
for no key update skip locked;

-- name: busy_schedules(ids)
-- Those that have unfinished jobs.
select id from unnest(:ids::uuid[]) as wanted (id)
where exists (select from pulse.jobs where jobs.schedule_id = wanted.id and finished_at is null);

-- name: fire_regular(ids, cursors, nexts, job_ids)
-- Those that fire their cursor's occurrence, at once, and go on, as nearly all do: the cursors move, and every row that
-- moved makes the job it describes and its line in the log. What the log has as fired already refuses the batch.
with patience as materialized (
    select set_config('lock_timeout', '1000', true)
),
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
    insert into pulse.jobs (
        bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, result_ttl, tags,
        schedule_id, scheduled_for, submitted_at, run_at, ready_at, status, lease_id
    )
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

-- name: fire_schedules(ids, cursors, nexts, statuses, errors, buffered, counts, lasts, fired_by, occurrences, job_ids, run_ats, cause, noted_by, noted, outcomes, reasons, missed, newest)
-- Whatever else can become of schedules, in one statement: move the cursors, make the jobs, log what became of every
-- occurrence. The job is the row its schedule describes. What the log already has as fired makes no job again, even if
-- the job is long gone. The id of an occurrence that some other job has refuses the batch.
-- Everything here goes through an index: plans are pinned, so joining two of the lists would compare each with each.
with patience as materialized (
    select set_config('lock_timeout', '1000', true)
),
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
made as (
    insert into pulse.jobs (
        bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, result_ttl, tags,
        schedule_id, scheduled_for, submitted_at, run_at, ready_at, status, lease_id
    )
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
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
    select bucket, topic, status, count(*), pulse.now() from made group by bucket, topic, status
)
select
    (select count(*) from moved)::int as moved,
    (select coalesce(json_agg(ready), '[]') from (
        select topic, max(priority) as priority from made where status = 'PENDING' group by topic
    ) as ready)::text as ready;

-- name: taken_occurrences(job_ids, schedule_ids, occurrences)
-- The ids of those occurrences that some other job has.
select wanted.id
from (
    select *, pulse.bucket_of_id(id) as bucket
    from unnest(:job_ids::uuid[], :schedule_ids::uuid[], :occurrences::timestamptz[]) as made (id, schedule_id, occurrence)
) as wanted
cross join lateral (
    select schedule_id, scheduled_for from pulse.jobs
    where jobs.bucket = wanted.bucket and jobs.id = wanted.id
    offset 0
) as job
where (job.schedule_id, job.scheduled_for) is distinct from (wanted.schedule_id, wanted.occurrence);

-- name: count_schedules(limit)
-- By state, of the first so many.
select case when status = 'ACTIVE' and paused_at is not null then 'paused' else lower(status) end as state,
    count(*)::int as schedules
from (select status, paused_at from pulse.schedules limit :limit) as first
group by state
order by state;

-- name: peek_schedules()
-- When the next one falls due, and whether one waits in its buffer.
select
    (select greatest(next_run_at, pulse.now() - interval '1 day') - pulse.now() from pulse.schedules
     where next_run_at is not null and paused_at is null order by next_run_at limit 1) as until_due,
    exists (select from pulse.schedules where buffered_for is not null and paused_at is null) as is_buffering;

-- name: insert_schedules(rows)
-- As many as are new by name; answers with those, as they are kept.
insert into pulse.schedules
select * from jsonb_populate_recordset(null::pulse.schedules, :rows::jsonb)
on conflict (name) do nothing
returning *;

-- name: update_schedules(rows)
-- Everything but its history and a person's pause.
update pulse.schedules
set name = new.name, status = new.status, next_run_at = new.next_run_at, buffered_for = new.buffered_for,
    error = new.error, app = new.app, updated_at = new.updated_at, kind = new.kind, cron = new.cron, every = new.every,
    anchor = new.anchor, run_at = new.run_at, tz = new.tz, starts_at = new.starts_at, ends_at = new.ends_at,
    max_occurrences = new.max_occurrences, jitter = new.jitter, catch_up = new.catch_up,
    replay_limit = new.replay_limit, overlap = new.overlap, task = new.task, topic = new.topic, bucket = new.bucket,
    payload = new.payload, priority = new.priority, max_attempts = new.max_attempts, retry = new.retry,
    timeout = new.timeout, result_ttl = new.result_ttl, tags = new.tags
from jsonb_populate_recordset(null::pulse.schedules, :rows::jsonb) as new
where schedules.id = new.id;

-- name: pause_schedule(id, reason)
update pulse.schedules
set paused_at = coalesce(paused_at, pulse.now()), pause_reason = :reason, updated_at = pulse.now()
where id = :id;

-- name: resume_schedule(id, next, status)
update pulse.schedules
set paused_at = null, pause_reason = '', next_run_at = :next, status = :status, updated_at = pulse.now()
where id = :id;

-- name: delete_schedules(ids)
-- Jobs already made stay. What became of the occurrences stays too, until its own retention removes it: there may be
-- millions of lines.
delete from pulse.schedules where id = any(:ids::uuid[]);

-- name: lock_schedules(names, ids, app)
-- Those with one of these names or ids, and those of an app, held until the transaction ends. Whoever fires them holds
-- them for a moment. In the order of their ids, so that two who want the same ones do not wait for each other.
with patience as materialized (
    select set_config('lock_timeout', '5000', true)
),
wanted as materialized (
    select id from patience, unnest(:ids::uuid[]) as id
    union
    select named.id
    from unnest(:names::text[]) as known (name)
    cross join lateral (select id from pulse.schedules where schedules.name = known.name offset 0) as named
    union
    select id from pulse.schedules where app = :app::text
    order by id
)
select schedule.*
from wanted
cross join lateral (
    select * from pulse.schedules where schedules.id = wanted.id for no key update
) as schedule;

-- name: find_schedules(names, ids)
select schedule.*
from (
    select unnest(:ids::uuid[]) as id
    union
    select named.id
    from unnest(:names::text[]) as known (name)
    cross join lateral (select id from pulse.schedules where schedules.name = known.name offset 0) as named
) as wanted
cross join lateral (select * from pulse.schedules where schedules.id = wanted.id offset 0) as schedule;

-- name: list_schedules(after, status, paused, task, topic, tag, limit)
select * from pulse.schedules
where name > :after
    and (:status::text is null or status = :status)
    and (:paused::boolean is null or (paused_at is not null) = :paused)
    and (:task::text is null or task = :task)
    and (:topic::text is null or topic = :topic)
    and (:tag::text is null or coalesce(tags ? :tag, false))
order by name
limit :limit;

-- name: search_schedules(after, first, last, status, paused, task, topic, part, scan, limit)
-- By name, from one to another: those among the first so many that match, and last where the scan ended.
with scanned as materialized (
    select id, name,
        (:status::text is null or status = :status)
        and (:paused::boolean is null or (paused_at is not null) = :paused)
        and (:task::text is null or task = :task)
        and (:topic::text is null or topic = :topic)
        and (:part::text is null or strpos(lower(name collate "default"), lower(:part)) > 0
            or strpos(lower(task), lower(:part)) > 0) as matches
    from pulse.schedules
    where name > :after and name >= :first and name <= :last
    order by name
    limit :scan
)
(select id, name, true as matches, 0::bigint as seen from scanned where matches order by name limit :limit)
union all
(select id, name, false, count(*) over () from scanned order by name desc limit 1);

-- name: search_broken(after, first, last, task, topic, part, scan, limit)
-- The same among those that could not be fired, of which there are few.
with scanned as materialized (
    select id, name,
        (:task::text is null or task = :task)
        and (:topic::text is null or topic = :topic)
        and (:part::text is null or strpos(lower(name collate "default"), lower(:part)) > 0
            or strpos(lower(task), lower(:part)) > 0) as matches
    from pulse.schedules
    where status = 'BROKEN' and name > :after and name >= :first and name <= :last
    order by name
    limit :scan
)
(select id, name, true as matches, 0::bigint as seen from scanned where matches order by name limit :limit)
union all
(select id, name, false, count(*) over () from scanned order by name desc limit 1);

-- name: next_schedules(until, limit)
-- Those that fire next.
select * from pulse.schedules
where next_run_at < :until::timestamptz and paused_at is null
order by next_run_at
limit :limit;

-- name: last_fires(ids, occurrences)
-- When the given occurrences were seen to.
select fires.schedule_id, fires.logged_at
from unnest(:ids::uuid[], :occurrences::timestamptz[]) as wanted (id, occurrence)
cross join lateral (
    select schedule_id, logged_at from pulse.fires
    where fires.schedule_id = wanted.id and fires.occurrence = wanted.occurrence and outcome = 'FIRED'
    offset 0
) as fires;

-- name: list_fires(schedule_id, before_occurrence, before_outcome, limit)
-- Newest first, each with how its job stands.
select occurrence, outcome, cause, logged_at, occurrences, newest, reason, job_id, job.status as job_status
from (
    select *, pulse.bucket_of_id(job_id) as bucket
    from pulse.fires
    where schedule_id = :schedule_id
        and (occurrence, outcome) < (:before_occurrence::timestamptz, :before_outcome::text)
    order by occurrence desc, outcome desc
    limit :limit
) as fire
left join lateral (
    select status from pulse.jobs
    where jobs.bucket = fire.bucket and jobs.id = fire.job_id
    offset 0
) as job on true
order by occurrence desc, outcome desc;

-- name: fired_occurrences(schedule_id, occurrences)
select occurrence from pulse.fires
where schedule_id = :schedule_id and occurrence = any(:occurrences::timestamptz[]) and outcome = 'FIRED';

-- name: prune_fires(after, schedules, keep, limit)
-- Schedule by schedule along the key, so many from where the last call ended: an index by age would cost each fire a
-- twentieth of what it takes. Answers with the last one it came to, and how many lines were removed.
with recursive visited as (
    (select schedule_id, 1 as number from pulse.fires where schedule_id > :after order by schedule_id limit 1)
    union all
    select following.schedule_id, number + 1
    from visited
    cross join lateral (
        select schedule_id from pulse.fires
        where fires.schedule_id > visited.schedule_id
        order by schedule_id limit 1
    ) as following
    where number < :schedules
),
past as materialized (
    select old.place
    from visited
    cross join lateral (
        select ctid as place from pulse.fires
        where fires.schedule_id = visited.schedule_id
            and occurrence < pulse.now() - :keep::interval and logged_at < pulse.now() - :keep
        order by occurrence
        limit :limit
        for update skip locked
    ) as old
    limit :limit
),
pruned as (
    delete from pulse.fires using past where fires.ctid = past.place returning 1
)
select
    (select schedule_id from visited where number = :schedules) as last,
    (select count(*) from pruned)::int as lines;

-- name: note_deploy(app)
-- Lock the app's line, made if there is none: two deploys declare their schedules one after the other. It has no number
-- before one is confirmed, for this may be a dry run.
insert into pulse.deploys as known (app, deploy, synced_at)
values (:app, null, pulse.now())
on conflict (app) do update set synced_at = known.synced_at
returning known.deploy, known.synced_at;

-- name: find_deploy(app)
select deploy, synced_at from pulse.deploys where app = :app;

-- name: confirm_deploy(app, deploy)
update pulse.deploys set deploy = :deploy, synced_at = pulse.now() where app = :app;
