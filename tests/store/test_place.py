"""Does an error name the database that was not there, and never a password?"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from pulse.store.connections.redacted_url import embedded_place, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:secret@10.0.0.5:6000/shop", " shop at 10.0.0.5:6000"),
        ("postgresql://me:secret@db/shop?sslmode=require&password=secret", " shop at db:5432"),
        ("postgresql://a:1,b/shop", " shop at a:1, b:5432"),
        ("postgresql://[::1]/shop", " shop at [::1]:5432"),
        ("postgresql://pulse@/pulse?host=/tmp/x&port=5432", " pulse at /tmp/x/.s.PGSQL.5432"),
        ("postgresql:///shop?host=a,b&port=1,2", " shop at a:1, b:2"),
        ("postgresql:///shop?host=a,b&port=6000", " shop at a:6000, b:6000"),
        ("postgresql://me:se/cret@db/shop", ""),
        ("postgresql://me:se?cret@db/shop", ""),
        ("postgresql://me:se#cret@db/shop", ""),
        ("postgresql://[broken", ""),
        (None, ""),
    ],
)
def test_a_place_is_named_without_a_password(url: str | None, place: str) -> None:
    assert place_of(url) == place


def test_the_address_of_the_embedded_postgres_is_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / ".pulse"

    url = f"postgresql://pulse@/pulse?host={quote(str(folder))}/postgres&port=5432"
    assert embedded_place(url, folder) == f"the embedded Postgres in {folder}"
    assert embedded_place("postgresql://pulse@/pulse?host=/var/run/postgresql", folder) is None
    assert embedded_place(None, folder) is None
