-- The jobs of one schedule, newest first, also after it was deleted. Jobs of no schedule are not in it.
-- works with code from: 1

create index if not exists jobs_of_schedule on pulse.jobs (bucket, schedule_id, id) where schedule_id is not null;
