-- Alarms take turns by owner first, and by destination among those of an owner.
-- works with code from: 1

-- Waiting for a slot. An owner with a hundred thousand, or with a thousand destinations, is one step to go past.
create index if not exists alarms_turns on pulse.alarms (owner, destination, next_fire_at)
    where ready_at is not null and lease_until is null;

drop index if exists pulse.alarms_ready;
