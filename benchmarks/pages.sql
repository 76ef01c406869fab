-- The rows with which `python -m benchmarks pages` fills an empty schema, once.

-- name: fill_jobs(status, topics, first, last, newest)
-- Jobs of one state over the last week. Every hundredth has an error to search for, every tenth a tag.
insert into pulse.jobs (
    bucket, priority, attempt, max_attempts, lease_id, submitted_at, ready_at, run_at, claimed_at, lease_until,
    finished_at, id, status, topic, task, payload, locked_by, last_error, result, tags
)
select
    0, n % 3, case when :status::text in ('PENDING', 'SCHEDULED') then 0 else 1 end, 3, n, at,
    case when :status <> 'SCHEDULED' then at end,
    case when :status in ('SCHEDULED', 'RETRYING') then now() + n * interval '1 s' else at end,
    case when :status not in ('PENDING', 'SCHEDULED') then at end,
    case when :status = 'RUNNING' then now() + interval '1 hour' end,
    case when :status in ('COMPLETED', 'CANCELLED', 'DEAD_LETTERED') then at + interval '1 s' end,
    pulse.make_id(at, 0::smallint, gen_random_uuid()),
    :status, 'topic ' || n % :topics::int, 'shop.task_' || n % 50,
    jsonb_build_object('order', n, 'to', 'someone@example.org'),
    case when :status not in ('PENDING', 'SCHEDULED') then 'worker ' || n % 20 end,
    case when :status in ('DEAD_LETTERED', 'RETRYING') then 'ValueError: card ' || n || ' declined' end,
    case when :status = 'COMPLETED' then 'true'::jsonb end,
    case when n % 10 = 0 then '["vip"]'::jsonb end
from generate_series(:first::bigint, :last::bigint) as n
cross join lateral (select :newest::timestamptz - (:last::bigint - n) * (interval '7 days' / :last::bigint) as at) as time;

-- name: fill_attempts()
insert into pulse.attempts (bucket, job_id, lease_id, attempt, worker, started_at, ended_at, error, traceback)
select bucket, id, lease_id, 1, locked_by, claimed_at, finished_at, last_error, 'Traceback (most recent call last): …'
from pulse.jobs where status = 'DEAD_LETTERED';

-- name: fill_counts()
insert into pulse.counts (bucket, topic, status, jobs)
select bucket, topic, status, count(*) from pulse.jobs group by bucket, topic, status;

-- name: fill_series(topics)
insert into pulse.series (bucket, span, topic, at, event, took, jobs, seconds)
select 0, span, topic, date_bin(step, now(), 'epoch') - n * step, event, took, 100, 10
from (values ('minute', interval '1 minute', 120), ('quarter', '15 minutes', 192), ('hour', '1 hour', 192)) as s (span, step, points)
cross join (select 'topic ' || t as topic from generate_series(0, :topics::int - 1) as t union all select '*') as lines
cross join (values ('submitted', -1), ('started', 2), ('started', 5), ('completed', 3), ('completed', 6), ('retried', 4),
    ('dead_lettered', 4)) as e (event, took)
cross join lateral generate_series(0, points - 1) as n;

-- name: fill_schedules(number)
insert into pulse.schedules (id, name, status, next_run_at, last_run_at, fired, created_at, updated_at, kind, cron, error,
    catch_up, replay_limit, overlap, task, topic, bucket, payload, priority, max_attempts)
select gen_random_uuid(), 'schedule ' || n, case when n % 500 = 0 then 'BROKEN' else 'ACTIVE' end,
    case when n % 500 <> 0 then now() + n * interval '1 minute' end, now() - interval '1 hour', n, now(), now(), 'cron',
    '30 9 * * mon-fri', case when n % 500 = 0 then 'zone gone' end, 'fire_once', 100, 'allow', 'shop.report', 'topic 1', 0,
    '{}', 0, 3
from generate_series(1, :number::int) as n;

-- name: fill_fires()
insert into pulse.fires (schedule_id, occurrence, outcome, cause, logged_at, newest)
select id, now() - n * interval '1 day', 'FIRED', 'timetable', now() - n * interval '1 day', now() - n * interval '1 day'
from pulse.schedules cross join generate_series(1, 60) as n;

-- name: fill_alarms(number)
insert into pulse.alarms (id, owner, name, fingerprint, kind, cron, payload, url, destination, max_failures, occurrence,
    status, next_fire_at, finished_at, failure_count, last_error, created_at, updated_at)
select gen_random_uuid(), 'owner ' || n % 20, 'alarm ' || n, '', 'cron', '0 9 * * *', '{"user": 1}',
    'https://shop.example/hooks', 'https://shop.example', 5, now(),
    case when n % 100 = 0 then 'failed' else 'active' end,
    case when n % 100 <> 0 then now() + n * interval '1 minute' end,
    case when n % 100 = 0 then now() - n * interval '1 s' end,
    case when n % 50 = 0 then 2 else 0 end, case when n % 50 = 0 then 'HTTP 500' end, now(), now()
from generate_series(1, :number::int) as n;

-- name: fill_deliveries()
insert into pulse.deliveries (alarm_id, lease_id, occurrence, attempt, outcome, started_at, duration, status, answer)
select id, n, now() - n * interval '1 day', 1, 'delivered', now() - n * interval '1 day', '20 ms', 200, 'thanks'
from pulse.alarms cross join generate_series(1, 20) as n;
