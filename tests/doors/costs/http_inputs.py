"""Which inputs does HTTP have? What the OpenAPI document, the dashboard's tables and the tools of MCP say."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from pulse.doors import dashboard
from pulse.doors.dashboard.app import ACTIONS, VIEWS
from pulse.doors.dashboard.form_fields import FORM_LIMIT
from pulse.doors.mcp.tools import TOOLS, schema_of
from tests.doors.costs.texts import HEAD, SIZE, WORST_BODIES, kinds_of, texts

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


OWN_STRUCTURES = ("payload", "value", "retry")  # whatever JSON somebody likes


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
    for kind in texts() if every else WORST_BODIES:
        yield "body", kind, texts()[kind]
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
    if every or name in OWN_STRUCTURES:
        structures: tuple[str, ...] = ("lists", "strings", "objects", "numbers", "keys", "digits")
    else:
        structures = ("objects", "keys") if schema.get("type") in ("array", "object", None) else ("keys",)
    for kind in structures:
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

FOLDER = Path(dashboard.__file__).parent
DRAWN = re.compile(r'name="(\w+)"')
READ = re.compile(r'(?:form|query)(?:\.get\(|\[|, )"(\w+)"')
SESSIONS = ("/sign-in", "/sign-out")
FOR_ALL = "/schedules/new"  # where fields are tried that no module names in whole
WHOLE_FORMS = (FOR_ALL, "/alarms/new")


@cache
def form_fields() -> list[str]:
    """Of all forms of all pages, and whatever else is read from a form or a query."""
    drawn = {name for file in FOLDER.glob("**/*.html") for name in DRAWN.findall(file.read_text())}
    return sorted(drawn | {name for file in FOLDER.glob("**/*.py") for name in READ.findall(file.read_text())})


def fields_by_view(*, every: bool) -> dict[str, list[str]]:
    """Which fields are tried on which page: those that its module names."""
    return {view.path: form_fields() if every else names_in(source_of_module(view.facts)) for view in VIEWS}


def fields_by_action(*, every: bool) -> dict[str, list[str]]:
    """Which fields are tried on which action: those that it and its helpers name, and one at least.

    What only its module names is tried on the first action of the module, and what none does on one for all.
    """
    if every:
        return dict.fromkeys([*(action.path for action in ACTIONS), *SESSIONS], form_fields())
    found = {path: ["csrf", "next", "secret"] for path in SESSIONS}
    modules = set()
    for action in ACTIONS:
        module = source_of_module(action.do)
        found[action.path] = names_in(source_of(action.do) if module in modules else module) or ["reason"]
        modules.add(module)
    found[FOR_ALL] += sorted(set(form_fields()).difference(*found.values()))
    return found


def names_in(source: str) -> list[str]:
    return [name for name in form_fields() if f'"{name}"' in source]


def source_of_module(code: Callable[..., Any]) -> str:
    return inspect.getsource(sys.modules[code.__module__])


def source_of(code: Any, seen: frozenset[str] = frozenset()) -> str:
    """With that of the functions of its module that it calls."""
    called = [code.__globals__.get(name) for name in code.__code__.co_names if name not in seen]
    own = [each for each in called if inspect.isfunction(each) and each.__module__ == code.__module__]
    seen |= {code.__name__, *(each.__name__ for each in own)}
    return inspect.getsource(code) + "".join(source_of(each, seen) for each in own)


def page_requests(word: str, *, every: bool) -> Iterator[Request]:
    base = {name: value for name, value in BASE.items() if name in form_fields() and name not in ("start", "end")}
    for path, fields in fields_by_view(every=every).items():
        yield from _query_requests(path, fields, base, every=every)
    for path, fields in fields_by_action(every=every).items():
        yield from _form_requests(path, fields, base, word, every=every)


def _query_requests(path: str, fields: list[str], base: dict[str, str], *, every: bool) -> Iterator[Request]:
    there = re.sub(r"\{\w+\}", BASE["id"], path)
    for name in fields:
        for kind, text in list(_heads(name, every=every))[: None if every else 1]:
            query = "&".join(f"{each}={_quoted(value)}" for each, value in (base | {name: text}).items())
            yield Request("dashboard", f"GET {path} ?{name}", kind, request("GET", f"{there}?{query[:HEAD]}"))
    yield Request("dashboard", f"GET {path} ?", "many", request("GET", there + "?" + "a&" * (HEAD // 2)))


def _form_requests(path: str, fields: list[str], base: dict[str, str], word: str, *, every: bool) -> Iterator[Request]:
    """All forms have one reader: the usual kinds are tried on whole forms, and the last of them on the others."""
    there, shown = re.sub(r"\{\w+\}", BASE["id"], path), ("x-pulse-csrf", word)
    is_whole = every or path in WHOLE_FORMS
    for name in fields:
        kinds = kinds_of(name, every=every)
        for kind in kinds if is_whole else kinds[-1:]:
            given = {each: quote_plus(value) for each, value in base.items()} | {name: encoded(kind)}
            body = "&".join(f"{each}={value}" for each, value in given.items()).encode()
            assert len(body) <= FORM_LIMIT  # or it would be refused unread
            yield Request("dashboard", f"POST {path} {name}", kind, request("POST", there, body, FORM, shown))
    for kind, text in {"many": "a=b&", "empty": "&", "percents": "%", "equals": "=", "large": "a=%2C"}.items():
        size = FORM_LIMIT + len(text) if kind == "large" else FORM_LIMIT
        if is_whole or (path, kind) == ("/sign-in", "large"):
            body = (text * (size // len(text))).encode()
            yield Request("dashboard", f"POST {path}", kind, request("POST", there, body, FORM, shown))


@cache
def encoded(kind: str) -> str:
    """As much of a kind as a form takes beside its other fields."""
    room = FORM_LIMIT - 2_000
    whole = quote_plus(texts(room)[kind])
    return whole if len(whole) <= room else quote_plus(texts(room // 3)[kind])


# --- MCP


def mcp_requests(*, every: bool) -> Iterator[Request]:
    accept = ("accept", "application/json, text/event-stream")
    for tool in TOOLS:
        schema = schema_of(tool.input_type)
        for what, kind, arguments in bodies(schema, schema, every=every):
            call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"' + tool.name + '","arguments":'
            body = (call + arguments + "}}").encode(errors="surrogatepass")
            yield Request("mcp", f"{tool.name} {what}", kind, request("POST", "/mcp", body, JSON, accept))
    for kind, text in texts().items():
        yield Request("mcp", "body", kind, request("POST", "/mcp", text.encode(), JSON, accept))
