"""Does a log line say which job it belongs to, whoever writes it and however it is written?"""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import datetime

import pytest
from msgspec import structs
from opentelemetry import trace

from pulse.sdk.context import Context, current, placeholder_context
from pulse.sdk.logs import JsonFormatter, LogSettings, TextFormatter, configure_logging, install_job_fields
from tests.tracing import collecting

log = logging.getLogger("shop.tasks")

WHEN = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    install_job_fields()
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def job() -> Iterator[Context]:
    """The job that the test runs in."""
    context = placeholder_context("shop.charge")
    token = current.set(context)
    yield context
    current.reset(token)


def written(formatter: logging.Formatter, write: Callable[[], object]) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log.addHandler(handler)
    try:
        write()
    finally:
        log.removeHandler(handler)
    return stream.getvalue()


def fail(message: str) -> None:
    try:
        int("x")
    except ValueError:
        log.exception(message)


def test_text_has_the_job_behind_the_message(job: Context) -> None:
    line = written(TextFormatter(), lambda: log.warning("charged %s", "card"))

    expected = rf"{WHEN} WARNING shop\.tasks  charged card  job={job.job_id} task=shop\.charge attempt=1\n"
    assert re.fullmatch(expected, line)


def test_text_has_the_date_and_the_zone_whatever_zone_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Chicago")
    time.tzset()
    try:
        line = written(TextFormatter(), lambda: log.warning("charged"))
    finally:
        monkeypatch.undo()
        time.tzset()

    assert re.match(rf"{WHEN} ", line)
    assert re.match(r"\S+-0[56]:00 ", line)
    assert abs(datetime.fromisoformat(line.split()[0]).timestamp() - time.time()) < 60


def test_text_names_its_job_once(job: Context) -> None:
    text = written(TextFormatter(), lambda: log.warning("job %s is late", job.job_id))

    assert text.endswith(f" shop.tasks  job {job.job_id} is late  task=shop.charge\n")
    named = written(TextFormatter(), lambda: log.warning("shop.charge is late  job=%s", job.job_id))
    assert named.endswith(f" shop.tasks  shop.charge is late  job={job.job_id}\n")


def test_only_our_own_colours_reach_the_terminal(job: Context) -> None:
    line = written(TextFormatter(has_colour=True), lambda: log.warning("\x1b[31mred"))

    assert "\x1b[33mWARNING\x1b[0m" in line
    assert r" \x1b[31mred " in line
    assert re.sub("\x1b\\[[0-9;]*m", "", line).endswith(
        rf" WARNING shop.tasks  \x1b[31mred  job={job.job_id} task=shop.charge attempt=1" + "\n"
    )


def test_outside_a_job_text_has_no_fields() -> None:
    assert written(TextFormatter(), lambda: log.error("x")).endswith(" ERROR shop.tasks  x\n")


def test_json_is_one_object_per_line(job: Context) -> None:
    line = written(JsonFormatter(), lambda: fail("it failed\n\x1b[31m"))

    document = json.loads(line)
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert list(document) == ["ts", "level", "logger", "message", "job_id", "task", "topic", "attempt", "exc"]
    assert document["job_id"] == str(job.job_id)
    assert (document["task"], document["attempt"]) == ("shop.charge", 1)
    assert document["exc"].endswith("ValueError: invalid literal for int() with base 10: 'x'")


def test_a_line_has_the_trace_the_job_runs_in_or_else_the_one_it_was_enqueued_in(job: Context) -> None:
    job._claim = structs.replace(job._claim, trace='{"traceparent": "00-' + "a" * 32 + "-" + "b" * 16 + '-01"}')

    def trace_id() -> str:
        return str(json.loads(written(JsonFormatter(), lambda: log.error("x")))["trace_id"])

    assert trace_id() == "a" * 32
    with collecting(), trace.get_tracer("shop").start_as_current_span("smtp") as span:
        assert trace_id() == f"{span.get_span_context().trace_id:032x}"


