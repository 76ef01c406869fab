-- Compare the counts with the rows they stand for, and mend them.
-- works with code from: 1

-- Where the counts of one bucket (with what is not folded yet) and its rows differ, in these states. One snapshot sees
-- both, so they are equal at every instant. Each state is counted through an index that has only its rows.
create or replace function pulse.miscounts(v_bucket smallint, statuses text[])
returns table (topic text, status text, said bigint, found bigint)
language sql stable
as $$
    select topic, status, sum(said)::bigint, sum(found)::bigint
    from (
        select topic, status, jobs as said, 0 as found from pulse.counts where bucket = v_bucket
        union all
        select topic, to_status, jobs, 0 from pulse.tallies where bucket = v_bucket and to_status is not null
        union all
        select topic, from_status, -jobs, 0 from pulse.tallies where bucket = v_bucket and from_status is not null
        union all
        select topic, 'PENDING', 0, count(*) from pulse.jobs
        where bucket = v_bucket and 'PENDING' = any(statuses) and jobs.status = 'PENDING'
        group by topic
        union all
        select topic, 'RUNNING', 0, count(*) from pulse.jobs
        where bucket = v_bucket and 'RUNNING' = any(statuses) and jobs.status = 'RUNNING'
        group by topic
        union all
        select topic, jobs.status, 0, count(*) from pulse.jobs
        where bucket = v_bucket and statuses && array['SCHEDULED', 'RETRYING']
            and jobs.status in ('SCHEDULED', 'RETRYING')
        group by topic, jobs.status
        union all
        select topic, jobs.status, 0, count(*) from pulse.jobs
        where bucket = v_bucket and statuses && array['COMPLETED', 'CANCELLED', 'DEAD_LETTERED']
            and finished_at is not null and jobs.status = any(statuses)
        group by topic, jobs.status
    ) as both_sides (topic, status, said, found)
    where status = any(statuses)
    group by topic, status
    having sum(said) <> sum(found)
$$;

-- Add to the counts what they lack, and answer with how many of them were wrong. Jobs may go on meanwhile: each move
-- appends its own tally, and a count is corrected by the difference, not replaced. Two calls would both add it, so one
-- waits for the other, at a row that nobody else locks.
create or replace function pulse.recount() returns int
language plpgsql
as $$
declare
    v_buckets int;
    v_mended int;
begin
    select buckets into v_buckets from pulse.installation for update;
    insert into pulse.counts as counts (bucket, topic, status, jobs)
    select home.bucket, wrong.topic, wrong.status, wrong.found - wrong.said
    from (select generate_series(0, v_buckets - 1)::smallint as bucket) as home
    cross join lateral pulse.miscounts(home.bucket, array[
        'SCHEDULED', 'PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'CANCELLED', 'DEAD_LETTERED'
    ]) as wrong
    order by home.bucket, wrong.topic, wrong.status
    on conflict (bucket, topic, status) do update set jobs = counts.jobs + excluded.jobs;
    get diagnostics v_mended = row_count;
    return v_mended;
end
$$;
