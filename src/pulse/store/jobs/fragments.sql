-- What the statements on jobs have in common.
--
-- Each statement checks the state that it moves a job from, names one bucket, and appends what it moved to the tallies.
-- None waits for a row that somebody else has locked: SKIP LOCKED passes over it, so that a handler's own transaction
-- holds up nobody and no two statements can deadlock. (complete_jobs says why it does wait, for a moment.)
--
-- Four habits keep the plans right, even those that were made when the table was empty (docs/decisions/0011):
--
-- 1. Rows are looked up one by one, in a LATERAL subquery that locks them or ends in OFFSET 0. The planner may not
--    flatten such a subquery, so it cannot replace the look-ups by a scan of the whole table.
-- 2. A row that was found and locked is reached by its place (ctid), which cannot change while the row is locked.
-- 3. Where a worker shows the fence of its claim, "running" is written `lease_until is not null`, and a CHECK says that
--    the two are the same. With `status = 'RUNNING'` the planner might walk through jobs_running, a smaller index,
--    instead of looking up each id in the primary key.
-- 4. The rows that drive an update end in `limit cardinality(:ids)`, although there are never more of them than that.
--    The planner assumes that a limit it does not know lets a tenth of the rows through, so it expects one row. Without
--    the limit it expects many, and on a table that was empty when it was analyzed it would rather scan the whole table
--    than go to the place of each row.

-- fragment: claim_columns
-- The fields of a Claim, in their order.
id, lease_id, locked_by, topic, task, payload, attempt, max_attempts, refunded, priority,
ready_at, claimed_at, lease_until, timeout, deadline, trace, scheduled_for

-- fragment: patience
-- Wait no longer than a second for somebody else's lock. A statement that reads `from patience` sets this first.
patience as materialized (
    select set_config('lock_timeout', '1000', true)
)

-- fragment: tallied_new
-- Tally new jobs: `submitted` holds the bucket, topic and status of each.
tallied as (
    insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at)
    select bucket, topic, status, count(*), pulse.now() from submitted group by bucket, topic, status
)

-- fragment: tallied_moves
-- Tally jobs that went from one state to another: `moved` holds the topic, the state before (was) and the state now.
tallied as (
    insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at)
    select :bucket, topic, was, status, count(*), pulse.now() from moved group by topic, was, status
)

-- fragment: moved_to_pending
-- Promote the jobs in `waiting`, whether they are due or an operator wants them to run now.
moved as (
    update pulse.jobs
    set status = 'PENDING', ready_at = pulse.now()
    from waiting
    where jobs.bucket = waiting.bucket and jobs.ctid = waiting.place
    returning jobs.id, topic, priority, waiting.status as was, jobs.status
),
{{tallied_moves}}
