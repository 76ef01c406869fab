"""How are payloads, results and progress shown on a page? All of them pass through this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulse.doors.dashboard.formatting import LONGEST_TEXT, pretty
from pulse.engine.masks import mask_one
from pulse.model.redaction import Redaction

if TYPE_CHECKING:
    from pulse.doors.dashboard.pages import PageRequest


async def shown_json(request: PageRequest, text: str | None) -> str | None:
    """Return JSON for a page, with redacted fields masked. Payloads are masked already, but a result may repeat one."""
    if text is None:
        return None
    masked = await mask_one(request.services.settings.redaction, Redaction.json, text)
    return pretty(masked)


def editable_json(text: str) -> str:
    """Return all of the JSON, indented unless it is long, for a field of a form."""
    if len(text) > LONGEST_TEXT:
        return text
    return msgspec.json.format(text, indent=2)
