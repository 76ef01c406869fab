-- name: read_installation()
select buckets from pulse.installation;

-- name: read_clock()
select pulse.now() as now;

-- name: try_to_write()
-- Write something that changes nothing: the row of the watchdog, as it is.
with patience as materialized (
    select set_config('lock_timeout', '500', true)
)
insert into pulse.watch (seen_at, steady_since, judged_to)
select '-infinity', '-infinity', '-infinity' from patience
on conflict (only_row) do update set seen_at = watch.seen_at;
