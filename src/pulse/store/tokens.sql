-- Tokens, and the secrets of the installation. The database's clock decides whether a token has expired.

-- fragment: token_columns
-- The fields of a Token, in their order.
name, scopes, created_at, expires_at, revoked_at, coalesce(expires_at <= pulse.now(), false) as is_expired

-- name: create_token(name, digest, scopes, lifetime)
-- A caller that lost the answer asks again: the same secret finds the row that it made.
insert into pulse.tokens as token (name, hash, scopes, created_at, expires_at)
values (:name, :digest, :scopes, pulse.now(), pulse.now() + :lifetime::interval)
on conflict (name) do update set hash = excluded.hash where token.hash = excluded.hash
returning {{token_columns}};

-- name: list_tokens()
select {{token_columns}}
from pulse.tokens
order by name;

-- name: find_tokens(digests)
select {{token_columns}}, hash
from pulse.tokens
where hash = any(:digests::bytea[]);

-- name: revoke_token(name)
-- A token that is revoked again keeps the time of the first revocation.
update pulse.tokens
set revoked_at = coalesce(revoked_at, pulse.now())
where name = :name
returning {{token_columns}};

-- name: has_tokens()
select exists (select from pulse.tokens) as is_there;

-- name: read_secret(name)
select secret from pulse.secrets where name = :name;
