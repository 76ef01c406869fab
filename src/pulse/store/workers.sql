-- Who is connected. A server says so of all its workers at once, every few seconds; a worker straight on the database
-- says so of itself, and stands as its own server.

-- name: note_workers(server, names, versions, topics, slots, busy, ages)
-- Topics come as JSON lists, because an array of arrays must be a rectangle. Those of this server that are not named any
-- more are gone, and so is whoever was not seen for a minute: its server died. Rows that someone else is at are passed
-- over: after an outage everyone is late and comes back at once, and each would wait for the other's row.
with gone as (
    delete from pulse.workers
    where name in (
        select name from pulse.workers
        where (server = :server and not name = any(:names::text[])) or seen_at < pulse.now() - interval '1 minute'
        for update skip locked
    )
)
insert into pulse.workers (name, server, version, topics, slots, busy, connected_at, seen_at)
select name, :server, version, array(select jsonb_array_elements_text(topics)), slots, busy, pulse.now() - age, pulse.now()
from unnest(
    :names::text[], :versions::text[], :topics::jsonb[], :slots::int[], :busy::int[], :ages::interval[]
) as here (name, version, topics, slots, busy, age)
on conflict (name) do update set
    server = excluded.server,
    version = excluded.version,
    topics = excluded.topics,
    slots = excluded.slots,
    busy = excluded.busy,
    connected_at = excluded.connected_at,
    seen_at = excluded.seen_at
-- A stream that moved is at the server that it came to last, whatever the other one has not noticed yet.
where workers.server = excluded.server or workers.connected_at <= excluded.connected_at;

-- name: move_worker(name, server, version, topics, slots, age)
-- A worker's stream is at this server from now on, which another one may still believe to have it.
with patience as materialized (
    select set_config('lock_timeout', '500', true)
)
insert into pulse.workers (name, server, version, topics, slots, busy, connected_at, seen_at)
select :name, :server, :version, :topics::text[], :slots, 0, pulse.now() - :age::interval, pulse.now() from patience
on conflict (name) do update set
    server = excluded.server,
    version = excluded.version,
    topics = excluded.topics,
    slots = excluded.slots,
    busy = excluded.busy,
    connected_at = excluded.connected_at,
    seen_at = excluded.seen_at;

-- name: moved_workers(server, names, ages)
-- Those of this server's workers that have come to another one since they came here. Ages are of the moment they were
-- asked with, so the way of the question, a second at most, is allowed for.
select workers.name
from unnest(:names::text[], :ages::interval[]) as here (name, age)
join pulse.workers on workers.name = here.name
where workers.server <> :server and workers.connected_at > pulse.now() - here.age - interval '1 second';

-- name: list_workers()
select name, case when server = name then '' else server end as server, version, topics, slots, busy, connected_at, seen_at
from pulse.workers
where seen_at > pulse.now() - interval '1 minute'
order by name;
