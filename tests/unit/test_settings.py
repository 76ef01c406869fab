"""Does every setting have its twin in the environment, and is every senseless one refused by name?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pulse.model.errors import InvalidInput, InvalidSettings
from pulse.settings import Settings, warn_of_misspelt

# A value for each that is not its default, as text and as what the text means.
TWINS: dict[str, tuple[str, Any]] = {
    "database_url": ("postgresql://here/pulse", "postgresql://here/pulse"),
    "listen_url": ("postgresql://direct/pulse", "postgresql://direct/pulse"),
    "schema": ("jobs_2", "jobs_2"),
    "buckets": ("16", 16),
    "state_dir": ("/var/lib/pulse", Path("/var/lib/pulse")),
    "postgres": ("/opt/pg/bin", "/opt/pg/bin"),
    "pool_size": ("9", 9),
    "pgbouncer": ("yes", True),
    "notify": ("off", False),
    "patience": ("1m30s", timedelta(seconds=90)),
    "lease": ("2m", timedelta(minutes=2)),
    "heartbeat": ("250ms", timedelta(milliseconds=250)),
    "watchdog": ("7", timedelta(seconds=7)),
    "tick": ("1.5s", timedelta(seconds=1.5)),
    "server_url": ("grpcs://jobs-a,jobs-b:9000", "grpcs://jobs-a,jobs-b:9000"),
    "token": ("secret", "secret"),
    "tls_ca": ("/etc/ca.pem", Path("/etc/ca.pem")),
    "listen": ("[::1]:9000", "[::1]:9000"),
    "tls_cert": ("/etc/cert.pem", Path("/etc/cert.pem")),
    "tls_key": ("/etc/key.pem", Path("/etc/key.pem")),
    "tls_client_ca": ("/etc/clients.pem", Path("/etc/clients.pem")),
    "http_listen": ("0.0.0.0:80", "0.0.0.0:80"),
    "http_hosts": ("pulse.example.org", "pulse.example.org"),
    "http_proxies": ("10.1.0.0/16, ::1", "10.1.0.0/16, ::1"),
    "http_deadline": ("5m", timedelta(minutes=5)),
    "message_limit": ("4194304", 4 << 20),
    "calls_per_second": ("50", 50),
    "streams_per_token": ("20", 20),
    "concurrency": ("7", 7),
    "threads": ("3", 3),
    "processes": ("5", 5),
    "grace": ("1m", timedelta(minutes=1)),
    "trace_as_child": ("yes", True),
    "schedule_tick": ("3s", timedelta(seconds=3)),
    "schedule_batch": ("100", 100),
    "alarm_tick": ("2s", timedelta(seconds=2)),
    "alarm_lease": ("5m", timedelta(minutes=5)),
    "alarm_batch": ("250", 250),
    "alarm_max_failures": ("0", 0),
    "alarm_deadline": ("20s", timedelta(seconds=20)),
    "alarm_slots": ("50", 50),
    "alarm_slots_per_destination": ("4", 4),
    "alarm_jitter": ("yes", True),
    "alarm_owner": ("shop", "shop"),
    "alarm_target": ("http://agents.internal:9000/wake", "http://agents.internal:9000/wake"),
    "alarm_token": ("bearer-secret", "bearer-secret"),
    "alarm_networks": ("10.1.0.0/16, fd00::/8, 127.0.0.1", "10.1.0.0/16, fd00::/8, 127.0.0.1"),
    "alarm_ports": ("443,9443", "443,9443"),
    "alarm_plain_http": ("yes", True),
    "redact": ("password, Card.number", "password, Card.number"),
    "keep_completed": ("1h", timedelta(hours=1)),
    "keep_cancelled": ("2d", timedelta(days=2)),
    "keep_dead_lettered": ("90d", timedelta(days=90)),
    "keep_fires": ("1d", timedelta(days=1)),
    "keep_alarms": ("3d", timedelta(days=3)),
    "keep_deliveries": ("4d", timedelta(days=4)),
}


def test_there_is_an_example_for_every_setting() -> None:
    assert list(TWINS) == [field.name for field in fields(Settings)]
    assert all(field.default is not MISSING and field.default != TWINS[field.name][1] for field in fields(Settings))


@pytest.mark.parametrize("name", TWINS)
def test_every_setting_is_read_from_its_twin_in_the_environment(name: str) -> None:
    text, value = TWINS[name]

    settings = Settings.from_env({f"PULSE_{name.upper()}": text})

    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) is type(value)
    others = [other for other in TWINS if other != name]
    assert all(getattr(settings, other) == getattr(Settings(), other) for other in others)


def test_an_empty_environment_means_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({f"PULSE_{name.upper()}": "" for name in TWINS if name != "http_listen"}) == Settings()


def test_http_is_turned_off_by_saying_nothing() -> None:
    assert Settings.from_env({"PULSE_HTTP_LISTEN": ""}).http_listen == ""
    assert Settings.from_env({}, http_listen="").http_listen == ""
    with pytest.raises(InvalidSettings, match=r"http_hosts must be names of hosts, .*, not 'a b'"):
        Settings(http_hosts="ok.example, a b")


def test_what_is_not_ours_is_not_read() -> None:
    assert Settings.from_env({"SCHEMA": "x", "PULSE_TEST_SERVER": "y", "pulse_schema": "z"}) == Settings()


@pytest.mark.parametrize("name", TWINS)
def test_an_override_wins_over_the_environment(name: str) -> None:
    text, value = TWINS[name]
    default = getattr(Settings(), name)
    override = value if default is None else default

    settings = Settings.from_env({f"PULSE_{name.upper()}": text}, **{name: override})

    assert getattr(settings, name) == override


def test_an_override_of_none_is_none_at_all() -> None:
    assert Settings.from_env({"PULSE_SCHEMA": "here"}, schema=None, lease=None).schema == "here"


def test_settings_are_checked_once_all_of_them_are_known() -> None:
    """A short lease in the environment goes well with the shorter heartbeat of a flag."""
    settings = Settings.from_env({"PULSE_LEASE": "6s"}, heartbeat=timedelta(seconds=2))

    assert settings.lease == timedelta(seconds=6)


def test_the_database_is_also_looked_for_where_platforms_put_it() -> None:
    platform = {"DATABASE_URL": "postgresql://platform/db"}

    assert Settings.from_env(platform).database_url == "postgresql://platform/db"
    ours = platform | {"PULSE_DATABASE_URL": "postgresql://ours/db"}
    assert Settings.from_env(ours).database_url == "postgresql://ours/db"
    assert Settings.from_env(ours, database_url="postgresql://flag/db").database_url == "postgresql://flag/db"


@pytest.mark.parametrize("text", ["1", "true", "YES", "On"])
def test_yes_may_be_said_in_several_ways(text: str) -> None:
    assert Settings.from_env({"PULSE_PGBOUNCER": text}).pgbouncer is True


@pytest.mark.parametrize("text", ["0", "false", "NO", "Off"])
def test_so_may_no(text: str) -> None:
    assert Settings.from_env({"PULSE_NOTIFY": text}).notify is False


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "PULSE_LEASE",
            "soon",
            'PULSE_LEASE must be a length of time, such as "30s" or "5m", or a number of seconds, not',
        ),
        (
            "PULSE_TICK",
            "-5s",
            'PULSE_TICK must be a length of time, such as "30s" or "5m", or a number of seconds, not',
        ),
        ("PULSE_BUCKETS", "many", "PULSE_BUCKETS must be a whole number, such as 10, not 'many'"),
        ("PULSE_BUCKETS", "1.5", "PULSE_BUCKETS"),
        ("PULSE_POOL_SIZE", "0", "pool_size must be at least 1, not 0"),
        ("PULSE_NOTIFY", "maybe", "PULSE_NOTIFY must be true or false, not 'maybe'"),
        (
            "PULSE_SCHEMA",
            "Pulse",
            "schema must have 1 to 48 lower-case letters, digits and _",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_name(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings.from_env({name: text})

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema": ""}, "it is ''"),
        ({"schema": "a-b"}, "it is 'a-b'"),
        ({"schema": "9lives"}, "must not start with a digit"),
        ({"schema": "x" * 49}, "must have 1 to 48"),
        ({"buckets": 0}, "buckets must be between 1 and 4096, not 0"),
        ({"buckets": 4097}, "buckets must be between 1 and 4096, not 4097"),
        ({"pool_size": 0}, "pool_size"),
        ({"pool_size": -1}, "pool_size"),
        ({"lease": timedelta()}, "lease must be longer than 0 s, not 0 s"),
        ({"heartbeat": timedelta()}, "heartbeat must be longer than 0 s, not 0 s"),
        ({"watchdog": -timedelta(seconds=1)}, "watchdog must be longer than 0 s, not -1 s"),
        ({"tick": timedelta()}, "tick must be longer than 0 s, not 0 s"),
        ({"lease": timedelta(seconds=29)}, "lease must be at least three heartbeats long, not 29 s"),
        ({"heartbeat": timedelta(seconds=10, microseconds=1)}, "three heartbeats"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings(**given)

    assert words in str(refused.value)
    assert isinstance(refused.value, InvalidInput)


@pytest.mark.parametrize(
    "given",
    [
        {"buckets": 4096},
        {"schema": "x" * 48},
        {"schema": "_"},
        {"pool_size": 1},
        {"lease": timedelta(seconds=30), "heartbeat": timedelta(seconds=10)},
        {"lease": timedelta(milliseconds=3), "heartbeat": timedelta(milliseconds=1)},
    ],
)
def test_the_edges_are_allowed(given: dict[str, Any]) -> None:
    settings = Settings(**given)

    assert {name: getattr(settings, name) for name in given} == given


def test_settings_do_not_change_once_they_are_made() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().schema = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "given",
    [
        {"schema": "pg_pulse"},
        {"patience": timedelta()},
        {"keep_completed": timedelta(seconds=-1)},
        {"keep_dead_lettered": timedelta(days=-1)},
        {"message_limit": 1 << 20},
        {"message_limit": 2 << 30},
        {"calls_per_second": 0},
        {"streams_per_token": 0},
        {"http_deadline": timedelta()},
        {"http_proxies": "*"},
        {"http_proxies": "proxy.internal"},
        {"http_proxies": "10.0.0.1/8"},
        {"http_proxies": "0.0.0.0/0"},
        {"http_proxies": "10.0.0.1,::/0"},
        {"alarm_networks": "10.0.0.1/8"},
        {"alarm_networks": "intranet"},
        {"redact": "password,card..number"},
        {"redact": "card[0]"},
        {"alarm_ports": "443,https"},
        {"alarm_ports": "0"},
        {"alarm_ports": "65536"},
        {"alarm_target": "ftp://agents.internal/"},
        {"alarm_target": "http://user:secret@agents.internal/"},
        {"alarm_target": "http://0177.1/"},
        {"alarm_token": "two\r\nlines"},
        {"alarm_token": ""},
        {"alarm_deadline": timedelta()},
        {"alarm_lease": timedelta(seconds=20)},
        {"alarm_slots": 0},
        {"alarm_slots_per_destination": 0},
        {"alarm_batch": 0},
        {"alarm_max_failures": -1},
        {"keep_alarms": -timedelta(1)},
    ],
    ids=str,
)
def test_settings_that_could_never_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(given))):
        Settings(**given)


def test_a_token_is_not_shown_with_the_settings() -> None:
    assert "hunter2" not in repr(Settings(token="hunter2", alarm_token="hunter2"))


def test_settings_that_are_printed_show_no_secret() -> None:
    url = "postgresql://pulse:S3cret@db/pulse"
    shown = repr(Settings(database_url=url, listen_url=url, token="pulse_S3cret", alarm_token="S3cret"))

    assert "S3cret" not in shown


# --- variables that nobody reads


def _flags(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """The variable of every flag of every command."""
    for parameter in command.params:
        if parameter.envvar is not None:  # which it has instead
            continue
        yield "_".join(["PULSE", *words, str(parameter.name)]).upper().replace("-", "_")
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _flags(child, (*words, name))


def test_a_misspelt_variable_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.settings._warned", set())
    for _ in range(2):
        Settings.from_env({"PULSE_POOLSIZE": "3", "PULSE_DATABASEURL": "x", "PULSE_ZEBRA": "1"})

    assert caplog.messages == [
        "PULSE_DATABASEURL is not a setting and is ignored: did you mean PULSE_DATABASE_URL?",
        "PULSE_POOLSIZE is not a setting and is ignored: did you mean PULSE_POOL_SIZE?",
    ]


def test_a_misspelt_name_of_the_file_of_settings_or_of_a_credential_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.settings._warned", set())
    Settings.from_env({"PULSE_CONFG": "x", "PULSE_TOKN": "x", "PULSE_ALARM_TOKE": "x"})

    assert [message.rpartition(" ")[2] for message in caplog.messages] == [
        "PULSE_ALARM_TOKEN?",
        "PULSE_CONFIG?",
        "PULSE_TOKEN?",
    ]


def test_a_misspelt_variable_of_a_flag_is_told_by_the_command_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulse.cli.main import cli

    monkeypatch.setattr("pulse.settings._warned", set())
    env = {"PULSE_JOBS_LST_LIMIT": "5", "PULSE_JOBS_LIST_LIMIT": "5", "PULSE_ZEBRA": "1", "PULSE_SINK": "1"}
    CliRunner().invoke(cli, ["completion", "bash"], env=env)

    assert caplog.messages == [
        "PULSE_JOBS_LST_LIMIT is not a setting and is ignored: did you mean PULSE_JOBS_LIST_LIMIT?"
    ]


def test_variables_of_flags_and_of_other_programs_are_left_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pulse.cli.main import cli
    from pulse.cli.options import variables_of

    monkeypatch.setattr("pulse.settings._warned", set())
    others = ("PULSE_CONFIG", "PULSE_SERVER", "PULSE_SINK", "PULSE_COOKIE", "PULSE_RUNTIME_PATH", "PULSE_LATENCY_MSEC")
    names = {*_flags(cli), *others} - {f"PULSE_{each.name.upper()}" for each in fields(Settings)}
    Settings.from_env(dict.fromkeys(names - {"PULSE_CONFIG"}, "1"))
    warn_of_misspelt(dict.fromkeys(names, "1"), lambda: variables_of(cli))

    assert caplog.messages == []
