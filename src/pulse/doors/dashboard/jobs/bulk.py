"""How are many jobs cancelled or replayed at once? The page first shows a preview of the jobs, and then the progress.

The preview stores its instant, and jobs that came into the list later are left alone, since nobody has seen them. The
jobs are changed in steps. Each step is a request of the page, to any server, so they continue while the page is open.
The last step reports the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.jobs.filters import FIELDS, given_fields, read_filter
from pulse.doors.dashboard.jobs.list import ORDERS, bulk_action, count_of, is_filtered, lines, list_jobs
from pulse.doors.dashboard.pages import Action, PageRequest, Part, View
from pulse.engine.jobs.bulk import act_on_all, search
from pulse.model.errors import InvalidFilter, InvalidInput
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.model.jobs import JobFilter

ACTING = Right.OPERATE
SHOWN = 10
MAX_COUNTED = 500  # jobs, where a filter has to search for them
PATIENCE = 0.2  # seconds to search for them
STEP = 1_000  # jobs of one request
STEP_TIME = 1.0  # seconds
PARTICIPLES = {"cancel": "cancelled", "replay": "replayed"}


async def preview(request: PageRequest) -> dict[str, Any]:
    """Show the jobs that would be changed, as they are now."""
    given = given_fields(request)
    jobs = request.services.engine.jobs
    now = await request.services.engine.read_clock()
    wanted = read_filter(given, now)
    request.caller.check(ACTING, wanted.topic or "*")
    action = _require_action(wanted)
    heads, next_page = await search(list_jobs(request), wanted, limit=MAX_COUNTED, patience=PATIENCE)
    count, is_all = len(heads), next_page is None
    if not is_filtered(wanted):
        count, is_all = max(count, count_of(await jobs.counts(), wanted.topic, wanted.status)), True
    _, label, column = ORDERS[wanted.status]
    fixed = given | _instants(wanted)
    return {
        "title": f"{action.title()} many",
        "action": action,
        "participle": PARTICIPLES[action],
        "given": given,
        "fields": fixed | {"before": now.isoformat(), "count": str(count) if is_all else ""},
        "state": wanted.status,
        "count": count,
        "is_all": is_all,
        "lines": lines(heads[:SHOWN], column),
        "label": label,
        "back": url("/jobs", **given),
    }


async def run_step(request: PageRequest, form: Mapping[str, str]) -> Part:
    """Do one step, and return the part of the page that requests the next one."""
    fields = {name: value for name in FIELDS if (value := form.get(name, "").strip())}
    before = _read_instant(form.get("before", ""))
    wanted = read_filter(fields, before)
    request.caller.check(ACTING, wanted.topic or "*")
    action = _require_action(wanted)
    jobs = request.services.engine.jobs
    if action == "replay":
        act = partial(jobs.replay_many, before=before)
    else:
        act = partial(jobs.cancel_many, reason=form.get("reason", "").strip())
    result = await act_on_all(
        list_jobs(request),
        act,
        wanted,
        before=before,
        after=form.get("after") or None,
        limit=STEP,
        patience=STEP_TIME,
    )
    done, refused = _read_count(form, "done") + result.done, _read_count(form, "refused") + result.refused
    kept = fields | {"before": form["before"], "reason": form.get("reason", ""), "count": form.get("count", "")}
    return Part(
        "jobs/bulk_step.html",
        {
            "done": done,
            "refused": refused,
            "count": _read_count(form, "count"),
            "action": action,
            "participle": PARTICIPLES[action],
            "fields": kept | {"done": str(done), "refused": str(refused), "after": result.next or ""},
            "is_over": result.next is None,
            "back": url("/jobs", **fields),
        },
    )


def _require_action(wanted: JobFilter) -> str:
    action = bulk_action(wanted.status)
    if action is None:
        raise InvalidFilter(
            "choose a state: dead letters can be replayed, and scheduled, pending, running and retrying jobs can be "
            "cancelled"
        )
    return action


def _instants(wanted: JobFilter) -> dict[str, str]:
    """Return the instants of a filter as fields, since an age counts from the preview and not from each step."""
    found = {"since": wanted.submitted_after, "until": wanted.submitted_before}
    return {name: instant.isoformat() for name, instant in found.items() if instant is not None}


def _read_instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidInput("this form does not have the time of its preview: start again from the list of jobs")
    return found


def _read_count(form: Mapping[str, str], name: str) -> int:
    text = form.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


VIEWS = (View("/jobs/bulk", "jobs/bulk.html", preview, ACTING, is_live=False),)
ACTIONS = (Action("/jobs/bulk", run_step, ACTING),)
