"""How can a message name a database without giving away its password?"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

PORT = "5432"


def place_of(url: str | None) -> str:
    """Return ` pulse at 10.0.0.5:5432`, or the folder of a socket.

    Return nothing if a part of the URL might be a password.
    """
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return ""
    if "@" in parts.path + parts.query + parts.fragment:  # a password with a / or ? in it may have been cut in two
        return ""
    asked = parse_qs(parts.query)
    hosts = parts.netloc.rpartition("@")[2] or ",".join(asked.get("host", []))
    if not hosts:
        return ""
    names, ports = hosts.split(","), asked.get("port", [PORT])[0].split(",")
    ports = ports if len(ports) == len(names) else ports[:1] * len(names)
    places = [_with_port(unquote(host), port) for host, port in zip(names, ports, strict=True)]
    name = unquote(parts.path.strip("/")) or asked.get("dbname", [""])[0]
    return f"{f' {name}' if name else ''} at {', '.join(places)}"


def embedded_place(url: str | None, state_dir: Path) -> str | None:
    """Return `the embedded Postgres in .pulse` if the URL leads there: its address is as long as the folder's path."""
    is_embedded = str(state_dir.absolute()) in unquote(url or "")
    return f"the embedded Postgres in {state_dir}" if is_embedded else None


def _with_port(host: str, port: str) -> str:
    if host.startswith("/"):
        return f"{host}/.s.PGSQL.{port}"
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{port}"
