-- A process that delivers an alarm holds a lease on it, and the number of the lease (lease_id) is its fence. Whatever
-- takes an alarm away from its holder raises the number.

-- name: set_alarm(alarm)
select alarm_id, deed from pulse.set_alarm(:alarm::jsonb);

-- name: get_alarm(id)
select * from pulse.shown_alarms where id = :id;

-- name: find_alarm(owner, name)
select * from pulse.shown_alarms where owner = :owner and name = :name;

-- name: find_headers(owner, name)
-- The headers as they are sent: to be kept when the alarm is set again, and not to be shown.
select url, headers from pulse.alarms where owner = :owner and name = :name;

-- name: find_by_call(call_id, owner, name)
-- Find the alarm that this very call has set before, whether it made the alarm or replaced it.
select * from pulse.alarms where id = :call_id and owner = :owner
union all
select * from pulse.alarms where owner = :owner and name = :name and call_id = :call_id and id <> :call_id;

-- name: find_by_key(owner, idempotency_key)
select * from pulse.alarms where owner = :owner and idempotency_key = :idempotency_key;

-- name: lock_alarm(id)
select * from pulse.alarms where id = :id for no key update;

-- name: cancel_alarm(id)
-- A process that is delivering the alarm will find that its claim no longer stands.
update pulse.alarms
set status = 'cancelled', next_fire_at = null, ready_at = null, lease_until = null, lease_id = lease_id + 1,
    finished_at = pulse.now(), updated_at = pulse.now()
where id = :id and status = 'active'
returning *;

-- name: pause_alarm(id)
-- A delivery under way may still end either way; the alarm stays paused.
update pulse.alarms
set paused_at = coalesce(paused_at, pulse.now()), updated_at = pulse.now(),
    ready_at = case when lease_until is not null then ready_at end
where id = :id and status = 'active'
returning *;

-- name: resume_alarm(id, occurrence, next)
update pulse.alarms
set paused_at = null, updated_at = pulse.now(), occurrence = :occurrence, next_fire_at = :next,
    attempt = case when occurrence = :occurrence then attempt else 0 end,
    failure_count = case when occurrence = :occurrence then failure_count else 0 end
where id = :id
returning *;

-- name: end_alarm(id, status, error)
update pulse.alarms
set status = :status, next_fire_at = null, ready_at = null, lease_until = null, lease_id = lease_id + 1,
    last_error = :error, paused_at = null, finished_at = pulse.now(), updated_at = pulse.now()
where id = :id
returning *;

-- name: fire_alarm(id, occurrence)
-- Make the alarm due at once.
update pulse.alarms
set status = 'active', occurrence = :occurrence, next_fire_at = pulse.now(), ready_at = null, finished_at = null,
    lease_id = lease_id + 1, updated_at = pulse.now(),
    attempt = case when occurrence = :occurrence then attempt else 0 end,
    failure_count = case when status = 'active' and occurrence = :occurrence then failure_count else 0 end
where id = :id
returning *;
