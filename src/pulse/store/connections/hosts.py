"""Which hosts does a database URL name, and which of them is the next connection to try first?

A URL names hosts in its authority (`postgresql://a:5432,b/app`) or in its query (`?host=a,b&port=5432,5433`), as for
libpq.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from pulse.model.errors import InvalidDatabaseUrl

PORT = 5432
WITH_DRIVER = re.compile(r"postgres(?:ql)?(\+[a-z0-9_]{1,20})://")


class Host(NamedTuple):
    name: str  # or the folder of a socket
    port: int


_last_good: dict[tuple[Host, ...], Host] = {}  # of this process, for all its connections


def read_hosts(url: str) -> list[Host]:
    """Return the hosts in the order of the URL; none if it names none, or is wrong, which the driver will say."""
    try:
        parts = urlsplit(url)
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        authority = parts.netloc.partition("@")[2] if "@" in parts.netloc else parts.netloc
        names = authority or asked.get("host", "")
        ports = "" if authority else asked.get("port", "")
        written = [_split(name, unquoted=bool(authority)) for name in names.split(",")] if names else []
        given = (ports or os.environ.get("PGPORT") or str(PORT)).split(",")
        numbers = [int(port) for port in given * (len(written) if len(given) == 1 else 1)]
        return [
            Host(name, number if port is None or ports else int(port))
            for (name, port), number in zip(written, numbers, strict=True)
        ]
    except ValueError:
        return []


def check_url(url: str) -> None:
    """Refuse a URL that the driver would misread. The message quotes nothing of it except the name of a driver."""
    if found := WITH_DRIVER.match(url):
        raise InvalidDatabaseUrl(
            f"the database URL must begin with postgresql://; SQLAlchemy's {found[0]} names a driver: "
            f"leave {found[1]!r} out"
        )
    # The driver takes everything up to the first @ for credentials, and everything behind it for the name of a host.
    if url.partition("://")[2].partition("/")[0].partition("?")[0].count("@") > 1:
        raise InvalidDatabaseUrl(
            "the database URL must have one @ only, in front of the host: write an @ of the password as %40"
        )


def _split(host: str, *, unquoted: bool) -> tuple[str, str | None]:
    name, _, port = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    if host.startswith("/"):
        return host, None
    return (unquote(name) if unquoted else name), port.removeprefix(":") or None


def says_which(url: str) -> bool:
    """Return whether the URL or the environment says which kind of server it wants."""
    return "target_session_attrs" in parse_qs(urlsplit(url).query) or "PGTARGETSESSIONATTRS" in os.environ


def in_order(hosts: list[Host]) -> list[Host]:
    """Return the hosts as the next connection tries them: the one that last took one comes first."""
    good = _last_good.get(tuple(hosts))
    return sorted(hosts, key=lambda host: host != good)


def remember(hosts: list[Host], good: Host) -> None:
    _last_good[tuple(hosts)] = good
