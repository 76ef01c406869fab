"""How does a named statement in a .sql file become one that Postgres can run?

Each begins with `-- name: claim_jobs(bucket, topic)`. Parameters are written `:topic` and become `$2`; the schema
is written `pulse.` and becomes the one in the settings. The file stays plain SQL that any editor can read.

A statement with a line `-- among: and id = any(:ids::uuid[])` is two: as it stands, and with that line and a parameter
`ids`, under its name and `_among`, for the parts of a batch that was refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)\((.*)\)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_SCHEMA = re.compile(r"\bpulse(?=\.)")
_AMONG = re.compile(r"^(\s*)-- among: ", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Statement(NamedTuple):
    name: str
    parameters: tuple[str, ...]
    sql: str


class UnknownParameter(KeyError):
    """A statement uses `:name` and does not declare it, or declares what it does not use."""


@lru_cache
def load_statements(schema: str, package: str = "pulse.store") -> dict[str, Statement]:
    """Every statement of a package, by name, for one schema."""
    return {found.name: found for text in read_files(files(package)) for found in parse(text, schema)}


def read_files(folder: Traversable) -> Iterator[str]:
    """Yield the text of every .sql file of a folder and of those below it, but not the migrations."""
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "migrations":
            yield from read_files(entry)
        elif entry.name.endswith(".sql"):
            yield entry.read_text()


def parse(text: str, schema: str) -> list[Statement]:
    heads = list(_NAME.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        statement
        for head, end in zip(heads, ends, strict=True)
        for statement in _statements(head, text[head.end() : end], schema)
    ]


def _statements(head: re.Match[str], body: str, schema: str) -> Iterator[Statement]:
    name, parameters = head[1], tuple(each.strip() for each in head[2].split(",") if each.strip())
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
