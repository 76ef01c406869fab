"""How is JSON shown that came from anywhere? The one place through which every payload on a page goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulse.doors.dashboard.words import LONGEST_TEXT, pretty

if TYPE_CHECKING:
    from pulse.doors.dashboard.views import Look


def shown_json(_look: Look, text: str | None) -> str:
    return pretty(text)


def editable_json(_look: Look, text: str) -> str:
    """All of it, for a field that is sent back."""
    if len(text) > LONGEST_TEXT:
        return text
    return msgspec.json.format(text, indent=2)
