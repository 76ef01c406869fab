-- Submit from any language, inside its own transaction.
-- works with code from: 1

create or replace function pulse.refuse(message text) returns void
language plpgsql
as $$
begin
    raise exception using errcode = 'invalid_parameter_value', message = refuse.message;
end
$$;

create or replace function pulse.check_name(what text, name text) returns void
language plpgsql
as $$
begin
    if coalesce(name, '') = '' then
        perform pulse.refuse(format('%s must have 1 to 200 characters, not none', what));
    elsif length(name) > 200 then
        perform pulse.refuse(format('%s must have at most 200 characters, not %s (%s…)',
            what, length(name), quote_literal(left(name, 20))));
    elsif name ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform pulse.refuse(format('%s must be printable text, not %s', what, quote_literal(name)));
    elsif what = 'topic' and name = '*' then
        perform pulse.refuse('topic must not be ''*'', which stands for all topics');
    end if;
end
$$;

-- An option that is a length of time: a number of seconds, or text such as 5m, 1h30m or '2 days'.
create or replace function pulse.length_option(options jsonb, name text, minimum interval) returns interval
language plpgsql stable
as $$
declare
    given text := options ->> name;
    found interval;
begin
    if given is null then
        return null;
    end if;
    begin
        found := case when given ~ '^-?[0-9.]+$' then make_interval(secs => given::float8) else given::interval end;
    exception when others then
        found := null;
    end;
    if found is null or found < minimum or found > interval '3653 days' then
        perform pulse.refuse(format('%s must be a length of time from %s to ten years, such as 5m, not %s',
            name, minimum, quote_literal(given)));
    end if;
    return found;
end
$$;

-- An option that is an instant: ISO 8601 with a time zone, at most ten years away.
create or replace function pulse.instant_option(options jsonb, name text) returns timestamptz
language plpgsql stable
as $$
declare
    given text := options ->> name;
    found timestamptz;
begin
    if given is null then
        return null;
    end if;
    if given !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|z|[+-][0-9]{2}(:?[0-9]{2})?)$' then
        perform pulse.refuse(format('%s must be an instant with a time zone, such as 2030-01-31T09:00:00Z, not %s',
            name, quote_literal(given)));
    end if;
    begin
        found := given::timestamptz;
    exception when others then
        perform pulse.refuse(format('%s must be a date and time, not %s', name, quote_literal(given)));
    end;
    if found > pulse.now() + interval '3653 days' then
        perform pulse.refuse(format('%s must be at most ten years away, not %s', name, quote_literal(given)));
    elsif found < timestamptz '1970-01-01 00:00:00Z' then
        perform pulse.refuse(format('%s must be 1970 or later, not %s', name, quote_literal(given)));
    end if;
    return found;
end
$$;

create or replace function pulse.whole_option(options jsonb, name text, fallback int, minimum int, maximum int) returns int
language plpgsql stable
as $$
declare
    given text := options ->> name;
begin
    if given is null then
        return fallback;
    end if;
    if given !~ '^-?[0-9]{1,9}$' or given::int not between minimum and maximum then
        perform pulse.refuse(format('%s must be a whole number from %s to %s, not %s',
            name, minimum, maximum, quote_literal(given)));
    end if;
    return given::int;
end
$$;

create or replace function pulse.check_number(what text, value jsonb, minimum numeric, maximum numeric) returns void
language plpgsql
as $$
begin
    if value is not null and (jsonb_typeof(value) <> 'number' or value::numeric not between minimum and maximum) then
        perform pulse.refuse(format('%s must be a number from %s to %s, not %s', what, minimum, maximum, value));
    end if;
end
$$;

create or replace function pulse.check_retry(retry jsonb) returns void
language plpgsql stable
as $$
declare
    unknown text;
    kind text := coalesce(retry ->> 'kind', 'quadratic');
begin
    if retry is null then
        return;
    end if;
    if jsonb_typeof(retry) <> 'object' then
        perform pulse.refuse('retry must be an object such as {"kind": "fixed", "base": 5}');
    end if;
    select key into unknown from jsonb_object_keys(retry) as key
    where key not in ('kind', 'base', 'factor', 'delays', 'max_delay', 'jitter') limit 1;
    if unknown is not null then
        perform pulse.refuse(format('option of retry must be one of kind, base, factor, delays, max_delay, jitter, not %s',
            quote_literal(unknown)));
    end if;
    if kind not in ('quadratic', 'exponential', 'fixed', 'list') then
        perform pulse.refuse(format('retry kind must be quadratic, exponential, fixed or list, not %s',
            quote_literal(kind)));
    end if;
    if retry ? 'delays' and jsonb_typeof(retry -> 'delays') <> 'array'
        or (kind = 'list') <> (coalesce(jsonb_array_length(retry -> 'delays'), 0) > 0) then
        perform pulse.refuse('retry delays must be given for kind list, and for no other kind');
    end if;
    perform pulse.check_number('retry base', retry -> 'base', 0, 315619200);
    perform pulse.check_number('retry max_delay', retry -> 'max_delay', 0, 315619200);
    perform pulse.check_number('retry factor', retry -> 'factor', 1, 100);
    perform pulse.check_number('retry jitter', retry -> 'jitter', 0, 1);
    perform pulse.check_number('retry delay', delay, 0, 315619200) from jsonb_array_elements(retry -> 'delays') as delay;
