"""Ids: time-ordered, carrying their bucket, made by one rule in two languages."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.model.ids import Mint, bucket_of_id, bucket_of_topic, fire_id, make_id
from pulse.store.connections.pool import Connection

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parents[1] / "vectors" / "ids.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["buckets"])
async def test_python_and_sql_agree_on_the_bucket_of_a_topic(conn: Connection, vector: dict[str, Any]) -> None:
    [row] = await conn.fetch("select pulse.bucket_of_topic($1, $2)", vector["topic"], vector["buckets"])

    assert bucket_of_topic(vector["topic"], vector["buckets"]) == vector["bucket"]
    assert row[0] == vector["bucket"]


@pytest.mark.parametrize("vector", VECTORS["ids"])
async def test_python_and_sql_agree_on_an_id(conn: Connection, vector: dict[str, Any]) -> None:
    noise = UUID(vector["noise"])
    [row] = await conn.fetch(
        "select pulse.make_id(to_timestamp($1::numeric / 1000000), $2::smallint, $3), pulse.bucket_of_id($4)",
        vector["microseconds"],
        vector["bucket"],
        noise,
        UUID(vector["id"]),
    )

    assert make_id(vector["microseconds"] * 1000, vector["bucket"], noise.int & (1 << 64) - 1) == UUID(vector["id"])
    assert row[0] == UUID(vector["id"])
    assert row[1] == bucket_of_id(UUID(vector["id"])) == vector["bucket"]


@given(st.integers(0, 1 << 57), st.integers(0, 4095), st.integers(0, (1 << 64) - 1))
def test_an_id_is_a_version_7_uuid_that_carries_its_bucket(nanoseconds: int, bucket: int, noise: int) -> None:
    made = make_id(nanoseconds, bucket, noise)

    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert bucket_of_id(made) == bucket
    assert made.int >> 80 == nanoseconds // 1_000_000


@pytest.mark.parametrize("nanoseconds", [lambda: 5, lambda: -1], ids=["stands still", "steps back"])
def test_ids_grow_whatever_the_clock_does(monkeypatch: pytest.MonkeyPatch, nanoseconds: Any) -> None:
    now = [1_700_000_000_000_000_000]

    def read() -> int:
        now[0] += min(nanoseconds(), 0) * 1_000_000_000
        return now[0]

    monkeypatch.setattr(time, "time_ns", read)
    mint = Mint()

    minted = [job_id for _ in range(3) for job_id in mint.ids([0] * 2_000)]

    assert all(earlier < later for earlier, later in pairwise(minted))


def test_the_job_of_an_occurrence_has_the_same_id_whoever_makes_it_and_stands_among_its_contemporaries() -> None:
    schedule, noon = uuid4(), datetime(2026, 5, 1, 12, tzinfo=UTC)

    made = fire_id(schedule, noon, 7)

    assert made == fire_id(schedule, noon, 7)
    assert (made.version, made.variant, bucket_of_id(made)) == (8, "specified in RFC 4122", 7)
    before, after = (make_id(int(at.timestamp()) * 10**9, 4095, 0) for at in (noon, noon + timedelta(seconds=1)))
    assert before.int >> 80 <= made.int >> 80 < after.int >> 80


def test_jobs_of_many_schedules_at_one_instant_are_all_different() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)

    assert len({fire_id(UUID(int=number), noon, 0) for number in range(100_000)}) == 100_000
