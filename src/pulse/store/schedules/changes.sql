-- name: insert_schedules(rows)
-- Insert the schedules whose names are new, and return those, as they are stored.
insert into pulse.schedules
select * from jsonb_populate_recordset(null::pulse.schedules, :rows::jsonb)
on conflict (name) do nothing
returning *;

-- name: update_schedules(rows)
-- Replace everything except their history, and a pause that a person made.
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
-- Jobs that were made stay. The log of occurrences stays too, until its own retention removes it: it may have millions
-- of lines.
delete from pulse.schedules where id = any(:ids::uuid[]);

-- name: lock_schedules(names, ids, app)
-- Lock the schedules that have one of these names or ids, and those of an app, until the transaction ends. Firing holds
-- a row for a moment, which is waited for. Rows are locked in the order of their ids, so that two transactions that
-- want the same ones do not wait for each other.
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

-- name: note_deploy(app)
-- Lock the app's line, and make it if there is none: two deploys declare their schedules one after the other. A line
-- that is new has no deploy number until one is confirmed, because this may be a dry run.
insert into pulse.deploys as known (app, deploy, synced_at)
values (:app, null, pulse.now())
on conflict (app) do update set synced_at = known.synced_at
returning known.deploy, known.synced_at;

-- name: find_deploy(app)
select deploy, synced_at from pulse.deploys where app = :app;

-- name: confirm_deploy(app, deploy)
update pulse.deploys set deploy = :deploy, synced_at = pulse.now() where app = :app;
