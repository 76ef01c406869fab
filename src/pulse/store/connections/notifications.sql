-- name: send_notification(channel, message)
select pg_notify(:channel, :message);
