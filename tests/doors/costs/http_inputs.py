"""Which inputs does HTTP have? What the OpenAPI document, the dashboard's tables and the tools of MCP say."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from pulse.doors import dashboard
from pulse.doors.dashboard.app import ACTIONS, VIEWS
from pulse.doors.mcp_tools import TOOLS, schema_of
from tests.doors.costs.texts import HEAD, SIZE, kinds_of, texts

BASE: dict[str, Any] = {
    "task": "t",
    "name": "n",
    "cron": "* * * * *",
    "cron_expr": "* * * * *",
    "url": "http://127.0.0.1:9/",
    "start": "2026-01-01T00:00:00Z",
    "end": "2026-01-02T00:00:00Z",
    "alarm": "n",
    "id": "00000000-0000-0000-0000-000000000005",
}
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# Headers that somebody here reads, or might: those of the doors' own sources, and those that everybody sends.
HEADERS: tuple[str, ...] = (
    "cookie",
    "authorization",
    "host",
    "origin",
    "referer",
    "accept",
    "content-type",
    "content-length",
)
HEADERS += ("x-forwarded-for", "x-forwarded-proto", "idempotency-key", "x-pulse-csrf", "sec-fetch-site", "hx-request")


class Request(NamedTuple):
    door: str
    what: str  # which input
    kind: str
    raw: bytes


def request(method: str, path: str, body: bytes = b"", kind: str = JSON, *headers: tuple[str, str]) -> bytes:
    usual = {"host": "127.0.0.1", "content-type": kind, "content-length": str(len(body)), "connection": "close"}
    given = dict(headers)
    lines = [*((name, given.pop(name, value)) for name, value in usual.items()), *given.items()]
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
    return head.encode("latin-1", errors="replace") + body


async def send(port: int, raw: bytes) -> bytes:
    """What it answers until it closes. It may refuse before it has read everything."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        found = await reader.read()
    except ConnectionError:
        found = b""
    finally:
        writer.close()
    return found


def sender(port: int, raw: bytes) -> Callable[[], Awaitable[bytes]]:
    return lambda: send(port, raw)


# --- the API


def api_requests(document: dict[str, Any], *, every: bool) -> Iterator[Request]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(document, method.upper(), path, operation, every=every)


