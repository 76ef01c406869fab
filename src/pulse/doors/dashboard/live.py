"""How do open pages stay up to date without each of them asking the database?

Viewers of the same page with the same rights share one `LiveGroup`. The group draws the page once for all of them, and
sends it if it differs from the page that was sent before. So the database is asked as often for ten viewers as for one,
and not at all when there is none. A page that takes long to draw is drawn less often.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pulse.model.errors import PulseError

log = logging.getLogger("pulse.dashboard")

MAX_VIEWERS = 1_000
MAX_GROUPS = 200  # each draws for at most a tenth of the time; together they must leave database connections free
MAX_OF_ONE = 20  # streams of a session
MAX_OF_MANY = 100  # streams of a token or an address, which several people may share; half of the groups for the others
KEEPALIVE_INTERVAL = 15.0  # seconds between signs of life, so that proxies and browsers keep the connection
REST = 10  # after a drawing, a group pauses for at least this many times as long as the drawing took
REST_IN_TROUBLE = 1  # the same after an error: that time was mostly spent waiting for a database that may be back soon

LINE_END = re.compile(r"\r\n|\r|\n")

Draw = Callable[[], Awaitable[str]]


class PageUpdate(NamedTuple):
    """A new version of a page for its viewers, or the reason why there is none."""

    event: str  # page, trouble, full, gone, or keepalive
    text: str = ""

    def encode(self) -> bytes:
        """Encode the update as a server-sent event, in which each line of the text is a line of data."""
        if self.event == "keepalive":
            return b": still here\n\n"
        lines = "".join(f"data: {line}\n" for line in LINE_END.split(self.text))
        return f"event: {self.event}\n{lines}\n".encode(errors="replace")


class StreamLimit(NamedTuple):
    """How many streams the holder of a session, a token or an address may have open."""

    name: str  # of the holder, for people
    holder: Hashable
    limit: int


class LiveGroup:
    """The viewers of one page."""

    def __init__(self, draw: Draw, every: float) -> None:
        self._draw = draw
        self._every = every
        self._viewers: set[asyncio.Queue[PageUpdate]] = set()
        self._touched = asyncio.Event()
        self._newest: PageUpdate | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._viewers

    def touch(self) -> None:
        """Draw the page again at once, since an action may have changed it."""
        self._touched.set()

    def add_viewer(self) -> asyncio.Queue[PageUpdate]:
        viewer: asyncio.Queue[PageUpdate] = asyncio.Queue(maxsize=8)
        self._viewers.add(viewer)
        if self._newest is not None:
            viewer.put_nowait(self._newest)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="pulse live group")
            # Once the task has ended there are no more updates, so no viewer may wait for one.
            self._task.add_done_callback(lambda _: self._send(PageUpdate("gone")))
        return viewer

    def remove_viewer(self, viewer: asyncio.Queue[PageUpdate]) -> None:
        self._viewers.discard(viewer)
        if self.is_empty:
            self.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._send(PageUpdate("gone"))

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._touched.clear()
            began = clock()
            update = await self._draw_update()
            if update != self._newest:
                self._newest = update
                self._send(update)
            rest = REST_IN_TROUBLE if update.event == "trouble" else REST
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._every, rest * (clock() - began))):
                    await self._touched.wait()

    async def _draw_update(self) -> PageUpdate:
        try:
            return PageUpdate("page", await self._draw())
        except PulseError as error:
            return PageUpdate("trouble", str(error))
        except Exception:
            log.exception("a page could not be drawn")
            return PageUpdate("trouble", "this page could not be drawn; the server's log says why")

    def _send(self, update: PageUpdate) -> None:
        """Send an update to all viewers. A viewer who reads too slowly misses older updates, but gets the newest."""
        for viewer in self._viewers:
            if viewer.full():
                viewer.get_nowait()
            viewer.put_nowait(update)


class Live:
    """The live groups of a server."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, LiveGroup] = {}
        self._viewers = 0
        self._streams: Counter[Hashable] = Counter()  # open streams, by their holder
        self._is_closed = False

    def touch(self) -> None:
        for group in self._groups.values():
            group.touch()

    def close(self) -> None:
        """End all streams. Their browsers connect again, to another server or to this one once it is back."""
        self._is_closed = True
        for group in self._groups.values():
            group.close()

    def _why_full(self, key: Hashable, limits: Sequence[StreamLimit]) -> str | None:
        """Return why there can be no more streams; None: there can."""
        for each in limits:
            if self._streams[each.holder] >= each.limit:
                return f"{each.name} has {each.limit:,} pages open that update themselves, and no more are allowed."
        if self._viewers >= MAX_VIEWERS:
            return f"This server has {MAX_VIEWERS:,} viewers, and no more are allowed."
        if key not in self._groups and len(self._groups) >= MAX_GROUPS:
            return f"This server updates {MAX_GROUPS:,} different pages, and no more are allowed."
        return None

    async def follow(
        self, key: Hashable, draw: Draw, every: float, *, limits: Sequence[StreamLimit] = ()
    ) -> AsyncIterator[PageUpdate]:
        """Yield the page with this key now and whenever it changes, or the reason why that is not possible.

        The reason is an update as well, because a browser does not show a page the text of a refused stream.
        """
        if self._is_closed:
            return
        if why := self._why_full(key, limits):
            yield PageUpdate("full", why)
            return
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = LiveGroup(draw, every)
        viewer = group.add_viewer()
        self._viewers += 1
        self._streams.update(each.holder for each in limits)
        try:
            while True:
                update = await _next_update(viewer)
                if update.event == "gone":
                    return
                yield update
        finally:
            self._viewers -= 1
            self._forget_stream(limits)
            group.remove_viewer(viewer)
            if group.is_empty and self._groups.get(key) is group:
                del self._groups[key]

    def _forget_stream(self, limits: Sequence[StreamLimit]) -> None:
        for each in limits:
            self._streams[each.holder] -= 1
            if not self._streams[each.holder]:
                del self._streams[each.holder]


async def _next_update(viewer: asyncio.Queue[PageUpdate]) -> PageUpdate:
    try:
        async with asyncio.timeout(KEEPALIVE_INTERVAL):
            return await viewer.get()
    except TimeoutError:
        return PageUpdate("keepalive")
