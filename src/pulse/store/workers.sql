-- The workers that are connected. A server notes all its workers at once, every few seconds. A worker that is connected
-- straight to the database notes itself, and stands as its own server.

-- fragment: worker_replaced
on conflict (name) do update set
    server = excluded.server,
    version = excluded.version,
    topics = excluded.topics,
    slots = excluded.slots,
    busy = excluded.busy,
    connected_at = excluded.connected_at,
    seen_at = excluded.seen_at

-- name: note_workers(server, names, versions, topics, slots, busy, ages)
-- Topics come as JSON lists, because the rows of an array of arrays must have one length. Workers of this server that
-- are no longer named are removed, and so are those that were not seen for a minute: their server died. Rows that
-- somebody else has locked are passed over: after an outage all servers are late and come back at once, and each would
-- wait for the others' rows.
with gone as (
    delete from pulse.workers
    where name in (
        select name from pulse.workers
        where (server = :server and not name = any(:names::text[])) or seen_at < pulse.now() - interval '1 minute'
        for update skip locked
    )
)
insert into pulse.workers (name, server, version, topics, slots, busy, connected_at, seen_at)
select
    name, :server, version, array(select jsonb_array_elements_text(topics)), slots, busy, pulse.now() - age, pulse.now()
from unnest(
    :names::text[], :versions::text[], :topics::jsonb[], :slots::int[], :busy::int[], :ages::interval[]
) as here (name, version, topics, slots, busy, age)
{{worker_replaced}}
-- A stream that moved belongs to the server that it came to last, even if the other one has not noticed yet.
where workers.server = excluded.server or workers.connected_at <= excluded.connected_at;

-- name: move_worker(name, server, version, topics, slots, age)
-- Note that a worker's stream is at this server from now on. Another server may still believe that it has the stream.
with patience as materialized (
    select set_config('lock_timeout', '500', true)
)
insert into pulse.workers (name, server, version, topics, slots, busy, connected_at, seen_at)
select :name, :server, :version, :topics::text[], :slots, 0, pulse.now() - :age::interval, pulse.now() from patience
{{worker_replaced}};

-- name: moved_workers(server, names, ages)
-- Find the workers of this server whose streams have moved to another one since they came here. The ages are those of
-- the moment at which the question was sent, so a second is allowed for its way.
select workers.name
from unnest(:names::text[], :ages::interval[]) as here (name, age)
join pulse.workers on workers.name = here.name
where workers.server <> :server and workers.connected_at > pulse.now() - here.age - interval '1 second';

-- name: list_workers()
select
    name, case when server = name then '' else server end as server, version, topics, slots, busy, connected_at, seen_at
from pulse.workers
where seen_at > pulse.now() - interval '1 minute'
order by name;
