-- The lists. Each walks one index from a key, reads no more than :scan rows, and returns ids. A page may come back
-- short. Its last row is the one where the scan ended, whether it matches or not: the next page begins after it.

-- fragment: newest_page
(select id, true as matches from scanned where pulse.job_matches(scanned, :filter::jsonb) order by id desc limit :limit)
union all
(select id, false from scanned order by id limit 1)

-- fragment: pending_page
(
    select id, true as matches, -priority as urgency, ready_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by -priority, ready_at, id limit :limit
)
union all
(select id, false, -priority, ready_at from scanned order by -priority desc, ready_at desc, id desc limit 1)

-- fragment: finished_page
(
    select id, true as matches, finished_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by finished_at desc, id desc limit :limit
)
union all
(select id, false, finished_at from scanned order by finished_at, id limit 1)

-- name: list_newest(buckets, after_id, filter, scan, limit)
-- All jobs, the newest first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and jobs.id < :after_id
        order by jobs.id desc
        limit :scan
    ) as found
    order by id desc
    limit :scan
)
{{newest_page}};

-- name: list_of_schedule(buckets, schedule_id, after_id, filter, scan, limit)
-- The jobs that one schedule has made, the newest first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and jobs.schedule_id = :schedule_id and jobs.id < :after_id
        order by jobs.id desc
        limit :scan
    ) as found
    order by id desc
    limit :scan
)
{{newest_page}};

-- name: list_pending(bucket, topic, after_urgency, after_ready_at, after_id, filter, scan, limit)
-- The waiting jobs of one topic, in the order in which they will be claimed.
with scanned as materialized (
    select * from pulse.jobs
    where bucket = :bucket and topic = :topic and status = 'PENDING'
        and (-priority, ready_at, id) > (:after_urgency::smallint, :after_ready_at::timestamptz, :after_id::uuid)
    order by -priority, ready_at, id
    limit :scan
)
{{pending_page}};

-- name: list_due(buckets, after_run_at, after_id, filter, scan, limit)
-- SCHEDULED and RETRYING jobs, the next to fall due first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status in ('SCHEDULED', 'RETRYING')
            and (run_at, id) > (:after_run_at::timestamptz, :after_id::uuid)
        order by run_at, id
        limit :scan
    ) as found
    order by run_at, id
    limit :scan
)
(
    select id, true as matches, run_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by run_at, id limit :limit
)
union all
(select id, false, run_at from scanned order by run_at desc, id desc limit 1);

-- name: list_running(buckets, after_claimed_at, after_id, filter, scan, limit)
-- The longest running first. There are never more of them than slots, so sorting them is cheap.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status = 'RUNNING'
            and (claimed_at, id) > (:after_claimed_at::timestamptz, :after_id::uuid)
        offset 0
    ) as found
    order by claimed_at, id
    limit :scan
)
(
    select id, true as matches, claimed_at
    from scanned where pulse.job_matches(scanned, :filter::jsonb)
    order by claimed_at, id limit :limit
)
union all
(select id, false, claimed_at from scanned order by claimed_at desc, id desc limit 1);

-- name: list_finished(bucket, topic, status, after_finished_at, after_id, filter, scan, limit)
-- The finished jobs of one topic, the most recent first.
with scanned as materialized (
    select * from pulse.jobs
    where bucket = :bucket and topic = :topic and status = :status and finished_at is not null
        and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
    order by finished_at desc, id desc
    limit :scan
)
{{finished_page}};

-- name: list_dead(buckets, after_finished_at, after_id, filter, scan, limit)
-- The dead letters of all topics, the most recent first.
with scanned as materialized (
    select found.*
    from unnest(:buckets::smallint[]) as home (bucket)
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = home.bucket and status = 'DEAD_LETTERED' and finished_at is not null
            and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
        order by finished_at desc, id desc
        limit :scan
    ) as found
    order by finished_at desc, id desc
    limit :scan
)
{{finished_page}};

-- Two lists over all topics, although their indexes begin with the topic. The topics come from the counts. From each
-- topic are read as many jobs as its share of the scan, but at least as many as a page has, unless that came to more
-- than :reach jobs of all topics together. Where a topic has more jobs than were read of it, those of other topics that
-- come after its last row are left to the next page (the horizon), so that the order is that of one list.

-- fragment: topic_share
share as materialized (
    select greatest(1, least(greatest(:limit::int, :scan::int / named.topics), :reach::int / named.topics)) as jobs
    from (select greatest(count(*), 1) as topics from topics) as named
)

-- name: list_all_pending(after_urgency, after_ready_at, after_id, filter, scan, limit, reach)
-- The most urgent jobs first, then those that have waited longest.
with topics as materialized (
    select bucket, topic from pulse.counts where status = 'PENDING'
    union
    select bucket, topic from pulse.tallies where to_status = 'PENDING'
),
{{topic_share}},
heads as materialized (
    select found.*
    from topics
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = topics.bucket and jobs.topic = topics.topic and status = 'PENDING'
            and (-priority, ready_at, id) > (:after_urgency::smallint, :after_ready_at::timestamptz, :after_id::uuid)
        order by -priority, ready_at, id
        limit (select share.jobs from share)
    ) as found
),
horizon as materialized (
    select last.* from share
    cross join lateral (
        select (array_agg(-priority order by -priority desc, ready_at desc, id desc))[1] as urgency,
            (array_agg(ready_at order by -priority desc, ready_at desc, id desc))[1] as ready_at,
            (array_agg(id order by -priority desc, ready_at desc, id desc))[1] as id
        from heads group by topic having count(*) >= share.jobs
    ) as last
    order by urgency, ready_at, id
    limit 1
),
scanned as materialized (
    select heads.* from heads
    where not exists (
        select from horizon
        where (-heads.priority, heads.ready_at, heads.id) > (horizon.urgency, horizon.ready_at, horizon.id)
    )
    order by -priority, ready_at, id
    limit :scan
)
{{pending_page}};

-- name: list_all_finished(status, after_finished_at, after_id, filter, scan, limit, reach)
-- The most recently finished jobs first.
with topics as materialized (
    select bucket, topic from pulse.counts where status = :status
    union
    select bucket, topic from pulse.tallies where to_status = :status
),
{{topic_share}},
heads as materialized (
    select found.*
    from topics
    cross join lateral (
        select * from pulse.jobs
        where jobs.bucket = topics.bucket and jobs.topic = topics.topic and status = :status
            and finished_at is not null
            and (finished_at, id) < (:after_finished_at::timestamptz, :after_id::uuid)
        order by finished_at desc, id desc
        limit (select share.jobs from share)
    ) as found
),
horizon as materialized (
    select last.* from share
    cross join lateral (
        select (array_agg(finished_at order by finished_at, id))[1] as finished_at,
            (array_agg(id order by finished_at, id))[1] as id
        from heads group by topic having count(*) >= share.jobs
    ) as last
    order by finished_at desc, id desc
    limit 1
),
scanned as materialized (
    select heads.* from heads
    where not exists (
        select from horizon where (heads.finished_at, heads.id) < (horizon.finished_at, horizon.id)
    )
    order by finished_at desc, id desc
    limit :scan
)
{{finished_page}};
