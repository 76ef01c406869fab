-- name: send_wakeup(channel, message)
select pg_notify(:channel, :message);
