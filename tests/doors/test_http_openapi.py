"""Is the OpenAPI document true? A machine reads it and tries everything it allows, and much that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulse.doors.http.access import RULES
from pulse.engine.tokens import Tokens
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.doors.http_client import ANYWHERE, served_http
from tests.doors.worker_processes import started

EXAMPLES = int(os.environ.get("PULSE_EXAMPLES", "6"))  # of each operation
# What the schema cannot say (either delay or run_at, a cron line that can be read) is refused all the same; and
# /v1/schedules/preview is also the place of a schedule of that name, so it has more methods than its own.
LEFT_OUT = "positive_data_acceptance,unsupported_method,allow_header_conformance"


@pytest.fixture
async def document(settings: Settings) -> AsyncIterator[dict[str, Any]]:
    async with served_http(settings) as http:
        yield await http.done("GET", "/v1/openapi.json")


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_it_has_every_route_and_says_what_each_may_answer(document: dict[str, Any]) -> None:
    found = dict(operations(document))

    assert set(found) == set(RULES) - {"GET /v1/openapi.json"}
    for rule, operation in found.items():
        statuses = set(operation["responses"])
        assert {"400", "403", "500", "503"} < statuses, rule
        assert ({"401", "429"} < statuses) == (RULES[rule] is not None) == ("security" in operation), rule
        assert ({"408", "413", "415"} < statuses) == ("requestBody" in operation), rule
        assert ("404" in statuses) == ("{id}" in rule or "{name}" in rule), rule
        assert "422" not in statuses, rule
        assert operation["summary"], rule
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_every_refusal_has_the_one_shape(document: dict[str, Any]) -> None:
    for rule, operation in operations(document):
        for status, answer in operation["responses"].items():
            [(kind, content)] = answer["content"].items()
            assert kind == ("text/plain" if (rule, status) == ("GET /metrics", "200") else "application/json")
            schema = content["schema"]
            assert (schema == {"$ref": "#/components/schemas/Error"}) == (int(status) >= 400), (rule, status)


@pytest.mark.slow
@pytest.mark.long
async def test_nothing_that_is_tried_finds_a_mistake(settings: Settings, database: Database, tmp_path: Path) -> None:
    """No status that is not written down, no answer of another shape, nothing accepted that should not be, no 500."""
    _, secret = await Tokens(database).create("machine", ["admin"])
    env = {"PULSE_DATABASE_URL": str(settings.database_url)}
    with started(tmp_path, "server", "--listen", ANYWHERE, "--http-listen", ANYWHERE, **env) as server:
        url = server.expect(r"http +(http://\S+)").group(1)
        tried = try_everything(f"{url}/v1/openapi.json", secret, tmp_path)

    assert tried.returncode == 0, tried.stdout[-8_000:] + tried.stderr[-2_000:]
    assert f"Tested: {len(RULES) - 1}" in tried.stdout
    assert "Traceback" not in server.expect_end()


def try_everything(url: str, secret: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", url, "--no-color"),
        *("--header", f"Authorization: Bearer {secret}"),
        *("--seed", "7", "--max-examples", str(EXAMPLES), "--generation-database", "none", "--no-shrink"),
        *("--phases", "examples,coverage,fuzzing", "--exclude-checks", LEFT_OUT, "--warnings", "off"),
        *("--continue-on-failure", "--suppress-health-check", "all", "--request-timeout", "30"),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