@pytest.mark.parametrize("hostile", ["a\nb", "a\r\nb", "a\u2028b\u2029c\x85d", "\x1b]0;x\x07", "\x00", "\u202e"])
def test_nothing_ends_a_json_line_but_its_end(job: Context, hostile: str) -> None:
    job._claim = structs.replace(job._claim, task=hostile, topic=hostile)

    line = written(JsonFormatter(), lambda: fail(hostile))

    assert line.isascii()
    assert line.rstrip("\n").isprintable()
    assert [json.loads(line)[field] for field in ("message", "task", "topic")] == [hostile] * 3


def test_json_leaves_out_what_is_empty() -> None:
    assert list(json.loads(written(JsonFormatter(), lambda: log.error("")))) == ["ts", "level", "logger", "message"]


def test_nothing_in_a_text_line_controls_the_terminal() -> None:
    assert r"\x1b[31m \x9b red" in written(TextFormatter(), lambda: log.error("\x1b[31m \x9b red"))


def test_a_traceback_follows_its_line() -> None:
    first, *rest = written(TextFormatter(), lambda: fail("it failed")).splitlines()

    assert first.endswith("it failed")
    assert rest[-1].startswith("ValueError: ")


@pytest.mark.parametrize(("style", "text"), [("%", "%(job_id)s %(task)s"), ("{", "{job_id} {task}")])
def test_formats_of_ones_own_have_the_fields(job: Context, style: str, text: str) -> None:
    formatter = logging.Formatter(text, style=style)  # type: ignore[arg-type]

    assert written(formatter, lambda: log.error("x")) == f"{job.job_id} shop.charge\n"


def test_the_fields_are_there_before_anything_is_formatted(job: Context) -> None:
    record = log.makeRecord("shop", logging.INFO, "file", 1, "message", (), None)

    assert (record.job_id, record.task, record.topic, record.attempt) == (  # type: ignore[attr-defined]
        str(job.job_id),
        "shop.charge",
        "shop.charge",
        1,
    )
    assert not hasattr(record, "something_else")


def test_an_extra_of_that_name_is_the_authors(job: Context) -> None:
    line = written(JsonFormatter(), lambda: log.error("x", extra={"task": "laundry"}))

    assert json.loads(line)["task"] == "laundry"
    assert json.loads(line)["job_id"] == str(job.job_id)


def test_a_record_is_of_the_job_it_was_logged_in_wherever_it_is_formatted(job: Context) -> None:
    record = log.makeRecord("shop", logging.INFO, "file", 1, "message", (), None)
    outside = copy_context()
    outside.run(current.set, None)

    for each in (record, copy.copy(record), pickle.loads(pickle.dumps(record))):
        assert outside.run(logging.Formatter("%(job_id)s").format, each) == str(job.job_id)


def test_threads_know_their_own_job_only(job: Context) -> None:
    def in_thread() -> None:
        log.error("outside")
        current.set(placeholder_context("shop.other"))
        log.error("inside")

    def write() -> None:
        thread = threading.Thread(target=in_thread)
        thread.start()
        thread.join()

    assert written(logging.Formatter("%(task)s %(message)s"), write) == " outside\nshop.other inside\n"


def test_somebody_elses_records_get_the_fields_too(job: Context) -> None:
    class Theirs(logging.LogRecord):
        pass

    logging.setLogRecordFactory(Theirs)
    install_job_fields()
    install_job_fields()

    record = log.makeRecord("shop", logging.INFO, "file", 1, "message", (), None)

    assert isinstance(record, Theirs)
    assert written(logging.Formatter("%(task)s"), lambda: log.error("x")) == "shop.charge\n"


def test_what_is_logged_for_debugging_is_not_drowned_by_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    root, grpc = logging.getLogger(), logging.getLogger("grpc")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(grpc, "level", grpc.level)

    configure_logging(LogSettings("text", logging.DEBUG))
    assert log.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("grpc._cython.cygrpc").isEnabledFor(logging.DEBUG)

    configure_logging(LogSettings("text", logging.ERROR))
    assert not grpc.isEnabledFor(logging.WARNING)
