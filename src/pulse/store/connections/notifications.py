"""How does a process learn that there may be work, without polling for it?

A notification is always a hint and never the work: a process that receives one still has to claim, and every process
polls too. Within a process a notification is a function call. Between processes it is a NOTIFY. Notifications are
gathered and sent after the commit, because a NOTIFY inside a transaction takes a lock that all committers share (5,685
against 1,968 commits a second at 32 clients).

A message consists of lines:

    @<sender>               in the first line only, so that a process recognizes its own messages
    <priority> <topic>      jobs of a topic are ready
    +<milliseconds>         a job falls due so soon that polling would be late for it
    !<worker>               the stream of a worker may have moved to another server
    ~<job>                  a server has found a dead letter, and none of its own workers listens for dead letters

Anybody who can connect may send a message, so a message makes a process look at the database and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID

import asyncpg

from pulse.model.errors import PulseError
from pulse.store.connections.pool import LOST, Connection, Database, connect
from pulse.store.jobs.rows import ReadyTopic
from pulse.store.statements import in_schema
from pulse.timing.backoff import Backoff

log = logging.getLogger("pulse.notifications")

SPACING = 0.02  # seconds between two messages of one process
PASS_ON_SPACING = 0.005  # seconds between two times at which received hints are passed on
FLOOD_SPACING = 0.5  # the same after more than MAX_LINES lines, which then stand for everything
MAX_LINES = 500
PROBE_EVERY = 15.0  # a half-open connection raises nothing, so the listener sends messages to itself
PROBE_PATIENCE = 5.0
LONGEST_MESSAGE = 7_900  # Postgres takes a little under 8,000 bytes
SOON = timedelta(seconds=2)  # polling finds a job in time that falls due later than this
_READY = re.compile(r"(-?\d{1,3}) (.+)")
_LATER = re.compile(r"\+(\d{1,4})")
_MOVED = re.compile(r"!(.+)")
_DEAD = re.compile(r"~([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
DEAD_AT_ONCE = 200  # dead letters in one message
EVERYTHING = ReadyTopic("*", 100)

Listener = Callable[[ReadyTopic], None]


async def send_notification(conn: Connection, *, channel: str, message: str) -> None:
    await conn.rows("send_notification", channel=channel, message=message)


class ReceivedHints:
    """The hints that other processes have sent since hints were last passed on, up to MAX_LINES lines."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.later: timedelta | None = None  # the soonest
        self.moved: set[str] = set()
        self.dead: set[UUID] = set()
        self._lines = 0

    @property
    def has_room(self) -> bool:
        return self._lines < MAX_LINES

    def read_line(self, line: str) -> None:
        """Add the hint in a line. A line that cannot be understood is passed over."""
        self._lines += 1
        if not self.has_room:
            return
        if found := _READY.fullmatch(line):
            urgency = max(-100, min(100, int(found[1])))
            self.topics[found[2]] = max(urgency, self.topics.get(found[2], -100))
        elif found := _LATER.fullmatch(line):
            later = timedelta(milliseconds=int(found[1]))
            self.later = later if self.later is None else min(later, self.later)
        elif found := _MOVED.fullmatch(line):
            self.moved.add(found[1])
        elif found := _DEAD.fullmatch(line):
            self.dead.add(UUID(found[1]))


