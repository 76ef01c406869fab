-- fragment: alarm_state_matches
(:status::text is null or status = :status)
and (:paused::boolean is null or (paused_at is not null) = :paused)

-- fragment: alarm_part_matches
(:part::text is null or strpos(lower(coalesce(name collate "default", '')), lower(:part)) > 0
    or strpos(lower(label), lower(:part)) > 0 or strpos(lower(coalesce(url, '')), lower(:part)) > 0)

-- fragment: newest_found
(select id, true as matches, 0::bigint as seen from scanned where matches order by id desc limit :limit)
union all
(select id, false, count(*) over () from scanned order by id limit 1)

-- name: list_alarms(owner, before, status, paused, label, limit)
-- The newest first.
select * from pulse.shown_alarms
where id < :before and owner = :owner
    and {{alarm_state_matches}}
    and (:label::text is null or label = :label)
order by id desc
limit :limit;

-- name: list_all_alarms(before, status, paused, label, limit)
select * from pulse.shown_alarms
where id < :before
    and {{alarm_state_matches}}
    and (:label::text is null or label = :label)
order by id desc
limit :limit;

-- name: search_alarms(before, status, paused, part, scan, limit)
-- Search the newest first. Returns the alarms among the first :scan ones that match, and last the one where the scan
-- ended, with how many it has seen.
with scanned as materialized (
    select id,
        {{alarm_state_matches}}
        and {{alarm_part_matches}} as matches
    from pulse.alarms
    where id < :before
    order by id desc
    limit :scan
)
{{newest_found}};

-- name: search_owned(owner, before, status, paused, part, scan, limit)
-- Search the same way among the alarms of one owner.
with scanned as materialized (
    select id,
        {{alarm_state_matches}}
        and {{alarm_part_matches}} as matches
    from pulse.alarms
    where id < :before and owner = :owner
    order by id desc
    limit :scan
)
{{newest_found}};

-- name: search_failed(before_at, before, owner, part, scan, limit)
-- Search the same way among the alarms that were given up, the most recent first.
with scanned as materialized (
    select id, finished_at,
        (:owner::text is null or owner = :owner) and {{alarm_part_matches}} as matches
    from pulse.alarms
    where status = 'failed' and (finished_at, id) < (:before_at::timestamptz, :before::uuid)
    order by finished_at desc, id desc
    limit :scan
)
(
    select id, finished_at, true as matches, 0::bigint as seen
    from scanned where matches
    order by finished_at desc, id desc limit :limit
)
union all
(select id, finished_at, false, count(*) over () from scanned order by finished_at, id limit 1);

-- name: search_failing(after_at, after, owner, part, scan, limit)
-- Search the same way among the alarms that will be tried again, the next to be tried first.
with scanned as materialized (
    select id, next_fire_at,
        (:owner::text is null or owner = :owner) and {{alarm_part_matches}} as matches
    from pulse.alarms
    where failure_count > 0 and finished_at is null and (next_fire_at, id) > (:after_at::timestamptz, :after::uuid)
    order by next_fire_at, id
    limit :scan
)
(
    select id, next_fire_at, true as matches, 0::bigint as seen
    from scanned where matches
    order by next_fire_at, id limit :limit
)
union all
(select id, next_fire_at, false, count(*) over () from scanned order by next_fire_at desc, id desc limit 1);

-- name: read_alarms(ids)
select alarm.*
from unnest(:ids::uuid[]) as wanted (id)
cross join lateral (select * from pulse.shown_alarms where shown_alarms.id = wanted.id offset 0) as alarm;

-- name: list_deliveries(alarm_id, before, limit)
-- The newest first.
select lease_id, occurrence, attempt, outcome, started_at, duration, status, error, answer, note
from pulse.deliveries
where alarm_id = :alarm_id and lease_id < :before
order by lease_id desc
limit :limit;
