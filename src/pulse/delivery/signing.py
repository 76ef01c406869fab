"""How are wakes signed, so that a receiver can tell that Pulse sent them?

By Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`. While a secret is being replaced, both sign. The wakes of
each owner are signed with a secret of its own, so that a receiver that can verify them cannot sign those of others. It
is derived from the installation's secret, and nothing is stored for an owner until its secret is replaced.
"""

from __future__ import annotations

import hmac
import secrets as randomness
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from pulse.model.alarms import WakeGeneration, WakeRoot, WakeSecret
from pulse.model.errors import NOT_SHOWN, InvalidOption
from pulse.webhooks import PREFIX, key_of, signature

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_BYTES, MAX_BYTES, NEW_BYTES = 24, 64, 32  # of a secret
LABEL = b"pulse wake secret of an owner"


def new_secret() -> str:
    return PREFIX + b64encode(randomness.token_bytes(NEW_BYTES)).decode()


def check_secret(text: str) -> str:
    """Return a secret. Refuse another text by a message that does not quote it."""
    try:
        is_valid = text.startswith(PREFIX) and MIN_BYTES <= len(key_of(text)) <= MAX_BYTES
    except ValueError:
        is_valid = False
    if not is_valid:
        raise InvalidOption("secret", NOT_SHOWN, f"be {PREFIX} and the base64 of {MIN_BYTES} to {MAX_BYTES} bytes")
    return text


def owner_secret(root: str, owner: str, generation: int = 0) -> str:
    """Derive the secret of one owner. The label separates it from anything else that may be derived from the root."""
    message = b"\x00".join((LABEL, b"%d" % generation, owner.encode()))
    return PREFIX + b64encode(hmac.digest(key_of(root), message, "sha256")).decode()


class OwnerSecrets:
    """The secrets that sign the wakes of each owner, as they were when they were read from the database."""

    def __init__(self, roots: Sequence[WakeRoot], generations: Sequence[WakeGeneration]) -> None:
        self._roots = roots
        self._generations: dict[str, list[WakeGeneration]] = {}
        for each in generations:
            self._generations.setdefault(each.owner, []).append(each)
        self._signing: dict[str, list[str]] = {}
        self.has_shared = any(root.is_shared and root.expires_at is None for root in roots)  # and nothing ends that

    def of(self, owner: str) -> list[WakeSecret]:
        """Return the secrets of an owner, newest first."""
        known: Sequence[WakeGeneration | None] = self._generations.get(owner) or [None]
        return [_derived(root, owner, generation) for root in self._roots for generation in known]

    def signing(self, owner: str) -> list[str]:
        """Return all secrets that sign: the owner's own, and the installation's while receivers may still have it."""
        if owner not in self._signing:
            shared = [root.secret for root in self._roots if root.is_shared]
            self._signing[owner] = [*(each.secret for each in self.of(owner)), *shared]
        return self._signing[owner]


def _derived(root: WakeRoot, owner: str, generation: WakeGeneration | None) -> WakeSecret:
    if generation is None:
        secret = owner_secret(root.secret, owner)
        return WakeSecret(secret=secret, created_at=root.created_at, expires_at=root.expires_at)
    ends = [each.expires_at for each in (root, generation) if each.expires_at is not None]
    return WakeSecret(
        secret=owner_secret(root.secret, owner, generation.generation),
        created_at=max(root.created_at, generation.created_at) if generation.generation else root.created_at,
        expires_at=min(ends, default=None),
    )


def sign(secrets: Sequence[str], *, id: str, timestamp: int, body: bytes) -> str:  # noqa: A002
    """Return the value of the webhook-signature header: one signature for each secret, between spaces."""
    return " ".join([signature(_key(secret), id=id, timestamp=timestamp, body=body) for secret in secrets])


@lru_cache(maxsize=4096)
def _key(secret: str) -> bytes:
    return key_of(secret)