end
$$;

create or replace function pulse.check_options(options jsonb) returns void
language plpgsql stable
as $$
declare
    unknown text;
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

-- A hint to whoever listens (pulse.store.connections.notifications has the format). It leaves with the caller's commit.
create or replace function pulse.wake(topic text, priority int, delay interval) returns void
language plpgsql
as $$
begin
    if delay <= interval '0' then
        perform pg_notify('pulse.notify', priority || ' ' || topic);
    elsif delay <= interval '1 second' then
        perform pg_notify('pulse.notify', '+' || round(extract(milliseconds from delay)));
    end if;
end
$$;

-- Submit one job; it commits or rolls back with the caller's transaction. Answers with its id, or with that of the
-- job that already has this id or holds this unique key, in which case nothing is changed.
create or replace function pulse.enqueue(task text, payload jsonb default '{}', options jsonb default '{}') returns uuid
language plpgsql
as $$
declare
    options jsonb := jsonb_strip_nulls(coalesce(enqueue.options, '{}'));  -- a null is an option not given
    v_topic text := coalesce(options ->> 'topic', task);
    v_key text := options ->> 'unique_key';
    v_bucket smallint;
    v_id uuid;
    v_due timestamptz;
    v_status text;
    v_found uuid;
begin
    perform pulse.check_name('task', task);
    perform pulse.check_name('topic', v_topic);
    perform pulse.check_options(options);
    if payload is null then
        perform pulse.refuse('payload must be JSON, not null');
    elsif octet_length(payload::text) > 1048576 then
        perform pulse.refuse('payload must be at most 1 MiB: store more elsewhere and submit a reference');
    end if;

    select pulse.bucket_of_topic(v_topic, buckets) into v_bucket from pulse.installation;
    v_id := coalesce((options ->> 'id')::uuid, pulse.make_id(clock_timestamp(), v_bucket, gen_random_uuid()));
    if pulse.bucket_of_id(v_id) <> v_bucket then
        perform pulse.refuse(format('id must be a uuid whose last twelve bits are %s, the bucket of topic %s, not %s',
            v_bucket, quote_literal(v_topic), v_id));
    end if;
    v_due := coalesce(pulse.instant_option(options, 'run_at'),
        pulse.now() + coalesce(pulse.length_option(options, 'delay', '0'), '0'));
    v_status := case when v_due <= pulse.now() then 'PENDING' else 'SCHEDULED' end;

    for tries in 1..3 loop
        if v_key is not null then
            -- Not a running one's: its row would stay locked for as long as the caller's transaction, and its
            -- heartbeats would be passed over. It lets go when it ends.
            update pulse.jobs set key_held_until = null
            where bucket = v_bucket and id in (
                select id from pulse.jobs
                where bucket = v_bucket and topic = v_topic and unique_key = v_key and key_held_until <= pulse.now()
                    and lease_until is null
                for no key update skip locked
            );
        end if;
        insert into pulse.jobs (
            bucket, id, topic, task, payload, priority, max_attempts, retry, timeout, deadline, unique_key,
            key_held_until, result_ttl, tags, trace, submitted_at, run_at, ready_at, status, lease_id
        ) values (
            v_bucket, v_id, v_topic, enqueue.task, enqueue.payload,
            pulse.whole_option(options, 'priority', 0, -100, 100),
            pulse.whole_option(options, 'max_attempts', 3, 1, 1000),
            nullif(options -> 'retry', 'null'),
            pulse.length_option(options, 'timeout', '1 millisecond'),
            pulse.instant_option(options, 'deadline'),
            v_key,
            case when v_key is not null then
                coalesce(pulse.now() + pulse.length_option(options, 'unique_window', '1 millisecond'), 'infinity')
            end,
            pulse.length_option(options, 'result_ttl', '1 millisecond'),
            nullif(options -> 'tags', '[]'), nullif(options -> 'trace', 'null'),
            pulse.now(), v_due, case when v_status = 'PENDING' then pulse.now() end, v_status,
            extract(epoch from pulse.now()) * 1000000
        )
        on conflict do nothing
        returning id into v_found;
        if found then
            insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
            values (v_bucket, v_topic, v_status, 1, pulse.now());
            if coalesce((options ->> 'notify')::boolean, true) then
                perform pulse.wake(v_topic, coalesce((options ->> 'priority')::int, 0), v_due - pulse.now());
            end if;
            return v_found;
        end if;
        select id into v_found from pulse.jobs
        where bucket = v_bucket and (id = v_id
            or (topic = v_topic and unique_key = v_key and key_held_until is not null))
        order by id = v_id desc limit 1;
        if found then
            return v_found;
        end if;
    end loop;
    raise exception using errcode = 'serialization_failure',
        message = 'the holder of the unique key changed three times; try again';
end
$$;
