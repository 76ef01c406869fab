"""How does a receiver know that a wake is ours?

As Standard Webhooks has it: HMAC-SHA256 over `id.timestamp.body`. While a secret is being replaced, both sign.
"""

from __future__ import annotations

import secrets as randomness
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from pulse.model.errors import InvalidOption
from pulse.webhooks import PREFIX, key_of, signature

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST, MOST, USUAL = 24, 64, 32  # bytes of a secret


def new_secret() -> str:
    return PREFIX + b64encode(randomness.token_bytes(USUAL)).decode()


def check_secret(text: str) -> str:
    """The secret itself is not in the message."""
    wanted = f"it must be {PREFIX} and the base64 of {LEAST} to {MOST} bytes"
    try:
        fits = text.startswith(PREFIX) and LEAST <= len(key_of(text)) <= MOST
    except ValueError:
        fits = False
    if not fits:
        raise InvalidOption("secret", "(not shown)", wanted)
    return text


def sign(secrets: Sequence[str], *, id: str, timestamp: int, body: bytes) -> str:  # noqa: A002
    """The value of webhook-signature: one signature per secret, between spaces."""
    return " ".join([signature(_key(secret), id=id, timestamp=timestamp, body=body) for secret in secrets])


@lru_cache(maxsize=4096)
def _key(secret: str) -> bytes:
    return key_of(secret)
