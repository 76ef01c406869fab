-- Alarms that wake a URL, what came of each attempt, and the secrets that wakes are signed with.
-- works with code from: 1

-- An alarm is due when next_fire_at has come. It is then made ready, waits for its destination's turn, and is leased
-- for as long as a delivery takes. `occurrence` is the instant the wake is for, whenever it is tried again.
create table if not exists pulse.alarms (
    id uuid primary key,
    owner text collate "C" not null,
    name text collate "C",
    idempotency_key text collate "C",
    fingerprint bytea not null,              -- of what was asked for, to know a repetition from something else
    call_id uuid,                            -- of the call that set it last, to know a repetition of that very call
    status text collate "C" not null default 'active',
    kind text collate "C" not null,
    cron text,
    tz text not null default 'UTC',
    label text not null default '',
    payload jsonb not null,
    url text,                                -- null: the default target of whoever delivers it
    destination text collate "C" not null,   -- who takes turns
    headers jsonb,
    max_failures int not null,

    revision int not null default 1,
    occurrence timestamptz not null,
    next_fire_at timestamptz,
    ready_at timestamptz,
    lease_id bigint not null default 0,      -- the fence; it grows with each claim, and with whatever ends one early
    lease_until timestamptz,
    attempt int not null default 0,          -- to deliver this occurrence
    failure_count int not null default 0,
    last_error text,
    last_fired_at timestamptz,
    paused_at timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    finished_at timestamptz,

    check (status in ('active', 'fired', 'failed', 'cancelled')),
    check ((status = 'active') = (next_fire_at is not null) and (status = 'active') = (finished_at is null)),
    check ((kind = 'cron') = (cron is not null) and kind in ('once', 'cron')),
    check (lease_until is null or ready_at is not null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

-- Waiting for their time: all that is read while nothing is due.
create index if not exists alarms_due on pulse.alarms (next_fire_at)
    where next_fire_at is not null and ready_at is null and paused_at is null;

-- Waiting for a slot, by destination, so that one with a hundred thousand is no longer to step over than one with two.
create index if not exists alarms_ready on pulse.alarms (destination, next_fire_at)
    where ready_at is not null and lease_until is null;

create index if not exists alarms_leased on pulse.alarms (lease_until) where lease_until is not null;

create index if not exists alarms_finished on pulse.alarms (finished_at) where finished_at is not null;

-- All have an owner. Saying so keeps those who look for an id alone from walking through this one.
create index if not exists alarms_owner on pulse.alarms (owner, id) where owner is not null;

create unique index if not exists alarms_name on pulse.alarms (owner, name) where name is not null;

create unique index if not exists alarms_key on pulse.alarms (owner, idempotency_key)
    where idempotency_key is not null;

-- One line for each attempt.
create table if not exists pulse.deliveries (
    alarm_id uuid not null,
    lease_id bigint not null,
    occurrence timestamptz not null,
    attempt int not null,
    outcome text collate "C" not null check (outcome in ('delivered', 'failed', 'given_up', 'late')),
    started_at timestamptz not null,
    duration interval not null,
    status int,                              -- of HTTP
    error text,
    answer text not null,
    note text,
    primary key (alarm_id, lease_id)
) with (autovacuum_vacuum_cost_delay = 1);

create index if not exists deliveries_age on pulse.deliveries (started_at);

-- Every one that has not expired signs, so that receivers have time to change from one to the next.
create table if not exists pulse.wake_secrets (
    number bigint generated always as identity primary key,
    secret text not null,
    created_at timestamptz not null,
    expires_at timestamptz
);

insert into pulse.wake_secrets (secret, created_at)
select 'whsec_' || encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'base64'), pulse.now()
where not exists (select from pulse.wake_secrets);

-- Set an alarm whose times were worked out before; it commits or rolls back with the caller's transaction. Answers with
-- its id and what was done: set, replaced, same (nothing was changed), taken (its idempotency key is another's), used (its
-- own id is another owner's).
create or replace function pulse.set_alarm(given jsonb) returns table (alarm_id uuid, deed text)
language plpgsql
as $$
declare
    new pulse.alarms := jsonb_populate_record(null::pulse.alarms, given);
    old pulse.alarms;
begin
    new.payload := given -> 'payload';  -- which may be JSON's null
    new.call_id := new.id;
    new.status := 'active';
    new.revision := 1;
    new.lease_id := 0;
    new.attempt := 0;
    new.failure_count := 0;
    new.tz := coalesce(new.tz, 'UTC');
    new.next_fire_at := new.occurrence;
    new.created_at := pulse.now();
    new.updated_at := new.created_at;
    if coalesce((given ->> 'notify')::boolean, false) and new.occurrence - pulse.now() <= interval '2 seconds' then
        perform pg_notify('pulse.notify',
            '+' || greatest(0, round(extract(epoch from new.occurrence - pulse.now()) * 1000)));
    end if;
    for tries in 1..3 loop
        select * into old from pulse.alarms where id = new.id;
        if found then  -- the answer to the first call was lost
            return query select old.id, case when old.owner = new.owner then 'set' else 'used' end;
            return;
        end if;
        if new.idempotency_key is not null then
            select * into old from pulse.alarms where owner = new.owner and idempotency_key = new.idempotency_key;
            if found then
                return query select old.id, case when old.fingerprint = new.fingerprint then 'same' else 'taken' end;
                return;
            end if;
        end if;
        if new.name is not null then
            select * into old from pulse.alarms where owner = new.owner and name = new.name for no key update;
            if found then
                if old.call_id = new.call_id then
                    return query select old.id, 'replaced';
                    return;
                end if;
                if old.status = 'active' and old.fingerprint = new.fingerprint and old.next_fire_at = new.occurrence then
                    return query select old.id, 'same';
                    return;
                end if;
                update pulse.alarms
                set idempotency_key = new.idempotency_key, fingerprint = new.fingerprint, call_id = new.call_id,
                    status = 'active',
                    kind = new.kind, cron = new.cron, tz = new.tz, label = new.label, payload = new.payload,
                    url = new.url, destination = new.destination, headers = new.headers,
                    max_failures = new.max_failures, revision = old.revision + 1, occurrence = new.occurrence,
                    next_fire_at = new.occurrence, ready_at = null, lease_id = old.lease_id + 1, lease_until = null,
                    attempt = 0, failure_count = 0, last_error = null, paused_at = null, updated_at = pulse.now(),
                    finished_at = null
                where id = old.id;
                return query select old.id, 'replaced';
                return;
            end if;
        end if;
        insert into pulse.alarms select new.* on conflict do nothing;
        if found then
            return query select new.id, 'set';
            return;
        end if;
    end loop;
    raise exception using errcode = 'serialization_failure',
        message = 'another transaction is setting the same alarm; try again';
end
$$;
