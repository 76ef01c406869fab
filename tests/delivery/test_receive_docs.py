"""Do the examples for receivers do what the page says?"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pulse.delivery.signing import new_secret, sign

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "receive-wakes.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BODY = b'{"alarm_id":"a","occurrence":"2026-11-16T09:00:00Z","label":"tea","owner":"shop",'
BODY += b'"payload":{"cups":1},"attempt":1}'


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    # No inherited annotations-as-text: FastAPI reads them.
    exec(compile(code, "receive-wakes.md", "exec", dont_inherit=True), names)
    return names


def headers(secret: str) -> dict[str, str]:
    now = int(time.time())
    signature = sign([secret], id="wake_1", timestamp=now, body=BODY)
    return {"webhook-id": "wake_1", "webhook-timestamp": str(now), "webhook-signature": signature}


def test_the_fastapi_example_verifies_and_deduplicates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = new_secret()
    monkeypatch.setenv("WAKE_SECRET", secret)
    client = TestClient(run(EXAMPLES[0])["app"])

    statuses = [
        client.post("/wake", content=BODY, headers=headers(key)).status_code for key in (secret, secret, new_secret())
    ]

    assert statuses == [200, 200, 401]
    assert capsys.readouterr().out.count("tea") == 1


def test_the_example_of_two_secrets_takes_either() -> None:
    read, new, old = run(EXAMPLES[1])["read"], new_secret(), new_secret()

    assert [read(BODY, headers(key), new, old) for key in (new, old)] == [{"cups": 1}] * 2