def _operation(document: Any, method: str, path: str, operation: Any, *, every: bool) -> Iterator[Request]:
    rule = f"{method} {path}"
    there = re.sub(r"\{\w+\}", BASE["id"], path)
    for parameter in operation.get("parameters", ()):
        yield from _parameter(method, path, parameter, every=every)
    yield Request("http", f"{rule} ?", "many", request(method, there + "?" + "a&" * (HEAD // 2)))
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"][JSON]["schema"]
        for what, kind, body in bodies(document, schema, every=every):
            yield Request("http", f"{rule} {what}", kind, request(method, there, body.encode(errors="surrogatepass")))


def _parameter(method: str, path: str, parameter: Any, *, every: bool) -> Iterator[Request]:
    name, place = parameter["name"], parameter["in"]
    rule = f"{method} {path} {place} {name}"
    there = re.sub(r"\{\w+\}", BASE["id"], path)
    for kind, text in _heads(name, every=every):
        if place == "query":
            raw = request(method, f"{there}?{name}={_quoted(text)}")
        elif place == "path":
            raw = request(method, path.replace(f"{{{name}}}", _quoted(text)))
        else:
            raw = request(method, there, b"", JSON, (name, text))
        yield Request("http", rule, kind, raw)
    if place == "query":
        yield Request("http", rule, "many", request(method, there + "?" + f"{name}=1&" * (HEAD // 20)))


def _heads(name: str, *, every: bool) -> Iterator[tuple[str, str]]:
    known = texts(HEAD // 3)  # which may be percent-encoded
    for kind in kinds_of(name, every=every):
        yield kind, "".join(each for each in known[kind] if each.isprintable())


def _quoted(text: str) -> str:
    return quote_plus(text)[:HEAD]


def bodies(document: Any, schema: Any, *, every: bool) -> Iterator[tuple[str, str, str]]:
    """Every body that is wrong as a whole, and every property of it with each kind."""
    for kind, text in texts().items():
        yield "body", kind, text
    yield "body", "lone surrogates", '{"task": "' + "\\ud800" * (SIZE // 6) + '"}'
    for path, found in properties(document, schema, ()):
        for kind, value in _values(found, path[-1], every=every):
            yield ".".join(path), kind, _around(document, schema, path, value)


def resolve(document: Any, schema: Any) -> Any:
    """What a schema is, behind references and alternatives; the first that is not null."""
    if "$ref" in schema:
        found = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return resolve(document, found)
    if "anyOf" in schema:
        return resolve(document, next(each for each in schema["anyOf"] if each.get("type") != "null"))
    return schema


def properties(document: Any, schema: Any, before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    found = resolve(document, schema)
    for name, part in found.get("properties", {}).items():
        inner = resolve(document, part)
        yield (*before, name), inner
        item = inner.get("items", inner)
        yield from properties(document, item, (*before, name))


def _values(schema: Any, name: str, *, every: bool) -> Iterator[tuple[str, str]]:
    """JSON of a mebibyte, whatever the type: each is sent to all, since senders do not read schemas."""
    known = texts()
    for kind in kinds_of(name, every=every):
        yield f"text of {kind}", json.dumps(known[kind][: SIZE // 2])
    is_structure = schema.get("type") in ("array", "object", None)
    for kind in ("lists", "strings", "objects", "numbers", "keys", "digits") if is_structure or every else ("keys",):
        yield kind, known[kind]
    if schema.get("type") == "array":
        yield "many wrong", "[" + "5," * (SIZE // 2) + "5]"
        yield "many empty", "[" + "{}," * (SIZE // 3) + "{}]"
        yield "many right", "[" + ('{"task":"t"},' if name == "jobs" else '"a",') * (SIZE // 13) + "5]"


def _around(document: Any, schema: Any, path: tuple[str, ...], value: str) -> str:
    found = resolve(document, schema)
    is_list = found.get("type") == "array"
    found = resolve(document, found["items"]) if is_list else found
    name, *rest = path
    properties_ = found.get("properties", {})
    inner = _around(document, properties_[name], tuple(rest), value) if rest else value
    given = {each: json.dumps(BASE[each]) for each in properties_ if each in BASE and each != name}
    given.pop("cron" if "fire_at" in (name, *given) else "", None)
    text = "{" + ",".join(f'"{each}":{text}' for each, text in (given | {name: inner}).items()) + "}"
    return f"[{text}]" if is_list else text


# --- what every request has


def head_requests(paths: tuple[str, ...]) -> Iterator[Request]:
    for path in paths:
        for name in HEADERS:
            for kind, text in _heads(name, every=False):
                yield Request("head", f"{path} {name}:", kind, request("GET", path, b"", JSON, (name, text)))
        for kind, value in {
            "quoted": 'pulse_session="' + "\\1" * (HEAD // 2) + '"',
            "backslashes": 'pulse_said="' + "\\\\" * (HEAD // 2) + '"',
            "many": "a=b; " * (HEAD // 5),
            "empty": ";" * HEAD,
            "equals": "=" * HEAD,
        }.items():
            yield Request("head", f"{path} cookie:", kind, request("GET", path, b"", JSON, ("cookie", value)))
        many = tuple((f"a{number:x}", "") for number in range(HEAD // 10))
        yield Request("head", f"{path} headers", "many", request("GET", path, b"", JSON, *many))
        for kind, value in {"letters": "a" * SIZE, "lines": "a:b\r\n" * (SIZE // 5), "zeros": "\0" * SIZE}.items():
            yield Request("head", f"{path} head", kind, f"GET {path} HTTP/1.1\r\n{value}".encode())


# --- the dashboard

FIELDS = re.compile(r'name="(\w+)"')


def form_fields() -> list[str]:
    """Of all forms of all pages."""
    folder = Path(dashboard.__file__).parent / "templates"
    return sorted({name for file in folder.glob("**/*.html") for name in FIELDS.findall(file.read_text())})


def page_requests(word: str, *, every: bool) -> Iterator[Request]:
    fields = form_fields()
    base = {name: value for name, value in BASE.items() if name in fields and name not in ("start", "end")}
    for view in VIEWS:
        there = re.sub(r"\{\w+\}", BASE["id"], view.path)
        for name in fields:
            for kind, text in _heads(name, every=every):
                query = "&".join(f"{each}={_quoted(value)}" for each, value in (base | {name: text}).items())
                yield Request("dashboard", f"GET {view.path} ?{name}", kind, request("GET", f"{there}?{query[:HEAD]}"))
                if not every:
                    break
        yield Request("dashboard", f"GET {view.path} ?", "many", request("GET", there + "?" + "a&" * (HEAD // 2)))
    for path in [*(action.path for action in ACTIONS), "/sign-in", "/sign-out"]:
        yield from _form_requests(path, fields, base, word, every=every)


def _form_requests(path: str, fields: list[str], base: dict[str, str], word: str, *, every: bool) -> Iterator[Request]:
    there, shown = re.sub(r"\{\w+\}", BASE["id"], path), ("x-pulse-csrf", word)
    known = texts(SIZE // 3)
    for name in fields:
        kinds = kinds_of(name, every=every)
        for kind in kinds if name in ("payload", "headers", "cron", "tags") or every else kinds[:1]:
            given = base | {name: known[kind]}
            body = "&".join(f"{each}={quote_plus(value)}" for each, value in given.items()).encode()
            yield Request("dashboard", f"POST {path} {name}", kind, request("POST", there, body, FORM, shown))
    for kind, text in {"many": "a=b&", "empty": "&", "percents": "%", "equals": "="}.items():
        body = (text * (SIZE // len(text))).encode()
        yield Request("dashboard", f"POST {path}", kind, request("POST", there, body, FORM, shown))


# --- MCP


def mcp_requests(*, every: bool) -> Iterator[Request]:
    accept = ("accept", "application/json, text/event-stream")
    for tool in TOOLS:
        schema = schema_of(tool.takes)
        for what, kind, arguments in bodies(schema, schema, every=every):
            call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"' + tool.name + '","arguments":'
            body = (call + arguments + "}}").encode(errors="surrogatepass")
            yield Request("mcp", f"{tool.name} {what}", kind, request("POST", "/mcp", body, JSON, accept))
    for kind, text in texts().items():
        yield Request("mcp", "body", kind, request("POST", "/mcp", text.encode(), JSON, accept))
