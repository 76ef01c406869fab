"""Does what we sign verify, here and by the published vector, and does nothing else?"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.delivery.signing import check_secret, new_secret, sign
from pulse.model.errors import InvalidInput, InvalidOption, InvalidSignature
from pulse.webhooks import Wake, verify, verify_signature

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # published by Standard Webhooks, with what it signs
ID, TIMESTAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
HEADERS = {"webhook-id": ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNATURE}
NOW = datetime.fromtimestamp(TIMESTAMP, UTC)
OTHER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SAID = {
    "alarm_id": "0190b6a0-0000-7000-8000-000000000001",
    "occurrence": "2021-02-25T15:00:00Z",
    "label": "tea",
    "owner": "agent-7",
    "payload": {"cups": [1, None]},
    "attempt": 2,
}


def signed(said: Any, secret: str = SECRET, **changed: str) -> tuple[bytes, dict[str, str]]:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    signature = sign([secret], id=ID, timestamp=TIMESTAMP, body=body)
    return body, HEADERS | {"webhook-signature": signature} | changed


def test_the_published_vector() -> None:
    assert sign([SECRET], id=ID, timestamp=TIMESTAMP, body=BODY) == SIGNATURE
    assert verify_signature(BODY, HEADERS, SECRET, now=NOW) == ID
    assert verify_signature(BODY.decode(), HEADERS, [SECRET], now=NOW) == ID


def test_a_wake_is_read() -> None:
    body, headers = signed(SAID)

    assert verify(body, headers, SECRET, now=NOW) == Wake(
        id=ID,
        timestamp=NOW,
        alarm_id=SAID["alarm_id"],  # type: ignore[arg-type]
        occurrence=datetime(2021, 2, 25, 15, tzinfo=UTC),
        label="tea",
        owner="agent-7",
        payload={"cups": [1, None]},
        attempt=2,
    )


@pytest.mark.parametrize("payload", [None, 1, "x", [1], {"a": {}}, True, "é\u2028"])
def test_a_payload_may_be_any_json(payload: Any) -> None:
    body, headers = signed(SAID | {"payload": payload})

    assert verify(body, headers, SECRET, now=NOW).payload == payload


def test_headers_come_in_any_case() -> None:
    assert verify_signature(BODY, {name.title(): value for name, value in HEADERS.items()}, SECRET, now=NOW)
    assert verify_signature(BODY, {name.upper(): value for name, value in HEADERS.items()}, SECRET, now=NOW)


def test_while_a_secret_is_replaced_both_verify() -> None:
    both = HEADERS | {"webhook-signature": sign([OTHER, SECRET], id=ID, timestamp=TIMESTAMP, body=BODY)}

    assert both["webhook-signature"].count("v1,") == 2
    assert verify_signature(BODY, both, SECRET, now=NOW)
    assert verify_signature(BODY, both, OTHER, now=NOW)
    assert verify_signature(BODY, HEADERS, [OTHER, SECRET], now=NOW)


def test_versions_we_do_not_know_are_passed_over() -> None:
    several = HEADERS | {"webhook-signature": f"v1a,xyz v2,abc  {SIGNATURE} nonsense"}

    assert verify_signature(BODY, several, SECRET, now=NOW)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"webhook-id": ""}, "webhook-id is missing"),
        ({"webhook-timestamp": ""}, "webhook-timestamp is missing"),
        ({"webhook-signature": ""}, "webhook-signature is missing"),
        ({"webhook-timestamp": "soon"}, "must be a number of seconds"),
        ({"webhook-timestamp": "-1"}, "must be a number of seconds"),
        ({"webhook-timestamp": "9" * 5000}, "must be a number of seconds"),
        ({"webhook-timestamp": "١٦١٤٢٦٥٣٣٠"}, "must be a number of seconds"),
        ({"webhook-timestamp": str(TIMESTAMP + 1)}, "none of the signatures"),
        ({"webhook-id": ID + "x"}, "none of the signatures"),
        ({"webhook-signature": SIGNATURE[:-2] + "A="}, "none of the signatures"),
        ({"webhook-signature": SIGNATURE.removeprefix("v1,")}, "none of the signatures"),
        ({"webhook-signature": SIGNATURE.replace("v1,", "v1a,")}, "none of the signatures"),
        ({"webhook-signature": "v1,"}, "none of the signatures"),
        ({"webhook-signature": "é"}, "none of the signatures"),
        ({"webhook-signature": "x " * 1000 + SIGNATURE}, "none of the signatures"),
    ],
)
def test_what_does_not_verify_is_refused(changed: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSignature) as refused:
        verify_signature(BODY, HEADERS | changed, SECRET, now=NOW)

    assert words in str(refused.value)
    assert isinstance(refused.value, InvalidInput)


@pytest.mark.parametrize(
    ("body", "secrets"), [(BODY + b" ", SECRET), (b"", SECRET), (BODY, OTHER), (BODY, []), (BODY, "")]
)
def test_another_body_or_secret_is_refused(body: bytes, secrets: str | list[str]) -> None:
    with pytest.raises(InvalidSignature):
        verify_signature(body, HEADERS, secrets, now=NOW)


@pytest.mark.parametrize("away", [timedelta(minutes=5, seconds=1), -timedelta(minutes=5, seconds=1)])
def test_what_is_too_old_or_too_new_is_refused(away: timedelta) -> None:
    with pytest.raises(InvalidSignature, match=r"too (old|new): it is more than 300 s"):
        verify_signature(BODY, HEADERS, SECRET, now=NOW + away)


def test_the_tolerance_is_the_receivers_to_choose() -> None:
    later = (NOW + timedelta(minutes=5)).astimezone(timezone(timedelta(hours=9)))

    assert verify_signature(BODY, HEADERS, SECRET, now=later)
    assert verify_signature(BODY, HEADERS, SECRET, now=later, tolerance=300.0)
    with pytest.raises(InvalidSignature):
        verify_signature(BODY, HEADERS, SECRET, now=later, tolerance=timedelta(seconds=299))
    with pytest.raises(InvalidSignature):
        verify_signature(BODY, HEADERS, SECRET)  # it is no longer 2021


@pytest.mark.parametrize(
    "said",
    [
        b"not json",
        b"\xff",
        b"[" * 100_000,
        [],
        {},
        None,
        SAID | {"occurrence": "soon"},
        SAID | {"occurrence": 5},
        SAID | {"attempt": None},
    ],
    ids=range(9),
)
def test_what_is_signed_but_no_wake_is_refused(said: Any) -> None:
    body, headers = signed(said)

    assert verify_signature(body, headers, SECRET, now=NOW)
    with pytest.raises(InvalidSignature, match="not a wake"):
        verify(body, headers, SECRET, now=NOW)


def test_new_secrets_are_long_and_never_the_same() -> None:
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert all(check_secret(secret) == secret for secret in made)


@pytest.mark.parametrize("size", [24, 64])
def test_a_secret_of_ones_own(size: int) -> None:
    assert check_secret("whsec_" + base64.b64encode(bytes(size)).decode())


@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "whsec_", "whsec_!!", SECRET.removeprefix("whsec_"), "whsec_é", f"{SECRET}\n"]
    + ["whsec_" + base64.b64encode(bytes(size)).decode() for size in (23, 65)],
)
def test_a_weak_secret_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        check_secret(text)

    assert "24 to 64 bytes" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 255))
def test_any_changed_byte_is_noticed(body: bytes, place: int, change: int) -> None:
    headers = signed(body)[1]
    assert verify_signature(body, headers, SECRET, now=NOW) == ID

    changed = bytearray(body or b"\x00")
    changed[place % len(changed)] ^= change
    with pytest.raises(InvalidSignature):
        verify_signature(bytes(changed), headers, SECRET, now=NOW)
