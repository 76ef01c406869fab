"""How do pages stay fresh without each of them asking the database?

Viewers of the same page with the same rights share one `LiveGroup`. The group draws the page once for all of them, and
sends it if it differs from what was sent before. So the database is asked as often for ten viewers as for one, and not
at all when nobody looks. A page that takes long to draw is drawn less often.
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
MAX_GROUPS = 200  # each looks for itself, for a tenth of the time at most: together they must leave connections free
MAX_OF_ONE = 20  # streams of a session
MAX_OF_MANY = 100  # of a token or an address, which several people may share: others get at least half of the rooms
BREATH = 15.0  # seconds between signs of life, so that proxies and browsers keep the connection
REST = 10  # a look that took so long is taken again after so many times as long, at the earliest
REST_IN_TROUBLE = 1  # most of it was waiting for the database, and viewers want to know when that is back

LINE_END = re.compile(r"\r\n|\r|\n")

Draw = Callable[[], Awaitable[str]]


class PageUpdate(NamedTuple):
    """What viewers are sent: a fresh page, or why there is none."""

    event: str  # page, trouble, full, gone, or breath
    text: str = ""

    def encode(self) -> bytes:
        """As an event of a stream. A line of its own for each line, as the format wants it."""
        if self.event == "breath":
            return b": still here\n\n"
        lines = "".join(f"data: {line}\n" for line in LINE_END.split(self.text))
        return f"event: {self.event}\n{lines}\n".encode(errors="replace")


class Share(NamedTuple):
    """Of whose streams a new one would be, and how many they may have."""

    whose: str  # in words
    holder: Hashable
    most: int


class LiveGroup:
    """Those who look at one thing."""

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
        """Something was done here: look again at once."""
        self._touched.set()

    def enter(self) -> asyncio.Queue[PageUpdate]:
        viewer: asyncio.Queue[PageUpdate] = asyncio.Queue(maxsize=8)
        self._viewers.add(viewer)
        if self._newest is not None:
            viewer.put_nowait(self._newest)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="pulse live room")
            self._task.add_done_callback(
                lambda _: self._tell(PageUpdate("gone"))
            )  # nobody waits for news that cannot come
        return viewer

    def leave(self, viewer: asyncio.Queue[PageUpdate]) -> None:
        self._viewers.discard(viewer)
        if self.is_empty:
            self.close()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._tell(PageUpdate("gone"))

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            self._touched.clear()
            began = clock()
            news = await self._look()
            if news != self._newest:
                self._newest = news
                self._tell(news)
            rest = REST_IN_TROUBLE if news.event == "trouble" else REST
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._every, rest * (clock() - began))):
                    await self._touched.wait()

    async def _look(self) -> PageUpdate:
        try:
            return PageUpdate("page", await self._draw())
        except PulseError as error:
            return PageUpdate("trouble", str(error))
        except Exception:
            log.exception("a page could not be drawn")
            return PageUpdate("trouble", "this page could not be drawn; the server's log says why")

    def _tell(self, news: PageUpdate) -> None:
        """The newest counts: whoever is slow to read misses what came before."""
        for viewer in self._viewers:
            if viewer.full():
                viewer.get_nowait()
            viewer.put_nowait(news)


class Live:
    """The rooms of a server."""

    def __init__(self) -> None:
        self._rooms: dict[Hashable, LiveGroup] = {}
        self._viewers = 0
        self._held: Counter[Hashable] = Counter()  # streams, by who has them
        self._is_closed = False

    def touch(self) -> None:
        for room in self._rooms.values():
            room.touch()

    def close(self) -> None:
        """Everybody is sent away: they will find another server, or this one again."""
        self._is_closed = True
        for room in self._rooms.values():
            room.close()

    def _why_full(self, key: Hashable, shares: Sequence[Share]) -> str | None:
        """None: there is a place for one more."""
        for share in shares:
            if self._held[share.holder] >= share.most:
                return f"{share.whose} has {share.most:,} pages open that are kept fresh, which is all it can have."
        if self._viewers >= MAX_VIEWERS:
            return f"This server has {MAX_VIEWERS:,} viewers, which is all it takes."
        if key not in self._rooms and len(self._rooms) >= MAX_GROUPS:
            return f"This server keeps {MAX_GROUPS:,} different pages fresh, which is all it takes."
        return None

    async def follow(
        self, key: Hashable, draw: Draw, every: float, *, shares: Sequence[Share] = ()
    ) -> AsyncIterator[PageUpdate]:
        """What there is to see under this key, from now on and whenever it changes; or why that cannot be had. It is
        told as news, since a browser does not show its page with what words a stream was refused."""
        if self._is_closed:
            return
        if why := self._why_full(key, shares):
            yield PageUpdate("full", why)
            return
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = LiveGroup(draw, every)
        viewer = room.enter()
        self._viewers += 1
        self._held.update(share.holder for share in shares)
        try:
            while True:
                news = await _next(viewer)
                if news.event == "gone":
                    return
                yield news
        finally:
            self._viewers -= 1
            self._let_go(shares)
            room.leave(viewer)
            if room.is_empty and self._rooms.get(key) is room:
                del self._rooms[key]

    def _let_go(self, shares: Sequence[Share]) -> None:
        for share in shares:
            self._held[share.holder] -= 1
            if not self._held[share.holder]:
                del self._held[share.holder]


async def _next(viewer: asyncio.Queue[PageUpdate]) -> PageUpdate:
    try:
        async with asyncio.timeout(BREATH):
            return await viewer.get()
    except TimeoutError:
        return PageUpdate("breath")
