"""How are the words of an enumeration read? In any case, so that `pending`, `Dead-Lettered` and `ACTIVE` will do."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class AnyCase(StrEnum):
    """An enumeration of states that people type: read in any case, with - for _."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        wanted = value.strip().lower().replace("-", "_")
        return next((member for member in cls if member.value.lower() == wanted), None)
