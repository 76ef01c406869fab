-- Who may speak to pulsed, and enqueueing for those who may do nothing else.
-- works with code from: 1

-- A revoked token keeps its row, and so its name: rows of jobs and workers carry it, and it must not come to mean
-- someone else. Of a secret only its hash is here; it is 32 random bytes, so a fast hash is as good as a slow one.
create table if not exists pulse.tokens (
    name text collate "C" primary key,
    hash bytea not null unique,              -- sha256 of the secret
    scopes text[] not null,
    created_at timestamptz not null,
    expires_at timestamptz,                  -- null: never
    revoked_at timestamptz
);

-- Enqueueing reads and writes whole tables, so whoever could enqueue could also read every payload. As its owner's
-- own doing it needs no right but to be called. The search path is fixed because names in it are looked up with the
-- owner's rights, temporary objects last. And everyone may call a function unless told otherwise: only those who
-- could insert jobs until now still may, with nothing to be granted anew.
do $$
declare
    holder text;
begin
    revoke execute on function pulse.enqueue(text, jsonb, jsonb) from public;
    for holder in
        select distinct case grantee when 0 then 'public' else grantee::regrole::text end
        from pg_class, aclexplode(relacl)
        where pg_class.oid = 'pulse.jobs'::regclass and privilege_type = 'INSERT'
    loop
        execute format('grant execute on function pulse.enqueue(text, jsonb, jsonb) to %s', holder);
    end loop;
    alter function pulse.enqueue(text, jsonb, jsonb) security definer set search_path = pg_catalog, pg_temp;
end
$$;
