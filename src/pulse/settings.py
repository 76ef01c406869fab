"""Which settings exist, what are their defaults, and where do they come from?

No other module reads the environment. Every field `some_name` is read from `PULSE_SOME_NAME`; the database is also read
from `DATABASE_URL`, where most platforms put it. Settings that the environment does not have may be in a file: the one
that `PULSE_CONFIG` names, else `pulse.toml` in the working directory.
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
MAX_BUCKETS = 4096  # an id stores its bucket in twelve bits
MIN_MESSAGE = 4 << 20  # the default limit of gRPC, and enough for the largest possible job
MAX_MESSAGE = 1 << 30
CONFIG_FILE = Path("pulse.toml")
DELIVERY_MARGIN = timedelta(seconds=15)  # by which an alarm's lease exceeds its deadline, to wait and record
EXPECTED = {
    "int": "a whole number, such as 10",
    "bool": "true or false",
    "timedelta": 'a length of time, such as "30s" or "5m", or a number of seconds',
    "Path": "the path of a file or folder",
    "Path | None": "the path of a file or folder",
}
TEXT = "text"
MAX_LENGTH_DIFFERENCE = 2  # characters that a misspelling may have more or less
MIN_SIMILARITY = 0.8  # how similar two names must be for one to be a misspelling of the other
PULSEAUDIO = {"config", "server", "sink", "source", "cookie", "clientconfig", "binary", "latency_msec"}  # its variables
ALSO_READ = ("config", "deploy", "test_database_url")  # variables that are read but are not settings
_warned: set[str] = set()  # misspelt variables that were logged
MAY_BE_EMPTY = frozenset({"http_listen"})  # for all others, an empty variable counts as not set
MINIMUMS = {
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
    database_url: str | None = field(default=None, repr=False)  # None: the embedded Postgres
    listen_url: str | None = field(default=None, repr=False)  # None: database_url; a direct URL if that is pgbouncer
    schema: str = "pulse"
    buckets: int = 1  # used when the schema is created; the schema stores it from then on
    state_dir: Path = Path(".pulse")
    postgres: str = "auto"  # where the embedded server's programs come from: auto, system, wheel or a folder
    pool_size: int = 4
    pgbouncer: bool = False  # transaction pooling: no prepared statements, no session settings
    notify: bool = True  # notify other processes at once; without it they poll
    patience: timedelta = timedelta(seconds=15)  # how long a use case tries again after a lost connection

    lease: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=10)  # a lease ends after three missed ones
    watchdog: timedelta = timedelta(seconds=10)
    tick: timedelta = timedelta(milliseconds=500)  # between polls for due jobs, if no notification comes

    server_url: str | None = None  # for clients, several between commas; None: use the database directly
    token: str | None = field(default=None, repr=False)  # for clients
    tls_ca: Path | None = None  # for clients: the CA of the server's certificate, if it is not a public one
    listen: str = "127.0.0.1:8701"
    tls_cert: Path | None = None  # of the server; of a client if the server requires one
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # only clients with a certificate of this CA may connect
    http_listen: str = "127.0.0.1:8700"  # empty: no HTTP
    http_hosts: str = ""  # host names that HTTP requests may use, between commas; empty: any, once there are tokens
    http_proxies: str = ""  # networks and addresses of proxies, between commas, which may name the client's address
    http_deadline: timedelta = timedelta(minutes=1)  # for the head of a request to arrive, and then for its body
    message_limit: int = 16 << 20  # bytes
    calls_per_second: int = 2_000  # of one token
    streams_per_token: int = 1_000

    concurrency: int = 100  # async handlers that one worker runs at a time
    threads: int = 10  # sync handlers at a time
    processes: int = 0  # handlers in processes of their own at a time; 0: as many as there are processors
    grace: timedelta = timedelta(seconds=25)  # for running handlers to finish when a worker stops

    trace_as_child: bool = False  # a job's spans belong to the trace it was enqueued in; otherwise they link to it

    schedule_tick: timedelta = timedelta(seconds=1)  # between polls for due schedules, if no notification comes
    schedule_batch: int = 2_000  # schedules of one transaction, which takes a tenth of a second

    alarm_tick: timedelta = timedelta(seconds=1)  # between polls for due alarms, if no notification comes
    alarm_lease: timedelta = timedelta(minutes=2)
    alarm_batch: int = 100  # alarms of one claim
    alarm_max_failures: int = 5  # retries of an alarm that does not set its own
    alarm_deadline: timedelta = timedelta(seconds=15)  # for one delivery, from the DNS lookup to the last byte
    alarm_slots: int = 500  # deliveries of one process at a time
    alarm_slots_per_destination: int = 16
    alarm_jitter: bool = False  # make each retry up to a fifth earlier; without it the waits are exact
    alarm_owner: str | None = None  # the owner of alarms that a program sets without one
    alarm_target: str | None = None  # the URL of alarms that name none
    alarm_token: str | None = field(default=None, repr=False)  # the bearer token for that target
    alarm_networks: str = ""  # private networks and addresses that alarms may call, between commas
    alarm_ports: str = "80,443,8080,8443"  # ports that they may call elsewhere
    alarm_plain_http: bool = False  # allow HTTP without TLS outside those networks

    redact: str = ""  # fields of payloads that are never shown, between commas: password,card.number

    keep_completed: timedelta = timedelta(days=7)
    keep_cancelled: timedelta = timedelta(days=7)
    keep_dead_lettered: timedelta = timedelta(days=30)
    keep_fires: timedelta = timedelta(days=90)  # the records of each occurrence of a schedule
    keep_alarms: timedelta = timedelta(days=90)  # alarms that have fired, failed or were cancelled
    keep_deliveries: timedelta = timedelta(days=30)

    def __post_init__(self) -> None:
        self._check_kinds()
        if not SCHEMA_NAME.fullmatch(self.schema) or self.schema.startswith("pg_"):
            raise InvalidSettings(
                "schema must have 1 to 48 lower-case letters, digits and _, and must not start with a digit or pg_; "
                f"it is {self.schema!r}"
            )
        if not 1 <= self.buckets <= MAX_BUCKETS:
            raise InvalidSettings(f"buckets must be between 1 and {MAX_BUCKETS}, not {self.buckets}")
        if self.pool_size < 1:
            raise InvalidSettings(f"pool_size must be at least 1, not {self.pool_size}")
        for name, minimum in MINIMUMS.items():
            if getattr(self, name) < minimum:
                raise InvalidSettings(f"{name} must be at least {minimum}, not {getattr(self, name)}")
        read_redaction(self.redact)
        self._check_lengths()
        self._check_server()
        self._check_alarms()

    def _check_kinds(self) -> None:
        """Check the types first: comparing a value of a wrong type would raise an error of Python's, or none at all."""
        for each in fields(self):
            value, kind = getattr(self, each.name), str(each.type)
            if value is None and kind.endswith(" | None"):
                continue
            wanted = TYPES[kind.removesuffix(" | None")]
            if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
                found = repr(value) if wanted is not str else f"a value of type {type(value).__name__}"
                raise InvalidSettings(f"{each.name} must be {EXPECTED.get(kind, TEXT)}, not {found}")

    @property
    def redaction(self) -> Redaction:
        """Return the redaction that masks the fields of `redact`: `.json(payload)` and `.text(error, payload)`."""
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
            raise InvalidSettings(
                f"message_limit must be {MIN_MESSAGE} to {MAX_MESSAGE} bytes, not {self.message_limit}"
            )

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
            if (length := getattr(self, name)) <= timedelta():
                raise InvalidSettings(f"{name} must be longer than 0 s, not {length.total_seconds():g} s")
        for name in ("grace", *(each.name for each in fields(self) if each.name.startswith("keep_"))):
            if (length := getattr(self, name)) < timedelta():
                raise InvalidSettings(f"{name} must be at least 0 s, not {length.total_seconds():g} s")
        if self.alarm_lease < self.alarm_deadline + DELIVERY_MARGIN:
            raise InvalidSettings(
                f"alarm_lease must be at least {DELIVERY_MARGIN.seconds} s longer than alarm_deadline, so that a "
                "delivery under way is not repeated"
            )
        if self.heartbeat * 3 > self.lease:
            raise InvalidSettings(
                f"lease must be at least three heartbeats long, not {self.lease.total_seconds():g} s with a heartbeat "
                f"of {self.heartbeat.total_seconds():g} s"
            )

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ, **overrides: Any) -> Settings:  # noqa: ANN401
        """Read the environment, and a configuration file for settings that it does not have.

        `overrides` that are not None, from flags or code, win. Text among them is read like a variable.
        """
        kinds = {each.name: str(each.type) for each in fields(cls)}
        warn_of_misspelt(env)
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
            # The error begins with the name of the setting. If its value came from the file, the error names the file.
            if str(error).partition(" ")[0].rstrip(":") not in written:
                raise
            raise InvalidSettings(f"{error} (see {file})") from None


