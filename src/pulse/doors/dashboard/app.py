"""Which pages does the dashboard have, and how is a request for one handled?

Every page and every action is in a table, with the right that it needs. For each request, the visitor is found and
checked, and the response is a page, the stream that keeps a page up to date, or the result of an action.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pulse.doors.access import caller as current
from pulse.doors.dashboard import overview, topic, workers
from pulse.doors.dashboard.alarms import pages as alarms
from pulse.doors.dashboard.drawing import STATIC, draw, draw_page, url
from pulse.doors.dashboard.form_fields import FORM_LIMIT, MAX_FIELDS, SIGN_IN_LIMIT, read_form
from pulse.doors.dashboard.guard import CSRF_FIELD, CSRF_HEADER, Guard, Visitor, drop_cookie, set_cookie
from pulse.doors.dashboard.jobs import bulk
from pulse.doors.dashboard.jobs import list as jobs
from pulse.doors.dashboard.jobs import one as job
from pulse.doors.dashboard.live import Live, PageUpdate
from pulse.doors.dashboard.pages import Action, Outcome, PageRequest, Part, Redirect, RedirectTo, View
from pulse.doors.dashboard.responses import (
    error_response,
    explain,
    keep_message,
    page,
    read_message,
    redirect,
    script_response,
    sent_by_script,
)
from pulse.doors.dashboard.schedules import pages as schedules
from pulse.doors.http.errors import HttpRefusal
from pulse.doors.http.field_types import read_segment
from pulse.model.errors import Forbidden, InvalidInput, PulseError, Unauthenticated
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.http.services import Services

log = logging.getLogger("pulse.dashboard")

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *schedules.VIEWS,
    *alarms.VIEWS,
    *bulk.VIEWS,
    *jobs.VIEWS,
    *job.VIEWS,
    *topic.VIEWS,
    *workers.VIEWS,
)
ACTIONS: tuple[Action, ...] = (
    *overview.ACTIONS,
    *schedules.ACTIONS,
    *alarms.ACTIONS,
    *bulk.ACTIONS,
    *job.ACTIONS,
)

SESSION_CHECK_INTERVAL = 15.0  # seconds between two checks of a stream's session; its token is checked at every update
CACHE_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STREAM = {"content-type": "text/event-stream", "x-accel-buffering": "no"}

Handler = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """The pages of one server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._guard = Guard(services)
        self.live = Live()

    def routes(self) -> list[Route]:
        views = [Route(view.path, self._handle_errors(self._show_view(view)), methods=["GET"]) for view in VIEWS]
        streams = [
            Route("/live" + view.path.rstrip("/"), self._handle_errors(self._stream_view(view)), methods=["GET"])
            for view in VIEWS
            if view.is_live
        ]
        actions = [
            Route(action.path, self._handle_errors(self._run_action(action)), methods=["POST"]) for action in ACTIONS
        ]
        return [
            Route("/sign-in", self._handle_errors(self._show_sign_in), methods=["GET"]),
            Route("/sign-in", self._handle_errors(self._sign_in), methods=["POST"]),
            Route("/sign-out", self._handle_errors(self._sign_out), methods=["POST"]),
            Route("/static/{name}", _static, methods=["GET"]),
            *streams,
            *actions,
            *views,
        ]

    def _handle_errors(self, handle: Handler) -> Handler:
        """Wrap this handler so that every error gets a response."""

        async def respond(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientDisconnect:
                raise
            except RedirectTo as found:
                return redirect(found.path)
            except Exception as error:
                return error_response(request, error)

        return respond

    # --- pages

    def _show_view(self, view: View) -> Handler:
        async def show(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                return _to_sign_in(request)
            page_request = self._make_page_request(request, visitor, view)
            facts = await view.facts(page_request)
            content = draw(view.template, **facts, request=page_request)
            if view.is_part:
                return page(content, facts.get("status", 200))
            message = read_message(request)
            framed = self._draw_frame(view, request, visitor, content, title=facts["title"], message=message)
            return page(framed, facts.get("status", 200), drop_message=message is not None)

        return show

    def _draw_frame(self, view: View, request: Request, visitor: Visitor, content: str, **more: str | None) -> str:
        return draw_page(
            content,
            path=request.url.path,
            live="/live" + (request.url.path.rstrip("/") or "") if view.is_live else None,
            query=request.url.query,
            visitor=visitor,
            has_sign_in=self._guard.has_sign_in,
            may_act=any(visitor.caller.may(right) for right in (Right.OPERATE, Right.MANAGE, Right.SUBMIT)),
            server=self._services.name,
            **more,
        )

    def _make_page_request(self, request: Request, visitor: Visitor, where: View | Action) -> PageRequest:
        visitor.caller.check(where.right)
        current.set(visitor.caller)
        return PageRequest(self._services, visitor.caller, _segments(request), read_query(request.url.query))

    def _stream_view(self, view: View) -> Handler:
        async def stream(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                raise Unauthenticated("sign in first")
            page_request = self._make_page_request(request, visitor, view)

            async def draw_content() -> str:
                return draw(view.template, **await view.facts(page_request), request=page_request)

            # The key has the visitor's scopes and not the visitor, so that all who see the same page share one group.
            path, query = sorted(page_request.path.items()), sorted(page_request.query.items())
            key = (view.path, *path, *query, visitor.caller.scopes)
            limits = self._guard.stream_limits(request, visitor)
            updates = self.live.follow(key, draw_content, view.every, limits=limits)
            return StreamingResponse(self._encode(updates, request, visitor), headers=STREAM)

        return stream

    async def _encode(
        self, updates: AsyncIterator[PageUpdate], request: Request, visitor: Visitor
    ) -> AsyncIterator[bytes]:
        checked_at = time.monotonic()
        async for each in updates:
            is_check_due = time.monotonic() - checked_at > SESSION_CHECK_INTERVAL
            if end := await self._find_end(request, visitor, check_session=is_check_due):
                yield end.encode()
                return
            if is_check_due:
                checked_at = time.monotonic()
            yield each.encode()

    async def _find_end(self, request: Request, visitor: Visitor, *, check_session: bool) -> PageUpdate | None:
        """Return the update that ends the stream, or None if the visitor may still see the page.

        If the database cannot tell, the stream ends, and the browser opens another one. The token is checked at every
        update, since it is cached for seconds and shared by all viewers. A check of the session costs a statement.
        """
        try:
            if check_session:
                may_view = await self._guard.find_visitor(request) is not None
            else:
                may_view = await self._guard.is_token_usable(visitor)
        except PulseError as error:
            return PageUpdate("trouble", str(error))
        return None if may_view else PageUpdate("signed-out")

    # --- actions

    def _run_action(self, action: Action) -> Handler:
        async def act(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                raise Unauthenticated("you are not signed in any more: load the page again")
            form = await read_form(request, FORM_LIMIT)
            self._guard.check_form(request, visitor, request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD, ""))
            page_request = self._make_page_request(request, visitor, action)
            outcome = await action.do(page_request, form)
            self.live.touch()
            return _respond(request, outcome)

        return act

    # --- signing in and out

    async def _show_sign_in(self, request: Request) -> Response:
        if await self._guard.find_visitor(request) is not None:
            return redirect(_next_path(request))
        return page(draw("sign_in.html", next=_next_path(request), why=None))

    async def _sign_in(self, request: Request) -> Response:
        form = await read_form(request, SIGN_IN_LIMIT)
        try:
            secret = await self._guard.sign_in(request, form.get("secret", ""))
        except (Unauthenticated, Forbidden, HttpRefusal) as error:
            status, why = explain(error)
            return page(draw("sign_in.html", next=_same_site_path(form.get("next", "")), why=why), status)
        answer = redirect(_same_site_path(form.get("next", "")))
        set_cookie(request, answer, secret)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        visitor = await self._guard.find_visitor(request)
        answer = redirect("/sign-in")
        if visitor is not None:
            form = await read_form(request, SIGN_IN_LIMIT)
            self._guard.check_form(request, visitor, form.get(CSRF_FIELD, ""))
            await self._guard.sign_out(visitor)
            drop_cookie(request, answer)
        return answer


def _respond(request: Request, outcome: Outcome) -> Response:
    if isinstance(outcome, Part):
        return page(draw(outcome.template, **outcome.facts))
    if sent_by_script(request):
        return script_response(outcome)
    back = outcome.path if isinstance(outcome, Redirect) else _referring_path(request)
    return keep_message(redirect(back), outcome.text)


def _referring_path(request: Request) -> str:
    """Return the path of the page that had the form. It comes from the browser, so only our own paths are accepted."""
    try:
        found = urlsplit(request.headers.get("referer", ""))
    except ValueError:  # it is not an address
        return "/"
    return _same_site_path(found.path + (f"?{found.query}" if found.query else ""))


def _to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page by its path. A whole address would repeat the `Host` of the request, and would lose
    TLS behind a proxy."""
    wanted = request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
    return redirect(url("/sign-in", next=wanted))


def _next_path(request: Request) -> str:
    return _same_site_path(request.query_params.get("next", ""))


def _same_site_path(path: str) -> str:
    """Return this path if it leads to a page of this site, else "/". A path such as `//host` leads to another site."""
    is_same_site = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_same_site else "/"


def _segments(request: Request) -> dict[str, str]:
    try:
        return {name: read_segment(str(value)) for name, value in request.path_params.items()}
    except ValueError as error:
        raise InvalidInput(f"the path {error}") from None


def read_query(text: str) -> dict[str, str]:
    """Read the fields of a query. Of a field that is given several times, the last value counts."""
    try:
        return dict(parse_qsl(text, max_num_fields=MAX_FIELDS, errors="replace"))
    except ValueError:
        raise InvalidInput(f"the query must have at most {MAX_FIELDS} fields") from None


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = STATIC / name
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or "/" in name or not found.is_file():
        return Response("there is no such file", 404, media_type="text/plain")
    return Response(found.read_bytes(), headers=CACHE_FOREVER, media_type=kind)
