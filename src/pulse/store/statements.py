"""How does a named statement in a .sql file become one that Postgres can run?

A statement begins with `-- name: claim_jobs(bucket, topic)`; parameters that do not fit on one line go on in comments
below it. A parameter is written `:topic` and becomes `$2`; the schema is written `pulse.` and becomes the one in the
settings. The files are plain SQL that any editor can read, except for fragments.

A fragment is text that several statements of a package share, whatever file they are in. It is written once, below
`-- fragment: claim_columns`, and a statement or another fragment includes it as `{{claim_columns}}`.

A statement with a line `-- among: and id = any(:ids::uuid[])` becomes two: `reap_jobs` without that line, and
`reap_jobs_among` with the line and one more parameter, `ids`. The second one tries a part of a batch that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_HEAD = re.compile(r"^-- (name|fragment): (\w+)(?:\(([^)]*)\))?$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_INCLUDE = re.compile(r"\{\{(\w+)\}\}")
_SCHEMA = re.compile(r"\bpulse(?=\.)")
_AMONG = re.compile(r"^(\s*)-- among: ", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Statement(NamedTuple):
    name: str
    parameters: tuple[str, ...]
    sql: str


class UnknownParameter(KeyError):
    """A statement uses a parameter that it does not declare, or declares one that it does not use."""


class UnknownFragment(KeyError):
    """A fragment is included and not defined, or defined and not included."""


@lru_cache
def load_statements(schema: str, package: str = "pulse.store") -> dict[str, Statement]:
    """Return every statement of a package, by name, for one schema."""
    return {found.name: found for found in parse("\n".join(read_files(files(package))), schema)}


def read_files(folder: Traversable) -> Iterator[str]:
    """Yield the text of every .sql file of a folder and of those below it, but not the migrations."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "migrations":
            yield from read_files(entry)
        elif entry.name.endswith(".sql"):
            yield entry.read_text()


def parse(text: str, schema: str) -> list[Statement]:
    """Return the statements of a text, which has to define every fragment that they include."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    parts = [(head, text[head.end() : end]) for head, end in zip(heads, ends, strict=True)]
    fragments = {head[2]: _COMMENT.sub("", body).strip() for head, body in parts if head[1] == "fragment"}
    if unequal := set(_INCLUDE.findall(_COMMENT.sub("", text))) ^ fragments.keys():
        raise UnknownFragment(", ".join(sorted(unequal)))
    return [
        statement
        for head, body in parts
        if head[1] == "name"
        for statement in _statements(head, _include(body, fragments), schema)
    ]


def _include(body: str, fragments: dict[str, str]) -> str:
    return _INCLUDE.sub(lambda found: _include(fragments[found[1]], fragments), body)


def _statements(head: re.Match[str], body: str, schema: str) -> Iterator[Statement]:
    name, parameters = head[2], tuple(_WORD.findall(head[3] or ""))
    yield _statement(name, parameters, body, schema)
    if _AMONG.search(body):
        yield _statement(f"{name}_among", (*parameters, "ids"), _AMONG.sub(r"\1", body), schema)


def _statement(name: str, parameters: tuple[str, ...], body: str, schema: str) -> Statement:
    body = _COMMENT.sub("", body)
    if unequal := set(_PARAMETER.findall(body)) ^ set(parameters):
        raise UnknownParameter(f"{name}: {', '.join(sorted(unequal))}")
    sql = _PARAMETER.sub(lambda found: f"${parameters.index(found[1]) + 1}", body)
    return Statement(name, parameters, in_schema(sql.strip().rstrip(";"), schema))


def in_schema(sql: str, schema: str) -> str:
    return _SCHEMA.sub(f'"{schema}"', sql)
