"""How is the same done to many jobs? One sees first what will be touched, and then how far it is.

A preview notes its instant. What came into the list later is not what one saw, and is left alone. The work is done in
steps, each of which is a request of the page: it goes on for as long as the page is open, whatever the server, and the
last step says what was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.jobs.filters import FIELDS, given_fields, read_filter
from pulse.doors.dashboard.jobs.list import ORDERS, count_of, deed_for, find_shown, is_picking, lines
from pulse.doors.dashboard.pages import Action, PageRequest, Part, View
from pulse.engine.jobs.bulk import act_on_all, search
from pulse.model.errors import InvalidFilter, InvalidInput
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.model.jobs import JobFilter

ACTING = Right.OPERATE
SHOWN = 10
COUNTED = 500  # where they have to be looked for
PATIENCE = 0.2  # seconds to look for them
STEP = 1_000  # jobs of one request
STEP_TIME = 1.0  # seconds
DEEDS = {"cancel": "cancelled", "replay": "replayed"}


async def preview(look: PageRequest) -> dict[str, Any]:
    """What would be touched, as it is at this instant."""
    given = given_fields(look)
    jobs = look.served.engine.jobs
    now = await look.served.engine.read_clock()
    wanted = read_filter(given, now)
    look.caller.check(ACTING, wanted.topic or "*")
    deed = _deed_for(wanted)
    heads, following = await search(find_shown(look), wanted, limit=COUNTED, patience=PATIENCE)
    count, is_all = len(heads), following is None
    if not is_picking(wanted):
        count, is_all = max(count, count_of(await jobs.counts(), wanted.topic, wanted.status)), True
    _, label, column = ORDERS[wanted.status]
    fixed = given | _instants(wanted)
    return {
        "title": f"{deed.title()} many",
        "deed": deed,
        "done_word": DEEDS[deed],
        "given": given,
        "fields": fixed | {"before": now.isoformat(), "count": str(count) if is_all else ""},
        "state": wanted.status,
        "count": count,
        "is_all": is_all,
        "lines": lines(heads[:SHOWN], column),
        "label": label,
        "back": url("/jobs", **given),
    }


async def carry_on(look: PageRequest, form: Mapping[str, str]) -> Part:
    """One step; the part of the page that it answers with asks for the next."""
    fields = {name: value for name in FIELDS if (value := form.get(name, "").strip())}
    before = _read_instant(form.get("before", ""))
    wanted = read_filter(fields, before)
    look.caller.check(ACTING, wanted.topic or "*")
    deed = _deed_for(wanted)
    jobs = look.served.engine.jobs
    if deed == "replay":
        act = partial(jobs.replay_many, before=before)
    else:
        act = partial(jobs.cancel_many, reason=form.get("reason", "").strip())
    swept = await act_on_all(
        find_shown(look),
        act,
        wanted,
        before=before,
        after=form.get("after") or None,
        limit=STEP,
        patience=STEP_TIME,
    )
    done, refused = _read_count(form, "done") + swept.done, _read_count(form, "refused") + swept.refused
    carried = fields | {"before": form["before"], "reason": form.get("reason", ""), "count": form.get("count", "")}
    return Part(
        "jobs/bulk_step.html",
        {
            "done": done,
            "refused": refused,
            "count": _read_count(form, "count"),
            "deed": deed,
            "done_word": DEEDS[deed],
            "fields": carried | {"done": str(done), "refused": str(refused), "after": swept.next or ""},
            "is_over": swept.next is None,
            "back": url("/jobs", **fields),
        },
    )


def _deed_for(wanted: JobFilter) -> str:
    deed = deed_for(wanted.status)
    if deed is None:
        raise InvalidFilter(
            "choose a state: dead letters can be replayed together, and scheduled, pending, running and retrying jobs "
            "cancelled"
        )
    return deed


def _instants(wanted: JobFilter) -> dict[str, str]:
    """An age counts from the preview, not from each step."""
    found = {"since": wanted.submitted_after, "until": wanted.submitted_before}
    return {name: instant.isoformat() for name, instant in found.items() if instant is not None}


def _read_instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput("this form has no instant of its preview: begin again from the list")
    return found


def _read_count(form: Mapping[str, str], name: str) -> int:
    text = form.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


VIEWS = (View("/jobs/bulk", "jobs/bulk.html", preview, ACTING, is_live=False),)
ACTIONS = (Action("/jobs/bulk", carry_on, ACTING),)
