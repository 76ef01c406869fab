-- Secrets of the installation, and ids of jobs that only the server makes.
-- works with code from: 1

-- Random values that only the runtime reads. `ids` is mixed into the ids that stand for an Idempotency-Key, so that nobody
-- else can tell which id a key will have.
create table if not exists pulse.secrets (
    name text collate "C" primary key,
    secret bytea not null
);

insert into pulse.secrets (name, secret)
values ('ids', uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
on conflict do nothing;

-- As in 0002, and an id may be none of those that only the server makes: whoever holds the id of an occurrence that is
-- yet to come would keep its job from being made.
create or replace function pulse.check_options(options jsonb) returns void
language plpgsql stable
as $$
declare
    unknown text;
    octets bytea;
begin
    if jsonb_typeof(options) <> 'object' then
        perform pulse.refuse('options must be a JSON object');
    end if;
    select key into unknown from jsonb_object_keys(options) as key
    where key not in ('id', 'topic', 'priority', 'delay', 'run_at', 'max_attempts', 'retry', 'timeout', 'deadline',
        'unique_key', 'unique_window', 'result_ttl', 'tags', 'trace', 'notify') limit 1;
    if unknown is not null then
        perform pulse.refuse(format('option must be one of id, topic, priority, delay, run_at, max_attempts, retry, '
            'timeout, deadline, unique_key, unique_window, result_ttl, tags, trace, notify, not %s',
            quote_literal(unknown)));
    end if;
    if options ? 'id' then
        octets := uuid_send((options ->> 'id')::uuid);
        if get_byte(octets, 6) >> 4 in (5, 8) and get_byte(octets, 8) >> 6 = 2 then
            perform pulse.refuse(format('id must be a uuid of version 7 or 4 (only the server makes those of version 5 and 8), not %s',
                options ->> 'id'));
        end if;
    end if;
    if options ? 'delay' and options ? 'run_at' then
        perform pulse.refuse('delay must be left out where run_at is given');
    end if;
    if options ? 'unique_window' and not options ? 'unique_key' then
        perform pulse.refuse('unique_window must come with a unique_key');
    end if;
    if length(options ->> 'unique_key') not between 1 and 500 or octet_length(options ->> 'unique_key') > 1600 then
        perform pulse.refuse('unique_key must have 1 to 500 characters, and at most 1600 bytes');
    end if;
    if options ? 'tags' and (jsonb_typeof(options -> 'tags') <> 'array' or jsonb_array_length(options -> 'tags') > 32) then
        perform pulse.refuse('tags must be an array of at most 32 names');
    end if;
    if exists (select from jsonb_array_elements(options -> 'tags') as tag where jsonb_typeof(tag) <> 'string') then
        perform pulse.refuse('tags must be texts');
    end if;
    perform pulse.check_name('tag', tag) from jsonb_array_elements_text(options -> 'tags') as tag;
    if jsonb_typeof(options -> 'trace') <> 'object' then
        perform pulse.refuse('trace must be an object such as {"traceparent": "…"}');
    end if;
    perform pulse.check_retry(nullif(options -> 'retry', 'null'));
end
$$;

-- Each owner's wakes are signed with a secret of its own, derived from these. One that receivers have had as it is, for all
-- owners, signs as it is until it is replaced: a schema that has had alarms has such receivers.
alter table pulse.wake_secrets add column if not exists is_shared boolean not null default false;

update pulse.wake_secrets set is_shared = true
where not exists (select from pulse.migrations where name = 'secrets') and exists (select from pulse.alarms);

-- The owners whose own secret was replaced, and how often. Every one that has not expired signs.
create table if not exists pulse.wake_generations (
    owner text collate "C" not null,
    generation int not null,
    created_at timestamptz not null,
    expires_at timestamptz,
    primary key (owner, generation)
);

-- Alarms without what their headers say, which may be credentials, nor the hash that is of them too: what readers see.
create or replace view pulse.shown_alarms as
select
    id, owner, name, idempotency_key, call_id, status, kind, cron, tz, label, payload, url, destination,
    (select jsonb_object_agg(header, '…') from jsonb_object_keys(headers) as header) as headers,
    max_failures, revision, occurrence, next_fire_at, ready_at, lease_id, lease_until, attempt, failure_count, last_error,
    last_fired_at, paused_at, created_at, updated_at, finished_at
from pulse.alarms;
