"""Do settings come from a file where the environment is silent, and is every mistake in one named?"""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulse import config_file
from pulse.model.errors import InvalidSettings
from pulse.settings import Settings
from tests.unit.test_settings import TWINS


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config_file, "_warned", set())


def read(text: str, *, env: dict[str, str] | None = None, **overrides: Any) -> Settings:
    Path("pulse.toml").write_text(text)
    return Settings.from_env(env or {}, **overrides)


def refusal(text: str) -> str:
    with pytest.raises(InvalidSettings) as refused:
        read(text)
    return str(refused.value)


# --- reading


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("head", ["", "[pulse]\n"], ids=["at the top", "in the table"])
def test_every_setting_is_read_from_a_file_as_from_the_environment(name: str, head: str) -> None:
    text, value = TWINS[name]

    settings = read(f'{head}{name} = "{text}"', env={"PULSE_CONFIG": "pulse.toml"})

    Path("pulse.toml").unlink()
    assert settings == Settings.from_env({f"PULSE_{name.upper()}": text})
    assert getattr(settings, name) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("alarm_batch = 50", 50),
        ("alarm_max_failures = 0", 0),
        ("alarm_tick = 2", timedelta(seconds=2)),
        ("alarm_tick = 1.5", timedelta(seconds=1.5)),
        ('alarm_lease = "1h30m"', timedelta(minutes=90)),
        ("pgbouncer = true", True),
        ("notify = false", False),
        ('state_dir = "/var/lib/pulse"', Path("/var/lib/pulse")),
        ("alarm_ports = [443, 9443]", "443,9443"),
        ("alarm_networks = []", ""),
        ('alarm_networks = ["10.1.0.0/16", "127.0.0.1"]', "10.1.0.0/16,127.0.0.1"),
        ('http_hosts = ["pulse.example.org", "other.example"]', "pulse.example.org,other.example"),
        ('http_proxies = ["10.1.0.0/16", "::1"]', "10.1.0.0/16,::1"),
        ('server_url = ["grpc://a", "grpc://b"]', "grpc://a,grpc://b"),
        ('redact = ["password", "card.number"]', "password,card.number"),
    ],
)
def test_values_are_written_as_toml_has_them(line: str, value: object) -> None:
    assert getattr(read(line), line.partition(" ")[0]) == value


def test_settings_may_stand_at_the_top_and_in_the_table() -> None:
    settings = read('schema = "jobs"\n[pulse]\nthreads = 3')

    assert (settings.schema, settings.threads) == ("jobs", 3)


def test_another_file_can_be_named() -> None:
    Path("pulse.toml").write_text('schema = "usual"')
    Path("other.toml").write_text('schema = "named"')

    assert Settings.from_env({"PULSE_CONFIG": "other.toml"}).schema == "named"
    assert Settings.from_env({"PULSE_CONFIG": ""}).schema == "usual"
    assert Settings.from_env({"PULSE_CONFIG": "/dev/null"}).schema == "pulse"


def test_without_a_file_there_are_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_flags_win_over_the_environment_and_the_environment_over_the_file() -> None:
    file = "threads = 1\nconcurrency = 1\nprocesses = 1"

    settings = read(file, env={"PULSE_THREADS": "2", "PULSE_CONCURRENCY": "2"}, concurrency=3)

    assert (settings.processes, settings.threads, settings.concurrency) == (1, 2, 3)
    assert settings.pool_size == Settings().pool_size


def test_a_database_of_the_platform_wins_over_the_file_too() -> None:
    assert read('database_url = "postgresql://file/db"').database_url == "postgresql://file/db"
    there = read('database_url = "postgresql://file/db"', env={"DATABASE_URL": "postgresql://platform/db"})
    assert there.database_url == "postgresql://platform/db"


def test_settings_are_checked_once_all_of_them_are_known() -> None:
    assert read('lease = "6s"', env={"PULSE_HEARTBEAT": "2s"}).lease == timedelta(seconds=6)


