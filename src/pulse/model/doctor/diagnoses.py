"""Which facts about an installation are a problem, and what can be done? Each function judges one kind of facts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse.model.doctor.findings import Finding, Level
from pulse.model.human_text import about, first_words, listed, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulse.model.doctor.findings import (
        Ages,
        Broken,
        Clock,
        Connections,
        Durability,
        Lateness,
        Miscount,
        Pin,
        ServerFacts,
        ServerSeen,
        TableFacts,
    )
    from pulse.model.tokens import Token
    from pulse.model.workers import WorkerSeen

OLDEST_POSTGRES = 14
REAL_TIME = "select statement_timestamp()"  # the body of pulse.now(), except in tests
SKEW = timedelta(seconds=2)
PINNED = timedelta(minutes=1)
PINNED_SLOT = 100_000  # transactions
DEAD_ROWS, DEAD_SHARE = 10_000, 0.5  # a table is bloated above both; the share is of its live rows
CROWDED, FULL = 0.8, 0.95  # shares of the connections
QUEUE_LONG, QUEUE_FULL = 0.5, 0.9
LATE = timedelta(seconds=30)
OLD, ANCIENT = 1_000_000_000, 1_600_000_000  # transactions, of 2,147,483,647
EXPIRES_SOON = timedelta(days=7)
CLIENT = "pulse-python/"  # begins the version of each worker of this project
MAX_NAMED = 3


def ok(name: str, text: str) -> Finding:
    return Finding(Level.OK, name, text)


def warn(name: str, text: str, advice: str = "") -> Finding:
    return Finding(Level.WARN, name, text, advice)


def fail(name: str, text: str, advice: str = "") -> Finding:
    return Finding(Level.FAIL, name, text, advice)


# --- Postgres


def judge_server(facts: ServerFacts) -> list[Finding]:
    name = "database"
    found: list[Finding] = []
    if facts.version // 10_000 < OLDEST_POSTGRES:
        advice = f"Pulse needs {OLDEST_POSTGRES} or newer: upgrade it."
        found.append(fail(name, f"Postgres {facts.version_text} is too old", advice))
    if facts.is_standby:
        found.append(fail(name, "it is a standby in recovery, which takes no writes", "Use the primary's address."))
    elif facts.is_read_only:
        advice = "Turn default_transaction_read_only off for this role and database."
        found.append(fail(name, "it is read-only", advice))
    if facts.encoding != "UTF8":
        found.append(fail(name, f"its encoding is {facts.encoding}", "Create it with ENCODING 'UTF8'."))
    return found or [ok(name, f"Postgres {facts.version_text}, database {facts.database}, as role {facts.role}")]


def judge_durability(facts: Durability) -> list[Finding]:
    name = "durability"
    found: list[Finding] = []
    if facts.fsync != "on":
        advice = "Set fsync = on and restart: after a crash the whole database may be unreadable."
        found.append(fail(name, "fsync is off", advice))
    if facts.full_page_writes != "on":
        advice = "Set full_page_writes = on, unless the file system never writes half a page (ZFS)."
        found.append(fail(name, "full_page_writes is off", advice))
    if facts.synchronous_commit == "off":
        advice = "Set synchronous_commit = on: a crash loses jobs that were acknowledged."
        found.append(fail(name, "synchronous_commit is off", advice))
    elif facts.elsewhere:
        advice = "A crash may lose jobs that they enqueue: ALTER … RESET synchronous_commit, if that matters."
        found.append(warn(name, f"synchronous_commit is off for {listed(facts.elsewhere)}", advice))
    if facts.unlogged:
        tables = listed(facts.unlogged)
        found.append(fail(name, f"unlogged, so emptied by a crash: {tables}", "ALTER TABLE … SET LOGGED."))
    if facts.standbys and not facts.synchronous_standbys:
        advice = "A failover may lose the last jobs. Name one in synchronous_standby_names, if that matters."
        found.append(warn(name, f"{plural(facts.standbys, 'standby server')} and none of them synchronous", advice))
    return found or [ok(name, "acknowledged writes are on disk")]


def judge_clock(facts: Clock) -> list[Finding]:
    name = "clock"
    if facts.source.strip() != REAL_TIME:
        advice = (
            "Tests do that. `pulse migrate` does not undo it: CREATE OR REPLACE the function as migration 1 defines it."
        )
        return [fail(name, f"pulse.now() was replaced, by {first_words(facts.source, 60)!r}", advice)]
    ahead, behind = facts.now - facts.answered_at, facts.asked_at - facts.now
    skew = max(ahead, behind)
    if skew > SKEW:
        which = "ahead of" if ahead > behind else "behind"
        advice = "Jobs go by the database's clock and are on time by it, but run NTP on both machines."
        return [warn(name, f"the database's clock is {about(skew)} {which} this machine's", advice)]
    return [ok(name, f"the database's clock and this machine's agree within {about(SKEW)}")]


def judge_pins(pins: Sequence[Pin], now: datetime, longest: timedelta = PINNED) -> list[Finding]:
    name = "horizon"
    found = [_judge_pin(name, pin, now) for pin in pins if _is_pinning(pin, now, longest)]
    return found or [ok(name, "no old transaction keeps dead rows from being removed")]


def _is_pinning(pin: Pin, now: datetime, longest: timedelta) -> bool:
    return pin.age > PINNED_SLOT if pin.since is None else now - pin.since > longest


def _judge_pin(name: str, pin: Pin, now: datetime) -> Finding:
    age = f" for {about(now - pin.since)}" if pin.since else ""
    query = f": {first_words(pin.query, 80)}" if pin.query else ""
    who = f"pid {pin.pid}, {pin.application or 'no name'}" if pin.kind == "session" else f"{pin.name!r}"
    advice = {
        "session": f"End it: SELECT pg_terminate_backend({pin.pid});",
        "prepared transaction": f"COMMIT PREPARED or ROLLBACK PREPARED '{pin.name}'.",
        "replication slot": f"Restart its reader, or SELECT pg_drop_replication_slot('{pin.name}');",
    }[pin.kind]
    text = f"held back by a {pin.kind} ({who}, {pin.state or 'unknown'}{age}{query}), {pin.age:,} transactions old"
    return warn(name, text, f"{advice} Until then dead rows accumulate, and everything gets slower.")


def judge_tables(tables: Sequence[TableFacts], now: datetime) -> list[Finding]:
    name = "bloat"
    found = []
    for table in tables:
        if not table.is_vacuumed:
            advice = "Turn it on: without it dead rows are never removed, and every claim reads them."
            found.append(warn(name, f"autovacuum is off for {table.name}", advice))
        if table.dead > DEAD_ROWS and table.dead > DEAD_SHARE * table.live:
            when = f"{about(now - table.vacuumed_at)} ago" if table.vacuumed_at else "never, as far as Postgres knows"
            text = f"{table.name} has {table.dead:,} dead rows and {table.live:,} live ones; last vacuumed {when}"
            found.append(warn(name, text, f"Check `horizon` first, then VACUUM {table.name}."))
    return found or [ok(name, "few dead rows")]


def judge_connections(facts: Connections) -> list[Finding]:
    name = "connections"
    share = facts.used / max(facts.limit, 1)
    text = f"{facts.used:,} of {facts.limit:,} are in use"
    advice = "Raise max_connections, lower PULSE_POOL_SIZE, or put workers behind `pulse server`."
    if share >= FULL:
        return [fail(name, text, advice)]
    return [warn(name, text, advice)] if share >= CROWDED else [ok(name, text)]


def judge_pooler(*, is_pooled: bool, is_configured: bool, has_listen_url: bool) -> list[Finding]:
    name = "pooler"
    if not is_pooled:
        return [ok(name, "each connection keeps its server process")]
    if not is_configured:
        advice = "Set PULSE_PGBOUNCER=1: prepared statements and the settings of plans do not outlive a transaction."
        return [fail(name, "there is a pooler for transactions, but PULSE_PGBOUNCER is not set", advice)]
    if not has_listen_url:
        text = "notifications do not pass through a pooler, so workers poll"
        return [warn(name, text, "Set PULSE_LISTEN_URL to the address of Postgres itself.")]
    return [ok(name, "there is a pooler for transactions, and PULSE_PGBOUNCER is set")]


def judge_notifier(*, has_arrived: bool | None, usage: float) -> list[Finding]:
    """Judge whether a test notification has arrived; `has_arrived` is none if the settings turn listening off."""
    name = "notifier"
    found = []
    if has_arrived is False:
        advice = (
            "Does PULSE_LISTEN_URL lead to the same database, and not to a pooler? Until notifications arrive, workers "
            "poll and begin jobs a little later."
        )
        found.append(warn(name, "a notification that was sent did not arrive", advice))
    if usage >= QUEUE_LONG:
        text = f"the queue of notifications is {usage:.0%} full"
        advice = "A session that listens stays in a transaction: end it. When the queue is full, every NOTIFY fails."
        found.append(fail(name, text, advice) if usage >= QUEUE_FULL else warn(name, text, advice))
    return found or [ok(name, "notifications arrive" if has_arrived else "listening is turned off, so workers poll")]


def judge_ages(facts: Ages) -> list[Finding]:
    name = "wraparound"
    worst = max(facts.transactions, facts.multixacts)
    text = f"the oldest row is {worst:,} transactions old, of 2,147,483,647"
    advice = "Check `horizon` first, then VACUUM the whole database, or Postgres will stop taking writes."
    if worst >= ANCIENT:
        return [fail(name, text, advice)]
    return [warn(name, text, advice)] if worst >= OLD else [ok(name, text)]


# --- Pulse

_DUTIES = {
    "promote": "a delayed or retried job is due and was not made ready",
    "expire": "a job is past its deadline and was not ended",
    "fire": "a schedule is due and did not fire",
    "wake": "an alarm is due and was not delivered",
    "reap": "a lease ran out and was not taken back",
}


def judge_lateness(facts: Lateness, workers: Sequence[WorkerSeen], lease: timedelta) -> list[Finding]:
    """Judge what is due and not done. Expired leases may wait for the length of one more lease: after an outage the
    watchdogs reap none before that."""
    name = "duties"
    advice = "Every worker and server performs the duties, and none seems to run: start one."
    if workers:
        advice = f"{plural(len(workers), 'worker')} connected: does a log say why? Is a row locked (`pulse explain`)?"
    found = []
    for duty, late in facts._asdict().items():
        if late is None or late < LATE + (2 * lease if duty == "reap" else timedelta()):
            continue
        found.append(fail(name, f"{_DUTIES[duty]}, for {about(late)}", advice))
    return found or [ok(name, "everything that was due is done")]


def judge_workers(workers: Sequence[WorkerSeen], waiting: Mapping[str, int], version: str) -> list[Finding]:
    """Judge whether each topic has a worker; `waiting` has the number of pending jobs of each topic not paused."""
    name = "workers"
    served = {topic for worker in workers for topic in worker.topics}
    if unserved := {topic: jobs for topic, jobs in waiting.items() if topic not in served}:
        more = [f"{len(unserved) - MAX_NAMED} more"] if len(unserved) > MAX_NAMED else []
        topics = listed([*sorted(unserved)[:MAX_NAMED], *more])
        text = f"none is connected for {topics}, with {plural(sum(unserved.values()), 'job')} waiting"
        return [warn(name, text, "Start one that takes them: `pulse worker MODULE:APP`.")]
    if not workers:
        return [ok(name, "none is connected, and no job waits for one")]
    others = [worker for worker in workers if worker.version.startswith(CLIENT) and worker.version != CLIENT + version]
    if others:
        named = [f"{worker.name} ({worker.version.removeprefix(CLIENT)})" for worker in others[:MAX_NAMED]]
        more = [f"{len(others) - MAX_NAMED} more"] if len(others) > MAX_NAMED else []
        text = f"not of this release ({version}): {listed([*named, *more])}"
        return [warn(name, text, "That is normal during a deploy; otherwise restart them.")]
    return [ok(name, f"{plural(len(workers), 'worker')} connected, with {sum(w.slots for w in workers):,} slots")]


def judge_servers(servers: Sequence[ServerSeen], version: str) -> list[Finding]:
    name = "servers"
    found = []
    for server in servers:
        if server.version is None:
            found.append(
                fail(
                    name,
                    f"{server.address} does not answer: {server.problem}",
                    "Start it, or take it out of PULSE_SERVER_URL.",
                )
            )
        elif server.version != version:
            text = f"{server.address} is of release {server.version}, and this is {version}"
            found.append(warn(name, text, "That is normal during a deploy; otherwise upgrade the older one."))
    verb = "answers" if len(servers) == 1 else "answer"
    return found or [ok(name, f"{listed([server.address for server in servers])} {verb}")]


def judge_counts(miscounts: Sequence[Miscount], left_out: Sequence[str]) -> list[Finding]:
    name = "counts"
    if miscounts:
        named = [f"{each.topic} {each.status} has {each.rows:,}, not {each.counted:,}" for each in miscounts]
        text = f"counts that differ from the rows: {listed(named[:MAX_NAMED])}"
        advice = "Run `select pulse.recount();` in psql to correct them. Jobs may go on meanwhile."
        return [fail(name, text, advice)]
    not_counted = f"; not compared, because there are too many: {listed(left_out)}" if left_out else ""
    return [ok(name, f"they agree with the rows{not_counted}")]


def judge_schedules(broken: Broken | None, unknown_zones: Sequence[str]) -> list[Finding]:
    name = "schedules"
    found = []
    if broken is not None:
        text = f"{plural(broken.schedules, 'schedule')} broken, such as {broken.name!r}: {first_words(broken.error)}"
        found.append(warn(name, text, "`pulse schedules list --status broken` shows them; edit or delete them."))
    if unknown_zones:
        text = f"time zones that this machine does not know: {listed(unknown_zones[:MAX_NAMED])}"
        advice = "Install tzdata here: without it this machine cannot fire these schedules or tell when they are due."
        found.append(fail(name, text, advice))
    return found or [ok(name, "none is broken, and their time zones are known here")]


def judge_tokens(tokens: Sequence[Token], now: datetime) -> list[Finding]:
    name = "tokens"
    ending = [
        token for token in tokens if token.is_usable and token.expires_at and token.expires_at - now < EXPIRES_SOON
    ]
    named = [f"{token.name} in {about(token.expires_at - now)}" for token in ending if token.expires_at]
    if named:
        text = f"about to expire: {listed(named[:MAX_NAMED])}"
        return [warn(name, text, "Create new ones (`pulse tokens create`) for the holders of the old ones.")]
    return [ok(name, f"{plural(sum(token.is_usable for token in tokens), 'token')}, none about to expire")]
