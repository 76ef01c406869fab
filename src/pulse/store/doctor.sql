-- What the doctor looks at. A statement here reads jobs only through an index, and only a few of them.

-- name: read_server()
select current_setting('server_version_num')::int as version, current_setting('server_version') as version_text,
    pg_is_in_recovery() as is_standby, current_setting('transaction_read_only') = 'on' as is_read_only,
    current_setting('server_encoding') as encoding, current_database()::text as database, current_user::text as role;

-- name: read_durability()
-- The table of workers is unlogged, and may be: workers are noted again within seconds.
select current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
    current_setting('synchronous_commit') as synchronous_commit,
    array(
        select coalesce('role ' || roles.rolname, 'database ' || current_database())
        from pg_db_role_setting as given
        left join pg_roles as roles on roles.oid = given.setrole
        where given.setdatabase in (0, (select oid from pg_database where datname = current_database()))
            and 'synchronous_commit=off' = any(given.setconfig)
        order by 1
    )::text[] as elsewhere,
    array(
        select relname from pg_class
        where relnamespace = (select relnamespace from pg_class where oid = 'pulse.jobs'::regclass)
            and relkind in ('r', 'p') and relpersistence = 'u' and relname <> 'workers'
        order by 1
    )::text[] as unlogged,
    (select count(*) from pg_stat_replication where application_name <> 'pg_basebackup')::int as standbys,
    current_setting('synchronous_standby_names') as synchronous_standbys;

-- name: read_time_source()
select prosrc as source, pulse.now() as now from pg_proc where oid = 'pulse.now()'::regprocedure;

-- name: list_pins(limit)
-- Find who has the oldest snapshot. Sessions of other databases do not keep vacuum from our rows, and neither does
-- vacuum itself.
select kind, name, pid, application, state, since, query, age
from (
    select 'session' as kind, usename::text as name, pid, application_name as application, state, xact_start as since,
        query, greatest(age(backend_xmin), age(backend_xid)) as age
    from pg_stat_activity
    where coalesce(backend_xmin, backend_xid) is not null and pid <> pg_backend_pid()
        and (datname = current_database() or datname is null) and backend_type <> 'autovacuum worker'
    union all
    select 'prepared transaction', gid, null, owner::text, 'prepared', prepared, null, age(transaction)
    from pg_prepared_xacts
    where database = current_database()
    union all
    select 'replication slot', slot_name::text, active_pid, plugin::text,
        case when active then 'active' else 'inactive' end, null, null, greatest(age(xmin), age(catalog_xmin))
    from pg_replication_slots
    where coalesce(xmin, catalog_xmin) is not null
) as pins
order by age desc
limit :limit;

-- name: list_tables()
select class.relname::text as name, n_live_tup as live, n_dead_tup as dead,
    greatest(last_autovacuum, last_vacuum) as vacuumed_at,
    current_setting('autovacuum') = 'on' and not coalesce('autovacuum_enabled=false' = any(reloptions)
        or 'autovacuum_enabled=off' = any(reloptions), false) as is_vacuumed
from pg_stat_user_tables as tables
join pg_class as class on class.oid = tables.relid
where relid in ('pulse.jobs'::regclass, 'pulse.tallies'::regclass, 'pulse.counts'::regclass, 'pulse.alarms'::regclass)
order by class.relname;

-- name: count_connections()
select count(*)::int as used,
    current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true), '0')::int as most
from pg_stat_activity
where backend_type = 'client backend';

-- name: read_queue_usage()
-- Notifications that some listener has not read yet, as a share of the space that Postgres has for them.
select pg_notification_queue_usage() as usage;

-- name: read_ages()
select age(datfrozenxid) as transactions, mxid_age(datminmxid) as multixacts
from pg_database
where datname = current_database();

-- name: oldest_lapsed(buckets)
-- Read for how long the earliest expired lease that nobody has taken back has been over. Reads running jobs only: few.
select pulse.now() - min(lapsed.lease_until) as lapse
from unnest(:buckets::smallint[]) as home (bucket)
cross join lateral (
    select lease_until from pulse.jobs
    where jobs.bucket = home.bucket and status = 'RUNNING' and lease_until < pulse.now()
    limit 1000
) as lapsed;

-- name: miscounts(buckets, statuses, limit)
-- Find where the counts of these states differ from the rows, the largest difference first.
select topic, status, said, found
from unnest(:buckets::smallint[]) as home (bucket)
cross join lateral pulse.miscounts(home.bucket, :statuses::text[])
order by abs(said - found) desc, topic, status
limit :limit;

-- name: broken_schedules()
-- Count the broken schedules, and read the first of them.
select name, coalesce(error, '') as error, payload::text as payload,
    (select count(*) from pulse.schedules where status = 'BROKEN')::int as schedules
from pulse.schedules
where status = 'BROKEN'
order by name
limit 1;

-- name: zones_in_use()
select tz from pulse.schedules where status = 'ACTIVE' group by tz
union
select tz from pulse.alarms where status = 'active' group by tz;
