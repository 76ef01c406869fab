"""How are settings read from a configuration file? It is TOML, with settings by their names.

    alarm_tick = "2s"
    alarm_batch = 50
    alarm_networks = ["10.1.0.0/16", "192.168.7.9"]

They may also be under `[pulse]`. Nothing in the file is ignored: an unknown key or a value of a wrong type is refused
with the file, the key and what the value must be, but without the value, which may be a secret.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import tomllib
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidSettings
from pulse.settings import EXPECTED, suggest_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger("pulse.settings")

TABLE = "pulse"
# Settings that take several values between commas.
LISTS = frozenset({"alarm_networks", "alarm_ports", "http_hosts", "http_proxies", "redact", "server_url"})
SECRETS = frozenset({"token", "alarm_token"})
POSTGRES_SOURCES = frozenset({"auto", "system", "wheel"})  # any other value is a folder with programs
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=")
_warned: set[Path] = set()  # files that were logged

TEXT = "text in quotes"


def read_config(path: Path, kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in a file as text, as in the environment. `kinds` has the type of each setting."""
    try:
        with path.open("rb") as file:
            is_readable_by_all = bool(os.fstat(file.fileno()).st_mode & stat.S_IROTH)
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidSettings(f"the configuration file {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # also if the file is not UTF-8
        raise InvalidSettings(f"the configuration file {path} is not TOML: {error}") from None
    found = {key: _to_text(path, key, value, kinds[key]) for key, value in _settings(path, document, kinds).items()}
    if is_readable_by_all and _has_secret(found) and path not in _warned:
        _warned.add(path)
        log.warning("%s holds a secret, and every user of this machine can read it: chmod 600 %s", path, path)
    return found


def check_unnamed(path: Path, found: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Refuse settings that are allowed only in a file which PULSE_CONFIG names.

    A file that was found in the current folder may have been put there by anybody. It must not send the caller's token
    to a server of its choice, and must not have programs of its choice executed.
    """
    if "server_url" in found and env.get("PULSE_TOKEN") and not env.get("PULSE_SERVER_URL"):
        raise InvalidSettings(
            f"{path} names a server, and PULSE_TOKEN would be sent to it: set PULSE_CONFIG={path} if you trust this "
            "file, or set PULSE_SERVER_URL"
        )
    if found.get("postgres", "auto") not in POSTGRES_SOURCES:
        raise InvalidSettings(
            f"{path} names a folder of Postgres programs to execute: set PULSE_CONFIG={path} if you trust this file, "
            "or set PULSE_POSTGRES"
        )


def _settings(path: Path, document: dict[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings at the top and in the table. An unknown setting, or one that is in both, is refused."""
    table = document.pop(TABLE, {})
    if not isinstance(table, dict):
        raise InvalidSettings(f"{path}: {TABLE} is not a setting: write the settings under [{TABLE}], or at the top")
    for key in (*document, *table):
        if key not in kinds:
            raise InvalidSettings(f"{path}: {_unknown(key, kinds)}")
    if twice := sorted(document.keys() & table.keys()):
        raise InvalidSettings(f"{path}: {twice[0]} is set twice, at the top and under [{TABLE}]: remove one")
    return document | table


def _unknown(key: str, kinds: Iterable[str]) -> str:
    plain = key.lower().replace("-", "_").removeprefix("pulse_")
    return f"{key[:60]} is not a setting: {suggest_setting(plain, kinds)}"


def _to_text(path: Path, key: str, value: object, kind: str) -> str:
    if isinstance(value, list) and key in LISTS and all(_is_plain(each) for each in value):
        return ",".join(map(str, value))
    if isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return "yes" if value else "no"
    if _is_number(value) and (kind == "timedelta" or (kind == "int" and isinstance(value, int))):
        return f"{value}"
    expected = EXPECTED.get(kind, TEXT) + (", or a list of such texts" if key in LISTS else "")
    found = _describe_type(value)
    if found == "a list" and key in LISTS:
        found = "a list of other values"
    raise InvalidSettings(f"{path}: {key} must be {expected}, not {found}")


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _describe_type(value: object) -> str:
    names: dict[type, str] = {bool: "a boolean", int: "a number", float: "a number with a decimal point"}
    names |= {list: "a list", dict: "a table"}
    return names.get(type(value), "a date or a time")


def _has_secret(found: Mapping[str, str]) -> bool:
    urls = (found.get("database_url", ""), found.get("listen_url", ""))
    return bool(SECRETS & found.keys()) or any(map(_PASSWORD.search, urls))
