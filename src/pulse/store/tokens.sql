-- Tokens, and the secrets of the installation. Whether one has expired is said by the database's clock, as everything is.

-- name: create_token(name, digest, scopes, lifetime)
-- Asked again by a caller that lost the answer: the same secret finds its own row.
insert into pulse.tokens as token (name, hash, scopes, created_at, expires_at)
values (:name, :digest, :scopes, pulse.now(), pulse.now() + :lifetime::interval)
on conflict (name) do update set hash = excluded.hash where token.hash = excluded.hash
returning name, scopes, created_at, expires_at, revoked_at, coalesce(expires_at <= pulse.now(), false) as is_expired;

-- name: list_tokens()
select name, scopes, created_at, expires_at, revoked_at, coalesce(expires_at <= pulse.now(), false) as is_expired
from pulse.tokens
order by name;

-- name: find_tokens(digests)
select
    name, scopes, created_at, expires_at, revoked_at, coalesce(expires_at <= pulse.now(), false) as is_expired, hash
from pulse.tokens
where hash = any(:digests::bytea[]);

-- name: revoke_token(name)
-- The first time stands.
update pulse.tokens
set revoked_at = coalesce(revoked_at, pulse.now())
where name = :name
returning name, scopes, created_at, expires_at, revoked_at, coalesce(expires_at <= pulse.now(), false) as is_expired;

-- name: has_tokens()
select exists (select from pulse.tokens) as is_there;

-- name: read_secret(name)
select secret from pulse.secrets where name = :name;