# --- refusing


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("alarm_bach", "alarm_batch"),
        ("PULSE_ALARM_TICK", "alarm_tick"),
        ("state-dir", "state_dir"),
        ("thread", "threads"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_that_is_known(key: str, meant: str) -> None:
    assert refusal(f"{key} = 1") == f"pulse.toml: {key} is not a setting: did you mean {meant}?"
    assert refusal(f"[pulse]\n{key} = 1") == f"pulse.toml: {key} is not a setting: did you mean {meant}?"


@pytest.mark.parametrize("text", ["colour = 'red'", "[tool.pulse]\nschema = 'x'", "[pulse.alarms]\ntick = 1"])
def test_what_is_like_no_setting_is_refused_all_the_same(text: str) -> None:
    assert "is not a setting: " in refusal(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alarm_batch = true", "pulse.toml: alarm_batch must be a whole number, such as 10, not a boolean"),
        (
            "alarm_batch = 1.5",
            "alarm_batch must be a whole number, such as 10, not a number with a decimal point",
        ),
        ('alarm_batch = "many"', "pulse.toml: alarm_batch must be a whole number, such as 10"),
        ("alarm_tick = true", "pulse.toml: alarm_tick must be a length of time"),
        ("alarm_tick = 2026-01-01", "pulse.toml: alarm_tick must be a length of time"),
        ('alarm_tick = "soon"', 'pulse.toml: alarm_tick must be a length of time, such as "30s"'),
        ("alarm_tick = -1", "pulse.toml: alarm_tick must be a length of time"),
        ("alarm_jitter = 1", "pulse.toml: alarm_jitter must be true or false, not a number"),
        ('alarm_jitter = "perhaps"', "pulse.toml: alarm_jitter must be true or false"),
        ("schema = 5", "pulse.toml: schema must be text in quotes, not a number"),
        ("schema = ['a']", "pulse.toml: schema must be text in quotes, not a list"),
        (
            "alarm_ports = [true]",
            "alarm_ports must be text in quotes, or a list of such texts, not a list of other",
        ),
        ("schema = {a = 1}", "pulse.toml: schema must be text in quotes, not a table"),
        ("pulse = 1", "pulse.toml: pulse is not a setting: write the settings under [pulse]"),
        (
            "threads = 1\n[pulse]\nthreads = 1",
            "pulse.toml: threads is set twice, at the top and",
        ),
        ("threads", "the configuration file pulse.toml is not TOML: "),
        ("alarm_batch = 0", "alarm_batch must be at least 1, not 0 (see pulse.toml)"),
        ('schema = "pg_x"', "(see pulse.toml)"),
        ('alarm_target = "ftp://x"', "(see pulse.toml)"),
        ('redact = ["card[0]"]', "(lists need no brackets) (see pulse.toml)"),
    ],
)
def test_a_mistake_is_told_with_its_file_its_key_and_what_would_be_right(text: str, words: str) -> None:
    assert words in refusal(text)


@pytest.mark.parametrize("name", ["alarm_batch", "alarm_tick", "alarm_jitter"])
def test_a_secret_under_the_wrong_name_is_not_quoted(name: str) -> None:
    assert "s3cret" not in refusal(f'{name} = "s3cret"')


def test_a_mistake_elsewhere_is_not_the_files() -> None:
    with pytest.raises(InvalidSettings) as refused:
        read("threads = 1", env={"PULSE_ALARM_BATCH": "0"})

    assert str(refused.value) == "alarm_batch must be at least 1, not 0"


@pytest.mark.parametrize(("path", "why"), [("gone.toml", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_refused_by_its_name(path: str, why: str) -> None:
    with pytest.raises(InvalidSettings, match=f"the configuration file {path} cannot be read: {why}"):
        Settings.from_env({"PULSE_CONFIG": path})


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("pulse.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(InvalidSettings, match="is not TOML"):
        Settings.from_env({})


def test_a_secret_is_in_no_refusal() -> None:
    assert "hunter2" not in refusal("token = ['hunter2']")


# --- secrets


@pytest.mark.parametrize(
    "line",
    [
        'token = "hunter2"',
        'alarm_token = "hunter2"',
        'database_url = "postgresql://u:hunter2@db/x"',
        'database_url = "postgresql://db/x?password=hunter2"',
    ],
)
def test_a_secret_that_everybody_can_read_is_warned_of_once(line: str, caplog: pytest.LogCaptureFixture) -> None:
    Path("pulse.toml").write_text(line)
    Path("pulse.toml").chmod(0o644)

    with caplog.at_level(logging.WARNING):
        Settings.from_env({})
        Settings.from_env({})

    [warning] = caplog.messages
    assert warning.startswith("pulse.toml holds a secret")
    assert "hunter2" not in warning


@pytest.mark.parametrize(("line", "mode"), [('token = "hunter2"', 0o640), ('schema = "jobs"', 0o644)])
def test_others_are_not(line: str, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    Path("pulse.toml").write_text(line)
    Path("pulse.toml").chmod(mode)

    Settings.from_env({})

    assert caplog.messages == []


# --- a file that nobody asked for


def test_a_file_that_happens_to_be_here_does_not_choose_where_a_token_is_sent() -> None:
    with pytest.raises(InvalidSettings, match=r"pulse\.toml names a server, and PULSE_TOKEN would be sent to it"):
        read('server_url = "grpc://evil.example"', env={"PULSE_TOKEN": "pulse_secret"})


@pytest.mark.parametrize("trust", [{"PULSE_CONFIG": "pulse.toml"}, {"PULSE_SERVER_URL": "grpc://ours.example"}])
def test_a_file_that_is_named_may_and_a_server_that_is_named_wins(trust: dict[str, str]) -> None:
    settings = read('server_url = "grpc://theirs.example"', env={"PULSE_TOKEN": "pulse_secret", **trust})

    assert settings.server_url == trust.get("PULSE_SERVER_URL", "grpc://theirs.example")


def test_a_token_in_the_same_file_is_sent_to_the_server_it_names() -> None:
    assert read('server_url = "grpc://a"\ntoken = "pulse_secret"').server_url == "grpc://a"


def test_a_file_that_happens_to_be_here_does_not_choose_which_programs_are_executed() -> None:
    text = 'postgres = "/tmp/theirs"'

    assert "names a folder of Postgres programs to execute" in refusal(text)
    assert read(text, env={"PULSE_CONFIG": "pulse.toml"}).postgres == "/tmp/theirs"
    assert read('postgres = "wheel"').postgres == "wheel"