def read_hosts(text: str) -> frozenset[str]:
    """Read host names without ports: a page of an attacker may send a browser to any port."""
    hosts = frozenset(host.strip().lower() for host in text.split(",") if host.strip())
    for host in hosts:
        if not HOST_NAME.fullmatch(host):
            raise InvalidSettings(f"http_hosts must be names of hosts, such as pulse.example.org, not {host!r}")
    return hosts


def _find_config(env: Mapping[str, str], kinds: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    named = env.get("PULSE_CONFIG")
    path = Path(named) if named else CONFIG_FILE
    if not named and not path.is_file():
        return path, {}
    from pulse.config_file import check_unnamed, read_config  # imported only if there is a file, to start faster

    found = read_config(path, kinds)
    if not named:
        check_unnamed(path, found, env)
    return path, found


def _read_from_file(file: Path, name: str, kind: str, text: str) -> object:
    """Read a value like `_read`, but do not quote it in an error: it may be a secret under the wrong name."""
    try:
        return _read(name, kind, text)
    except InvalidSettings:
        raise InvalidSettings(f"{file}: {name} must be {EXPECTED[kind]}") from None


def suggest_setting(name: str, known: Iterable[str]) -> str:
    """Return a hint for the name of a setting that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {near[0]}?" if near else "docs/reference/settings.md lists all settings"


def warn_of_misspelt(env: Mapping[str, str] = os.environ, flags: Callable[[], Iterable[str]] = tuple) -> None:
    """Warn once of each variable whose name is almost that of a setting, since it would be ignored silently.

    The command line gives the variables of its `flags` as well. Other variables are left alone: they may be the user's
    own, and those of PulseAudio also begin with PULSE_.
    """
    known = {*(each.name for each in fields(Settings)), *ALSO_READ}
    own = {name.removeprefix("PULSE_").lower() for name in env if name.startswith("PULSE_")} - known
    own -= PULSEAUDIO | _warned
    if not own:
        return
    from difflib import get_close_matches  # imported only if it is needed, to start faster

    known |= {name.removeprefix("PULSE_").lower() for name in flags()}
    for name in sorted(own - known):
        similar = [each for each in sorted(known) if abs(len(each) - len(name)) <= MAX_LENGTH_DIFFERENCE]
        if near := get_close_matches(name, similar, n=1, cutoff=MIN_SIMILARITY):
            _warned.add(name)
            log.warning(
                "PULSE_%s is not a setting and is ignored: did you mean PULSE_%s?", name.upper(), near[0].upper()
            )


def _read_given(name: str, kind: str, value: object) -> object:
    """Read a value from code or a flag: text like that of a variable, or the value itself."""
    if isinstance(value, int | float) and not isinstance(value, bool) and kind == "timedelta":
        value = str(value)  # a number of seconds, as in a file
    return _read(name, kind, value) if isinstance(value, str) else value


def _read(source: str, kind: str, text: str) -> object:
    try:
        return READERS.get(kind, str)(text)
    except (InvalidDuration, ValueError, OverflowError):
        raise InvalidSettings(f"{source} must be {EXPECTED.get(kind, TEXT)}, not {text[:100]!r}") from None


def _read_bool(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither yes nor no")


TYPES: dict[str, type] = {"int": int, "bool": bool, "timedelta": timedelta, "Path": Path, "str": str}
READERS: dict[str, Callable[[str], object]] = {
    "int": int,
    "bool": _read_bool,
    "timedelta": parse_duration,
    "Path": Path,
    "Path | None": Path,
}
