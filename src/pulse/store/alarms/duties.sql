-- name: ready_alarms(limit)
-- Make the alarms that are due ready: from now on they wait for their turn.
with due as materialized (
    select ctid as place from pulse.alarms
    where next_fire_at <= pulse.now() and ready_at is null and paused_at is null
    order by next_fire_at
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.alarms set ready_at = pulse.now() from due where alarms.ctid = due.place returning 1
)
select count(*)::int as alarms from moved;

-- name: expire_alarms(limit)
-- Take back leases that have expired. Their holders have died, or are late: what they report will be refused.
with lost as materialized (
    select ctid as place from pulse.alarms
    where lease_until <= pulse.now()
    order by lease_until
    limit :limit
    for no key update skip locked
),
moved as (
    update pulse.alarms
    set lease_until = null, lease_id = lease_id + 1, ready_at = case when paused_at is null then ready_at end
    from lost where alarms.ctid = lost.place
    returning 1
)
select count(*)::int as alarms from moved;

-- name: prune_alarms(keep, keep_deliveries, limit)
with old as materialized (
    select ctid as place, id from pulse.alarms
    where finished_at < pulse.now() - :keep::interval
    order by finished_at
    limit :limit
    for update skip locked
),
removed as (
    delete from pulse.alarms using old where alarms.ctid = old.place returning 1
),
theirs as materialized (
    select line.place from old
    cross join lateral (select ctid as place from pulse.deliveries where alarm_id = old.id offset 0) as line
),
past as materialized (
    select ctid as place from pulse.deliveries
    where started_at < pulse.now() - :keep_deliveries::interval
    order by started_at
    limit :limit
),
forgotten as (
    delete from pulse.deliveries using (select place from theirs union select place from past) as line
    where deliveries.ctid = line.place
    returning 1
)
select (select count(*) from removed)::int as alarms, (select count(*) from past)::int as deliveries;
