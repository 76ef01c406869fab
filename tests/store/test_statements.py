"""Are the statements what the store takes them for: valid, called as declared, within one bucket, free of surprises?"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import asyncpg
import msgspec
import pytest

import pulse.store
from pulse.engine.jobs import lists
from pulse.model.jobs import Attempt, Claim, Job, JobFilter, JobHead, JobStatus, Pause
from pulse.model.tokens import Token
from pulse.store.connections.pool import connect_options
from pulse.store.duties.peeks import DutyPeek
from pulse.store.schema.migrate import load_migrations
from pulse.store.statements import Statement, UnknownFragment, UnknownParameter, load_statements, parse, read_files

if TYPE_CHECKING:
    from pulse.settings import Settings

STATEMENTS = load_statements("pulse")
by_name = pytest.mark.parametrize("statement", [pytest.param(each, id=name) for name, each in STATEMENTS.items()])


def without_comments(sql: str) -> str:
    return re.sub(r"--.*", "", sql)


# --- Postgres takes them


async def test_every_statement_prepares(settings: Settings) -> None:
    raw = await asyncpg.connect(**connect_options(settings))
    try:
        for statement in STATEMENTS.values():
            prepared = await raw.prepare(statement.sql)
            assert len(prepared.get_parameters()) == len(statement.parameters), statement.name
    finally:
        raw.terminate()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claim_jobs", Claim),
        ("submit_claimed", Claim),
        ("get_jobs", Job),
        ("get_job_heads", JobHead),
        ("list_attempts", Attempt),
        ("list_pauses", Pause),
        ("create_token", Token),
        ("list_tokens", Token),
        ("revoke_token", Token),
    ],
)
async def test_the_columns_are_the_fields_of_the_value_in_order(
    settings: Settings, name: str, row: type[msgspec.Struct]
) -> None:
    columns = [attribute.name for attribute in await _attributes(settings, name)]

    renamed = {"locked_by": "worker"} if row is Claim else {}
    assert [renamed.get(column, column) for column in columns] == [field.name for field in msgspec.structs.fields(row)]


async def test_the_peek_has_its_columns_in_order(settings: Settings) -> None:
    assert tuple(attribute.name for attribute in await _attributes(settings, "peek_duties")) == DutyPeek._fields


async def _attributes(settings: Settings, name: str) -> tuple[asyncpg.Attribute, ...]:
    raw = await asyncpg.connect(**connect_options(settings))
    try:
        prepared = await raw.prepare(STATEMENTS[name].sql)
        attributes: tuple[asyncpg.Attribute, ...] = prepared.get_attributes()
    finally:
        raw.terminate()
    return attributes


# --- each is called by one wrapper, with what it declares


class Call(NamedTuple):
    function: str
    statement: str
    parameters: frozenset[str]


def _calls() -> Iterator[Call]:
    """Every `conn.rows("name", parameter=…)` in the store."""
    for found in pkgutil.walk_packages(pulse.store.__path__, "pulse.store."):
        module = importlib.import_module(found.name)
        for function in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(function, ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Call) and ast.unparse(node.func) == "conn.rows":
                        name = node.args[0]
                        if isinstance(name, ast.Constant):
                            yield Call(function.name, str(name.value), frozenset(_given(node, function)))


def _given(call: ast.Call, function: ast.AsyncFunctionDef) -> Iterator[str]:
    """The keywords of a call; those of `**parameters` stand where that is made."""
    for keyword in call.keywords:
        if keyword.arg:
            yield keyword.arg
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if ast.unparse(target) == ast.unparse(keyword.value):
                assert isinstance(node.value, ast.Dict)
                yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))


CALLS = list(_calls())


# Statements that another one falls back on, within its wrapper.
SECOND_TRIES = {"complete_free_jobs": "complete_jobs"}


def _lists() -> dict[str, set[str]]:
    """The statements that pages are read with, and the parameters they are given."""
    topics: list[str | None] = [None, "mail"]
    statuses: list[JobStatus | None] = [None, *JobStatus]
    filters = [JobFilter(topic=topic, status=status) for topic in topics for status in statuses]
    orders = [lists.choose_order(each, 4) for each in (*filters, JobFilter(schedule_id=UUID(int=1)))]
    return {order.statement: {*order.fixed, *order.start, "filter", "scan", "limit"} for order in orders}


def test_every_statement_has_exactly_one_wrapper_of_its_own_name() -> None:
    wrapped = Counter(call.statement for call in CALLS)

    assert {call.statement: call.function for call in CALLS} == {name: name for name in wrapped} | SECOND_TRIES
    assert set(wrapped.values()) == {1}
    assert set(wrapped) | set(_lists()) == set(STATEMENTS)
    assert not set(wrapped) & set(_lists())


@pytest.mark.parametrize("call", [pytest.param(call, id=call.statement) for call in CALLS])
def test_a_wrapper_gives_what_its_statement_declares(call: Call) -> None:
    assert call.parameters == set(STATEMENTS[call.statement].parameters)


@pytest.mark.parametrize("name", sorted(_lists()))
def test_a_list_is_given_what_its_statement_declares(name: str) -> None:
    assert _lists()[name] == set(STATEMENTS[name].parameters)


# --- one bucket each

# A row that is inserted carries its bucket; everything else must be told where to look.
NAMES_NO_BUCKET = {
    "submit_jobs": "only inserts, into the bucket of each job's topic",
    "submit_job": "only inserts, into its bucket",
    "submit_claimed": "looks in its bucket, and inserts into it",
    "fire_regular": "only inserts, into the bucket of each schedule's topic",
    "fire_schedules": "only inserts, into the bucket of each schedule's topic",
    "busy_schedules": "jobs of a schedule whose topic was changed are in two buckets; the index is by schedule",
    "unbuffered_schedules": "the same",
}
_TABLE = re.compile(r"\b(?:from|join|update|using|into)\s+(?:only\s+)?\"?pulse\"?\.jobs\b")
_EQUALITY = re.compile(r"\bbucket = (?:\$\d+|\w+\.bucket|v_bucket)")


def looks_without_bucket(sql: str) -> list[str]:
    """Each mention of the table, up to the next one, must name its bucket."""
    starts = [found.start() for found in _TABLE.finditer(sql)]
    parts = [sql[start:end] for start, end in pairwise([*starts, len(sql)])]
    return [part for part in parts if not _EQUALITY.search(part)]


@by_name
def test_a_statement_on_jobs_names_its_bucket(statement: Statement) -> None:
    is_exempt = statement.name in NAMES_NO_BUCKET

    assert bool(looks_without_bucket(without_comments(statement.sql))) == is_exempt


def test_the_check_for_buckets_sees_what_it_should() -> None:
    assert looks_without_bucket("select id from pulse.jobs where id = $1")
    assert looks_without_bucket("update pulse.jobs set x = 1 from f where jobs.id = f.id and jobs.bucket > $1")
    assert looks_without_bucket(
        "with a as (select id from pulse.jobs where bucket = $1) delete from pulse.jobs using a where jobs.id = a.id"
    )
    assert looks_without_bucket('select * from "pulse".jobs as j join pulse.jobs on j.bucket = jobs.bucket') != []
    assert not looks_without_bucket("select id from pulse.jobs where bucket = $1 and id = $2")


def test_the_functions_on_jobs_name_their_bucket() -> None:
    text = "\n".join(statement for migration in load_migrations() for statement in migration.statements)
    bodies = re.findall(r"\$\$.*?\$\$", without_comments(text), re.DOTALL)
    touching = [body for body in bodies if _TABLE.search(body)]

    assert touching, "pulse.enqueue is one"
    for body in touching:
        lookups = [part for part in looks_without_bucket(body) if not part.startswith("into ")]
        assert lookups == []


# --- nothing volatile, nothing hidden

FORBIDDEN = {
    "clock_timestamp": "time is pulse.now(), which a test can freeze; Citus refuses volatile functions in UPDATE",
    r"\bnow\(\)": "the start of the transaction, which may be long past",
    "current_timestamp": "the same",
    "statement_timestamp": "only pulse.now() asks for it",
    "nextval": "volatile",
    "xmax": "not there on a distributed table",
    r"random\(": "volatile; jitter comes from a hash",
    "advisory": "no lock on which correctness depends",
    "trigger": "there are none on a distributed table",
    r"timeofday\(": "volatile",
}


def forbidden_in(sql: str) -> list[str]:
    text = re.sub(r'"?\bpulse"?\.now\(\)', "", without_comments(sql))
    return [word for word in FORBIDDEN if re.search(word, text, re.IGNORECASE)]


@by_name
def test_a_statement_uses_nothing_that_may_surprise(statement: Statement) -> None:
    assert forbidden_in(statement.sql) == []


def test_the_migrations_use_nothing_that_may_surprise_but_for_a_few_places() -> None:
    found = {
        (word, line.strip())
        for migration in load_migrations()
        for statement in migration.statements
        for line in without_comments(statement).splitlines()
        for word in forbidden_in(line)
    }

    assert found == {
        # An id is minted before the row is written, and should differ within one transaction.
        (
            "clock_timestamp",
            (
                "v_id := coalesce((options ->> 'id')::uuid, "
                "pulse.make_id(clock_timestamp(), v_bucket, gen_random_uuid()));"
            ),
        ),
        # What pulse.now() is.
        ("statement_timestamp", "as 'select statement_timestamp()';"),
        # A cause for which a schedule fires, and no trigger of the database.
        ("trigger", "cause text collate \"C\" not null check (cause in ('timetable', 'trigger', 'backfill')),"),
        # When the schema was made: nothing depends on it.
        (r"\bnow\(\)", "installed_at timestamptz not null default now()"),
    }


# --- how they are read


def test_a_parameter_that_is_not_declared_is_refused() -> None:
    with pytest.raises(UnknownParameter, match="find: topic"):
        parse("-- name: find(bucket)\nselect :bucket, :topic;", "pulse")


def test_a_parameter_that_is_not_used_is_refused() -> None:
    with pytest.raises(UnknownParameter, match="find: topic"):
        parse("-- name: find(bucket, topic)\nselect :bucket;", "pulse")


def test_a_parameter_only_in_a_comment_is_not_used() -> None:
    with pytest.raises(UnknownParameter, match="find: topic"):
        parse("-- name: find(topic)\n-- by :topic\nselect 1;", "pulse")


def test_a_statement_is_read_up_to_the_next_one() -> None:
    text = (
        "-- A file.\n\n"
        "-- name: one(b, a)\n-- Why.\nselect :a::text, :b, :a\nfrom pulse.jobs;\n\n"
        "-- name: two()\nselect 2;\n"
    )

    assert parse(text, "user") == [
        Statement("one", ("b", "a"), 'select $2::text, $1, $2\nfrom "user".jobs'),
        Statement("two", (), "select 2"),
    ]


def test_parameters_may_go_on_in_comments_below_the_name() -> None:
    text = "-- name: find(\n--     bucket,\n--     topic\n-- )\n-- Why.\nselect :bucket, :topic;"

    assert parse(text, "pulse") == [Statement("find", ("bucket", "topic"), "select $1, $2")]


def test_what_statements_share_is_written_once() -> None:
    text = (
        "-- name: find(id)\nselect {{columns}}\nfrom {{waiting}};\n\n"
        "-- fragment: waiting\n-- Why.\npulse.jobs where status = 'PENDING' and {{is_it}}\n\n"
        "-- fragment: is_it\nid = :id\n\n"
        "-- name: list()\nselect {{columns}} from pulse.jobs;\n\n"
        "-- fragment: columns\nid,\n    topic\n"
    )

    assert parse(text, "user") == [
        Statement("find", ("id",), "select id,\n    topic\nfrom \"user\".jobs where status = 'PENDING' and id = $1"),
        Statement("list", (), 'select id,\n    topic from "user".jobs'),
    ]


def test_a_parameter_that_only_a_fragment_uses_must_be_declared() -> None:
    with pytest.raises(UnknownParameter, match="find: id"):
        parse("-- name: find()\nselect {{it}};\n-- fragment: it\n:id\n", "pulse")


def test_a_fragment_that_is_not_defined_is_refused() -> None:
    with pytest.raises(UnknownFragment, match="columns"):
        parse("-- name: find()\nselect {{columns}};", "pulse")


def test_a_fragment_that_nothing_includes_is_refused() -> None:
    with pytest.raises(UnknownFragment, match="columns"):
        parse("-- fragment: columns\nid\n-- name: find()\n-- As {{columns}}.\nselect 1;", "pulse")


def test_each_schema_has_its_own_statements() -> None:
    other = load_statements("other")

    assert other.keys() == STATEMENTS.keys()
    assert all('"pulse"' not in statement.sql for statement in other.values())
    assert '"other".jobs' in other["claim_jobs"].sql


def test_no_name_is_given_twice() -> None:
    text = "\n".join(read_files(files("pulse.store")))
    fragments = re.findall(r"^-- fragment: (\w+)", text, re.MULTILINE)

    assert sorted(statement.name for statement in parse(text, "pulse")) == sorted(STATEMENTS)
    assert sorted(fragments) == sorted(set(fragments))
