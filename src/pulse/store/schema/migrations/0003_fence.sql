-- Hold on to a claim, or complete it, inside the handler's own transaction.
-- works with code from: 1

-- Both find their row by its key whatever the caller's connection thinks of scans: a plan made while the table was
-- empty is kept by the session, and would read all of it once it has filled.
--
-- Both wait for a row that someone else holds, where the engine's statements pass over it: "held just now" says
-- nothing about whose claim it is, and the caller has no one to ask again. What holds a row of ours lets go within
-- 50 ms (docs/decisions/0004), so the engine and the caller cannot wait for each other for long.

-- Whether this claim still stands. If so, it cannot be taken away before the caller's transaction ends: whatever does
-- that needs the row this locks. A lease that ran out but was not reaped yet still counts. It is lease_id that says
-- whose the job is, as in every report; the watchdog raises it before anyone else can claim, and passes over locked rows.
create or replace function pulse.fence(job_id uuid, lease_id bigint) returns boolean
language plpgsql
set enable_seqscan = off
as $$
begin
    perform from pulse.jobs
    where bucket = pulse.bucket_of_id(job_id) and id = job_id
        and lease_until is not null and jobs.lease_id = fence.lease_id
    for no key update;
    return found;
end
$$;

-- The move of complete_jobs for one job, so that it commits and rolls back with the caller's work. False: the claim no
-- longer stands, and nothing was changed. A report that follows for the same claim is answered ALREADY.
create or replace function pulse.complete(job_id uuid, lease_id bigint, result jsonb default null) returns boolean
language plpgsql
set enable_seqscan = off
as $$
declare
    v_bucket smallint := pulse.bucket_of_id(job_id);
    v_topic text;
begin
    if octet_length(result::text) > 1048576 then
        perform pulse.refuse('result must be at most 1 MiB: store more elsewhere and return a reference');
    end if;
    update pulse.jobs
    set status = 'COMPLETED',
        result = complete.result,
        result_until = pulse.now() + result_ttl,
        lease_until = null,
        finished_at = pulse.now(),
        key_held_until = nullif(key_held_until, 'infinity')
    where bucket = v_bucket and id = job_id
        and lease_until is not null and jobs.lease_id = complete.lease_id
    returning topic into v_topic;
    if not found then
        return false;
    end if;
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    values (v_bucket, v_topic, 'RUNNING', 'COMPLETED', 1, pulse.now());
    return true;
end
$$;
