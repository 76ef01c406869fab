-- Which workers are connected to which server, for people to look at.
-- works with code from: 1

-- Presence, never liveness: nothing is claimed, reaped or given back because of what is here. Unlogged, because after a
-- crash everyone who is there says so again within seconds.
create unlogged table if not exists pulse.workers (
    name text collate "C" primary key,
    server text not null,
    version text not null,
    topics text[] not null,
    slots int not null,
    busy int not null,
    connected_at timestamptz not null,
    seen_at timestamptz not null
);
