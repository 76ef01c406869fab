"""How does a receiver know that a wake is ours?

As Standard Webhooks has it: HMAC-SHA256 over `id.timestamp.body`. While a secret is being replaced, both sign. Each
owner's wakes are signed with a secret of its own, so that whoever can verify them cannot sign those of others. It is
derived from the installation's, and nothing is stored for an owner until its secret is replaced.
"""

from __future__ import annotations

import hmac
import secrets as randomness
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from pulse.model.alarms import WakeGeneration, WakeRoot, WakeSecret
from pulse.model.errors import InvalidOption
from pulse.webhooks import PREFIX, key_of, signature

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST, MOST, USUAL = 24, 64, 32  # bytes of a secret
LABEL = b"pulse wake secret of an owner"


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


def owner_secret(root: str, owner: str, generation: int = 0) -> str:
    """Derive the secret of one owner. The label keeps it apart from whatever else may once be derived from the root."""
    told = b"\x00".join((LABEL, b"%d" % generation, owner.encode()))
    return PREFIX + b64encode(hmac.digest(key_of(root), told, "sha256")).decode()


class OwnerSecrets:
    """Knows the secrets that sign the wakes of each owner, as they were when they were read from the database."""

    def __init__(self, roots: Sequence[WakeRoot], generations: Sequence[WakeGeneration]) -> None:
        self._roots = roots
        self._generations: dict[str, list[WakeGeneration]] = {}
        for each in generations:
            self._generations.setdefault(each.owner, []).append(each)
        self._signing: dict[str, list[str]] = {}
        self.has_shared = any(root.is_shared and root.expires_at is None for root in roots)  # with no end in sight

    def of(self, owner: str) -> list[WakeSecret]:
        """Return the owner's own, newest first."""
        known: Sequence[WakeGeneration | None] = self._generations.get(owner) or [None]
        return [_derived(root, owner, generation) for root in self._roots for generation in known]

    def signing(self, owner: str) -> list[str]:
        """Return all that sign: the owner's own, and the installation's where receivers may still have that."""
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
    """The value of webhook-signature: one signature per secret, between spaces."""
    return " ".join([signature(_key(secret), id=id, timestamp=timestamp, body=body) for secret in secrets])


@lru_cache(maxsize=4096)
def _key(secret: str) -> bytes:
    return key_of(secret)
