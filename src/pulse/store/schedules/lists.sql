-- fragment: schedule_state_matches
(:status::text is null or status = :status)
and (:paused::boolean is null or (paused_at is not null) = :paused)

-- fragment: schedule_job_matches
(:task::text is null or task = :task)
and (:topic::text is null or topic = :topic)

-- fragment: schedule_part_matches
(:part::text is null or strpos(lower(name collate "default"), lower(:part)) > 0
    or strpos(lower(task), lower(:part)) > 0)

-- fragment: schedules_found
(select id, name, true as matches, 0::bigint as seen from scanned where matches order by name limit :limit)
union all
(select id, name, false, count(*) over () from scanned order by name desc limit 1)

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
    and {{schedule_state_matches}}
    and {{schedule_job_matches}}
    and (:tag::text is null or coalesce(tags ? :tag, false))
order by name
limit :limit;

-- name: search_schedules(after, first, last, status, paused, task, topic, part, scan, limit)
-- Search by name, from one name to another. Returns the schedules among the first :scan ones that match, and last the
-- one where the scan ended, with how many it has seen.
with scanned as materialized (
    select id, name,
        {{schedule_state_matches}}
        and {{schedule_job_matches}}
        and {{schedule_part_matches}} as matches
    from pulse.schedules
    where name > :after and name >= :first and name <= :last
    order by name
    limit :scan
)
{{schedules_found}};

-- name: search_broken(after, first, last, task, topic, part, scan, limit)
-- Search the same way among the schedules that could not be fired, of which there are few.
with scanned as materialized (
    select id, name,
        {{schedule_job_matches}}
        and {{schedule_part_matches}} as matches
    from pulse.schedules
    where status = 'BROKEN' and name > :after and name >= :first and name <= :last
    order by name
    limit :scan
)
{{schedules_found}};

-- name: next_schedules(until, limit)
-- The schedules that fire next, in that order.
select * from pulse.schedules
where next_run_at < :until::timestamptz and paused_at is null
order by next_run_at
limit :limit;

-- name: count_schedules(limit)
-- Count schedules by state, up to a limit.
select case when status = 'ACTIVE' and paused_at is not null then 'paused' else lower(status) end as state,
    count(*)::int as schedules
from (select status, paused_at from pulse.schedules limit :limit) as first
group by state
order by state;
