-- name: read_schema()
-- Read how far the schema is migrated, and the oldest version of the code that works with it.
select coalesce(max(version), 0) as version, coalesce(max(works_from), 0) as works_from from pulse.migrations;
