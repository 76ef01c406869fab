-- name: wake_secrets()
select secret, created_at, expires_at, is_shared from pulse.wake_secrets
where expires_at is null or expires_at > pulse.now()
order by number desc;

-- name: rotate_wake_secret(secret, overlap)
-- The new secret signs from now on, and the earlier ones sign along for the overlap, unless they end sooner: so a
-- secret that leaked can be brought to an end.
with ending as (
    update pulse.wake_secrets set expires_at = pulse.now() + :overlap::interval
    where expires_at is null or expires_at > pulse.now() + :overlap::interval
)
insert into pulse.wake_secrets (secret, created_at) values (:secret, pulse.now());

-- name: wake_generations()
-- The generations that sign, of owners whose secret was replaced, the newest first.
select owner, generation, created_at, expires_at from pulse.wake_generations
where expires_at is null or expires_at > pulse.now()
order by owner, generation desc;

-- name: rotate_owner_secret(owner, overlap)
-- As rotate_wake_secret, for one owner. An owner has no line before the first rotation: every owner begins with
-- generation 0.
with known as materialized (
    select max(generation) as newest from pulse.wake_generations where owner = :owner
),
ending as (
    update pulse.wake_generations set expires_at = pulse.now() + :overlap::interval
    where owner = :owner and (expires_at is null or expires_at > pulse.now() + :overlap::interval)
),
ended as (
    delete from pulse.wake_generations where owner = :owner and expires_at <= pulse.now()
),
first as (
    insert into pulse.wake_generations (owner, generation, created_at, expires_at)
    select :owner, 0, pulse.now(), pulse.now() + :overlap::interval from known where newest is null
)
insert into pulse.wake_generations (owner, generation, created_at)
select :owner, coalesce(newest, 0) + 1, pulse.now() from known
on conflict do nothing;
