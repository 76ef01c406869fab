-- The sessions of people who are signed in at the dashboard.

-- name: open_session(digest, token_digest, lifetime)
insert into pulse.sessions (hash, token_hash, created_at, seen_at, expires_at)
values (:digest, :token_digest, pulse.now(), pulse.now(), pulse.now() + :lifetime::interval);

-- name: find_session(digest, idle)
-- Returns the digest of the token that the session was opened with, and whether this visit should be noted.
select token_hash, seen_at < pulse.now() - interval '5 minutes' as is_to_note
from pulse.sessions
where hash = :digest and expires_at > pulse.now() and seen_at > pulse.now() - :idle::interval;

-- name: note_session(digest)
update pulse.sessions set seen_at = pulse.now() where hash = :digest;

-- name: close_session(digest)
delete from pulse.sessions where hash = :digest;

-- name: prune_sessions(idle)
delete from pulse.sessions where expires_at <= pulse.now() or seen_at <= pulse.now() - :idle::interval;