class Notifications:
    """Sends and receives the notifications of one process."""

    def __init__(self, database: Database) -> None:
        self.channel = in_schema("pulse.notify", database.settings.schema)
        self.is_listening = False
        self._database = database
        self._settings = database.settings
        self._sender = f"@{secrets.token_hex(6)}"
        self._listeners: list[Listener] = []
        self._later: list[Callable[[timedelta], None]] = []
        self._moved: list[Callable[[str], None]] = []
        self._dead: list[Callable[[UUID], None]] = []
        self._takers: list[Callable[[str], bool]] = []
        self._unsent: dict[str, int] = {}
        self._unsent_later: timedelta | None = None
        self._sent_at = 0.0
        self._has_unsent = asyncio.Event()
        self._received_probe = asyncio.Event()
        self._received = ReceivedHints()
        self._pass_on_at = 0.0
        self._passing_on: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def on_ready(self, listener: Listener) -> None:
        """Call `listener` whenever jobs became ready, here or elsewhere. It must not block."""
        self._listeners.append(listener)

    def on_due_soon(self, listener: Callable[[timedelta], None]) -> None:
        """Call `listener` whenever a job will fall due soon."""
        self._later.append(listener)

    def notify_ready(self, ready: Iterable[ReadyTopic]) -> None:
        """Notify this process at once, and the others soon."""
        for item in most_urgent(ready):
            self._call_ready_listeners(item)
            if self._settings.notify:
                self._unsent[item.topic] = max(item.priority, self._unsent.get(item.topic, -100))
        if self._unsent:
            self._has_unsent.set()

    def notify_here(self, ready: Iterable[ReadyTopic]) -> None:
        """Notify this process only, because the others have been notified."""
        for item in ready:
            self._call_ready_listeners(item)

    def add_local_taker(self, taker: Callable[[str], bool]) -> None:
        """Ask `taker` whether a worker of this process has room for a job of a topic: if so, no other is notified."""
        self._takers.append(taker)

    def has_local_taker(self, topic: str) -> bool:
        return any(taker(topic) for taker in self._takers)

    def payload_for_commit(self, ready: Sequence[ReadyTopic]) -> str | None:
        """Return a message to send in the very transaction that makes jobs ready: workers wait one round trip less.

        Return None if the last message was sent so recently that the hint is better gathered with others.
        """
        is_too_soon = self._has_unsent.is_set() or time.monotonic() - self._sent_at < SPACING
        if is_too_soon or not ready or not self._settings.notify:
            return None
        self._sent_at = time.monotonic()
        lines = [self._sender, *(f"{item.priority} {item.topic}" for item in ready)]
        return _fitting(lines)

    def notify_due_soon(self, delay: timedelta) -> None:
        """Notify all processes that a job falls due after `delay`, if polling would be late for it."""
        if delay <= SOON:
            delay = max(delay, timedelta())  # a resumed job may be overdue, and a message has no minus sign
            self._call_due_listeners(delay)
            if self._settings.notify:
                self._unsent_later = delay if self._unsent_later is None else min(delay, self._unsent_later)
                self._has_unsent.set()

    def on_moved(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of a worker whose stream may be at another server now. It has to check."""
        self._moved.append(listener)

    async def notify_moved(self, worker: str) -> None:
        """Make other servers check where a worker's stream is.

        A lost hint does no harm, because a stream that nobody reads ends anyway.
        """
        if self._settings.notify:
            send = partial(send_notification, channel=self.channel, message=f"{self._sender}\n!{worker}")
            await self._database.run(send)

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        """Call `listener` with dead letters of another server that has no worker of its own to tell."""
        self._dead.append(listener)

    async def notify_dead_letters(self, job_ids: Sequence[UUID]) -> None:
        if not self._settings.notify:
            return
        for start in range(0, len(job_ids), DEAD_AT_ONCE):
            lines = [self._sender, *(f"~{job_id}" for job_id in job_ids[start : start + DEAD_AT_ONCE])]
            await self._database.run(partial(send_notification, channel=self.channel, message="\n".join(lines)))

    def start(self, *, listen: bool = True) -> None:
        """Begin to send, and to listen if asked to. A process in which nobody waits for work need not listen."""
        if not self._settings.notify:
            return
        self._tasks.append(asyncio.create_task(self._send_forever(), name="pulse notification sender"))
        if listen and (self._settings.listen_url or not self._settings.pgbouncer):
            self._tasks.append(asyncio.create_task(self._listen_forever(), name="pulse notification listener"))

    async def stop(self) -> None:
        """Stop, and send what is not sent yet, even if nothing was started, as in a command that replays jobs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._passing_on is not None:
            self._passing_on.cancel()
        self.is_listening = False
        if self._has_unsent.is_set():
            await self._send()

    async def _send_forever(self) -> None:
        while True:
            await self._has_unsent.wait()
            await asyncio.sleep(self._sent_at + SPACING - time.monotonic())
            await self._send()

    async def _send(self) -> None:
        self._has_unsent.clear()
        self._sent_at = time.monotonic()
        send = partial(send_notification, channel=self.channel, message=self._take_message())
        try:
            await self._database.run(send)
        except PulseError as error:
            log.debug("notification not sent, so other processes find out by polling: %s", error)

    def _take_message(self) -> str:
        unsent, self._unsent = self._unsent, {}
        later, self._unsent_later = self._unsent_later, None
        message = _fitting([self._sender, *(f"{priority} {topic}" for topic, priority in unsent.items())])
        return message if later is None else f"{message}\n+{round(later / timedelta(milliseconds=1))}"

    async def _listen_forever(self) -> None:
        backoff, failures = Backoff(), 0
        while True:
            try:
                await self._listen_until_lost()
            except (*LOST, asyncpg.PostgresError) as error:
                failures = 1 if self.is_listening else failures + 1
                self.is_listening = False
                log.warning("notification listener lost its connection (%s); polling goes on", repr(error))
                await asyncio.sleep(backoff.delay(failures).total_seconds())

    async def _listen_until_lost(self) -> None:
        conn = await connect(self._settings, url=self._settings.listen_url)
        is_closed = asyncio.Event()
        conn.add_termination_listener(lambda _: is_closed.set())
        try:
            await conn.add_listener(self.channel, self._receive)
            self.is_listening = True
            self._call_ready_listeners(EVERYTHING)  # what was sent while nobody listened is lost
            while not await _happens(is_closed, within=PROBE_EVERY):
                self._received_probe.clear()
                await conn.execute("select pg_notify($1, $2)", self.channel, f"{self._sender}\n?")
                if not await _happens(self._received_probe, within=PROBE_PATIENCE):
                    raise TimeoutError("it receives nothing")
            raise ConnectionResetError("the server closed the connection")
        finally:
            conn.terminate()

    # --- receiving: anybody who can connect may write to the channel, so nothing here is more than a hint

    def _receive(self, _conn: object, _pid: int, _channel: str, payload: object) -> None:
        sender, _, rest = str(payload).partition("\n")
        if sender == self._sender:
            if rest == "?":
                self._received_probe.set()
            return
        lines = rest if sender.startswith("@") else str(payload)
        for line in lines.split("\n") if self._received.has_room else ():
            self._received.read_line(line)
            if not self._received.has_room:
                break
        if self._passing_on is None:
            wait = self._pass_on_at - time.monotonic()
            self._passing_on = asyncio.get_running_loop().call_later(max(0.0, wait), self._pass_on_hints)

    def _pass_on_hints(self) -> None:
        """Call the listeners with each hint that was received since the last time, once, however often it was sent."""
        received, self._received = self._received, ReceivedHints()
        self._passing_on = None
        self._pass_on_at = time.monotonic() + (PASS_ON_SPACING if received.has_room else FLOOD_SPACING)
        for topic, priority in received.topics.items() if received.has_room else [EVERYTHING]:
            self._call_ready_listeners(ReadyTopic(topic, priority))
        if received.later is not None:
            self._call_due_listeners(received.later)
        for worker in received.moved:
            for listener in self._moved:
                listener(worker)
        for job_id in received.dead:
            for dead in self._dead:
                dead(job_id)

    def _call_ready_listeners(self, ready: ReadyTopic) -> None:
        for listener in self._listeners:
            listener(ready)

    def _call_due_listeners(self, delay: timedelta) -> None:
        for listener in self._later:
            listener(delay)


def most_urgent(ready: Iterable[tuple[str, int]]) -> list[ReadyTopic]:
    """Return one for each topic, with its highest priority."""
    found: dict[str, int] = {}
    for topic, priority in ready:
        found[topic] = max(priority, found.get(topic, -100))
    return [ReadyTopic(*item) for item in found.items()]


def _fitting(lines: list[str]) -> str:
    """Return the lines as one message, or one that stands for all topics if they are too long for a message."""
    message = "\n".join(lines)
    if len(message.encode()) <= LONGEST_MESSAGE:
        return message
    return f"{lines[0]}\n{EVERYTHING.priority} {EVERYTHING.topic}"


async def _happens(event: asyncio.Event, *, within: float) -> bool:
    """Return whether `event` is set within `within` seconds.

    Until Python 3.12, asyncio.wait_for may swallow a cancellation, and then we would never stop.
    """
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True
