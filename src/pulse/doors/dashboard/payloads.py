"""How is JSON shown that came from anywhere? The one place through which every payload on a page goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulse.doors.dashboard.formatting import LONGEST_TEXT, pretty
from pulse.engine.masks import mask_one
from pulse.model.redaction import Redaction

if TYPE_CHECKING:
    from pulse.doors.dashboard.pages import PageRequest


async def shown_json(look: PageRequest, text: str | None) -> str | None:
    """With its marked fields hidden: payloads come without them already, but a result may repeat one."""
    if text is None:
        return None
    masked = await mask_one(look.served.settings.redaction, Redaction.json, text)
    return pretty(masked)


def editable_json(_look: PageRequest, text: str) -> str:
    """All of it, for a field that is sent back."""
    if len(text) > LONGEST_TEXT:
        return text
    return msgspec.json.format(text, indent=2)
