"""Which pages are there, and how does a request become one?

Every page and every action stands in a table with the right it needs. A request finds its visitor, is checked, and is
answered with a page, with the stream that keeps it fresh, or with what was done.
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
from pulse.doors.dashboard.guard import FORM_WORD, HEADER_WORD, Guard, Visitor, drop_cookie, set_cookie
from pulse.doors.dashboard.jobs import bulk
from pulse.doors.dashboard.jobs import list as jobs
from pulse.doors.dashboard.jobs import one as job
from pulse.doors.dashboard.live import Live, PageUpdate
from pulse.doors.dashboard.pages import Action, Outcome, PageRequest, Part, Redirect, RedirectTo, View
from pulse.doors.dashboard.responses import explain, page, redirect, refused, say_once, sent_by_script, take_said, told
from pulse.doors.dashboard.schedules import pages as schedules
from pulse.doors.http.errors import Refused
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

ASK_AGAIN = (
    15.0  # seconds after which a stream asks whether its viewer is still signed in; about the token it always asks
)
FOR_EVER = {"cache-control": "public, max-age=31536000, immutable"}
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
        views = [Route(view.path, self._answering(self._show(view)), methods=["GET"]) for view in VIEWS]
        streams = [
            Route("/live" + view.path.rstrip("/"), self._answering(self._stream(view)), methods=["GET"])
            for view in VIEWS
            if view.is_live
        ]
        actions = [Route(action.path, self._answering(self._act(action)), methods=["POST"]) for action in ACTIONS]
        return [
            Route("/sign-in", self._answering(self._show_sign_in), methods=["GET"]),
            Route("/sign-in", self._answering(self._sign_in), methods=["POST"]),
            Route("/sign-out", self._answering(self._sign_out), methods=["POST"]),
            Route("/static/{name}", _static, methods=["GET"]),
            *streams,
            *actions,
            *views,
        ]

    def _answering(self, handle: Handler) -> Handler:
        """Every end of a request is an answer."""

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except ClientDisconnect:
                raise
            except RedirectTo as found:
                return redirect(found.path)
            except Exception as error:
                return refused(request, error)

        return answer

    # --- pages

    def _show(self, view: View) -> Handler:
        async def show(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                return _to_sign_in(request)
            look = self._look(request, visitor, view)
            facts = await view.facts(look)
            content = draw(view.template, **facts, look=look)
            if view.is_part:
                return page(content, facts.get("status", 200))
            said = take_said(request)
            framed = self._framed(view, request, visitor, content, title=facts["title"], said=said)
            return page(framed, facts.get("status", 200), drop_said=said is not None)

        return show

    def _framed(self, view: View, request: Request, visitor: Visitor, content: str, **more: str | None) -> str:
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

    def _look(self, request: Request, visitor: Visitor, where: View | Action) -> PageRequest:
        visitor.caller.check(where.right)
        current.set(visitor.caller)
        return PageRequest(self._services, visitor.caller, _segments(request), read_query(request.url.query))

    def _stream(self, view: View) -> Handler:
        async def stream(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                raise Unauthenticated("sign in first")
            look = self._look(request, visitor, view)

            async def drawn() -> str:
                return draw(view.template, **await view.facts(look), look=look)

            # Not who they are, only what they may: so that all who see the same share one look.
            key = (view.path, *sorted(look.path.items()), *sorted(look.query.items()), visitor.caller.scopes)
            news = self.live.follow(key, drawn, view.every, shares=self._guard.shares(request, visitor))
            return StreamingResponse(self._encoded(news, request, visitor), headers=STREAM)

        return stream

    async def _encoded(
        self, news: AsyncIterator[PageUpdate], request: Request, visitor: Visitor
    ) -> AsyncIterator[bytes]:
        asked_at = time.monotonic()
        async for each in news:
            is_time = time.monotonic() - asked_at > ASK_AGAIN
            if end := await self._why_over(request, visitor, ask_for_session=is_time):
                yield end.encode()
                return
            if is_time:
                asked_at = time.monotonic()
            yield each.encode()

    async def _why_over(self, request: Request, visitor: Visitor, *, ask_for_session: bool) -> PageUpdate | None:
        """Return None if the viewer may go on looking. While nobody can tell, the browser comes back and asks again.

        The token is looked up at every piece of news: what is known of it is kept for seconds and shared by all
        viewers. A session costs a statement of its own.
        """
        try:
            if ask_for_session:
                may_look = await self._guard.find_visitor(request) is not None
            else:
                may_look = await self._guard.is_token_usable(visitor)
        except PulseError as error:
            return PageUpdate("trouble", str(error))
        return None if may_look else PageUpdate("signed-out")

    # --- actions

    def _act(self, action: Action) -> Handler:
        async def act(request: Request) -> Response:
            visitor = await self._guard.find_visitor(request)
            if visitor is None:
                raise Unauthenticated("you are not signed in any more: load the page again")
            form = await read_form(request, FORM_LIMIT)
            self._guard.check_form(request, visitor, request.headers.get(HEADER_WORD) or form.get(FORM_WORD, ""))
            look = self._look(request, visitor, action)
            outcome = await action.do(look, form)
            self.live.touch()
            return _done(request, outcome)

        return act

    # --- signing in and out

    async def _show_sign_in(self, request: Request) -> Response:
        if await self._guard.find_visitor(request) is not None:
            return redirect(_next(request))
        return page(draw("sign_in.html", next=_next(request), why=None))

    async def _sign_in(self, request: Request) -> Response:
        form = await read_form(request, SIGN_IN_LIMIT)
        try:
            secret = await self._guard.sign_in(request, form.get("secret", ""))
        except (Unauthenticated, Forbidden, Refused) as error:
            status, why = explain(error)
            return page(draw("sign_in.html", next=_local(form.get("next", "")), why=why), status)
        answer = redirect(_local(form.get("next", "")))
        set_cookie(request, answer, secret)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        visitor = await self._guard.find_visitor(request)
        answer = redirect("/sign-in")
        if visitor is not None:
            form = await read_form(request, SIGN_IN_LIMIT)
            self._guard.check_form(request, visitor, form.get(FORM_WORD, ""))
            await self._guard.sign_out(visitor)
            drop_cookie(request, answer)
        return answer


def _done(request: Request, outcome: Outcome) -> Response:
    if isinstance(outcome, Part):
        return page(draw(outcome.template, **outcome.facts))
    if sent_by_script(request):
        return told(outcome)
    back = outcome.path if isinstance(outcome, Redirect) else _back(request)
    return say_once(redirect(back), outcome.text)


def _back(request: Request) -> str:
    """The page the form was on. The browser says so, but only of our own pages is it believed."""
    try:
        found = urlsplit(request.headers.get("referer", ""))
    except ValueError:  # it is no address
        return "/"
    return _local(found.path + (f"?{found.query}" if found.query else ""))


def _to_sign_in(request: Request) -> Response:
    """By a path alone: a whole address would repeat whatever `Host` says, and lead away from TLS behind a proxy."""
    wanted = request.scope["path"] + (f"?{request.url.query}" if request.url.query else "")
    return redirect(url("/sign-in", next=wanted))


def _next(request: Request) -> str:
    return _local(request.query_params.get("next", ""))


def _local(path: str) -> str:
    """A path of ours, whatever it was that was given: never another site's, which `//host` would be."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_ours else "/"


def _segments(request: Request) -> dict[str, str]:
    try:
        return {name: read_segment(str(value)) for name, value in request.path_params.items()}
    except ValueError as error:
        raise InvalidInput(f"the path: {error}") from None


def read_query(text: str) -> dict[str, str]:
    """Each field once, the last that was given."""
    try:
        return dict(parse_qsl(text, max_num_fields=MAX_FIELDS, errors="replace"))
    except ValueError:
        raise InvalidInput(f"the query has more than {MAX_FIELDS} fields") from None


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    found = STATIC / name
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or "/" in name or not found.is_file():
        return Response("there is no such file", 404, media_type="text/plain")
    return Response(found.read_bytes(), headers=FOR_EVER, media_type=kind)
