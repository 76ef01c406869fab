-- name: read_schema()
-- How far it is migrated, and the oldest release it still works with.
select coalesce(max(version), 0) as version, coalesce(max(works_from), 0) as works_from from pulse.migrations;
