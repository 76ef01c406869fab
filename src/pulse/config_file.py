"""What does a configuration file say? Settings by their names, as TOML writes them.

    alarm_tick = "2s"
    alarm_batch = 50
    alarm_networks = ["10.1.0.0/16", "192.168.7.9"]

They may stand under `[pulse]` as well. Nothing in it is passed over: what is not a setting, or not of its kind, is
refused with the file, the key and what would be right, but never with the value, which may be a secret.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import tomllib
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidSettings
from pulse.settings import RIGHT, suggest_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

log = logging.getLogger("pulse.settings")

TABLE = "pulse"
# Those that have several values between commas.
LISTS = frozenset({"alarm_networks", "alarm_ports", "http_hosts", "http_proxies", "redact", "server_url"})
SECRETS = frozenset({"token", "alarm_token"})
PLACES_OF_POSTGRES = frozenset({"auto", "system", "wheel"})  # anything else is a folder with programs in it
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@|[?&]password=")
_warned: set[Path] = set()  # once for each file is enough

A_TEXT = "a text in quotes"


def read_config(path: Path, kinds: Mapping[str, str]) -> dict[str, str]:
    """The settings in it as texts, as the environment would have them. `kinds` are the settings there are."""
    try:
        with path.open("rb") as file:
            is_for_all = bool(os.fstat(file.fileno()).st_mode & stat.S_IROTH)
            document = tomllib.load(file)
    except OSError as error:
        raise InvalidSettings(f"the configuration file {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # also what is not UTF-8
        raise InvalidSettings(f"the configuration file {path} is not TOML: {error}") from None
    found = {key: _text(path, key, value, kinds[key]) for key, value in _settings(path, document, kinds).items()}
    if is_for_all and _has_secret(found) and path not in _warned:
        _warned.add(path)
        log.warning("%s holds a secret, and every user of this machine can read it: chmod 600 %s", path, path)
    return found


def check_unasked(path: Path, found: Mapping[str, str], env: Mapping[str, str]) -> None:
    """Refuse what a file may not say that was found in the current folder, where anybody may have put it.

    It may not send the caller's token to a server of its choice, nor have programs of its choice executed. A file that
    PULSE_CONFIG names may do both.
    """
    if "server_url" in found and env.get("PULSE_TOKEN") and not env.get("PULSE_SERVER_URL"):
        raise InvalidSettings(
            f"{path} names a server, and PULSE_TOKEN would be sent to it: set PULSE_CONFIG={path} if you trust this "
            "file, or PULSE_SERVER_URL"
        )
    if found.get("postgres", "auto") not in PLACES_OF_POSTGRES:
        raise InvalidSettings(
            f"{path} names a folder of Postgres programs to execute: set PULSE_CONFIG={path} if you trust this file, "
            "or PULSE_POSTGRES"
        )


def _settings(path: Path, document: dict[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Those at the top and those of the table, each once and none that is not known."""
    table = document.pop(TABLE, {})
    if not isinstance(table, dict):
        raise InvalidSettings(f"{path}: {TABLE} is not a setting: write the settings under [{TABLE}], or at the top")
    for key in (*document, *table):
        if key not in kinds:
            raise InvalidSettings(f"{path}: {_unknown(key, kinds)}")
    if twice := sorted(document.keys() & table.keys()):
        raise InvalidSettings(f"{path}: {twice[0]} is there twice, at the top and under [{TABLE}]: leave one out")
    return document | table


def _unknown(key: str, kinds: Iterable[str]) -> str:
    plain = key.lower().replace("-", "_").removeprefix("pulse_")
    return f"{key[:60]} is not a setting: {suggest_setting(plain, kinds)}"


def _text(path: Path, key: str, value: object, kind: str) -> str:
    if isinstance(value, list) and key in LISTS and all(_is_plain(each) for each in value):
        return ",".join(map(str, value))
    if isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return "yes" if value else "no"
    if _is_number(value) and (kind == "timedelta" or (kind == "int" and isinstance(value, int))):
        return f"{value}"
    right = RIGHT.get(kind, A_TEXT) + (", or a list of them" if key in LISTS else "")
    raise InvalidSettings(f"{path}: {key} is {_described(value)}: write {right}")


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _described(value: object) -> str:
    names: dict[type, str] = {bool: "true or false", int: "a number", float: "a number with a point"}
    names |= {list: "a list", dict: "a table"}
    return names.get(type(value), "a date or a time")


def _has_secret(found: Mapping[str, str]) -> bool:
    urls = (found.get("database_url", ""), found.get("listen_url", ""))
    return bool(SECRETS & found.keys()) or any(map(_PASSWORD.search, urls))
