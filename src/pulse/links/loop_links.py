"""How does a coroutine use a link without leaving its own event loop?

Going through the link thread and back costs a quarter of a millisecond, most of the time of an enqueue apart from the
database. So a loop that calls more than once gets a link of its own. Its first call goes through the thread, because a
loop that lives for one call (`asyncio.run` in a script, Django's `async_to_sync`) is not worth a connection.

The link is closed with the loop: a task holds it, and a loop that is shut down properly, as by `asyncio.run`, cancels
its tasks and waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

log = logging.getLogger("pulse.link")

L = TypeVar("L")


class LoopLinks(Generic[L]):
    """The links on the event loops of callers."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopLink[L]] = WeakKeyDictionary()

    def link(self) -> L | None:
        """Return the link of the running loop, or None if it has none yet."""
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._links.get(loop)
            if found is None:
                self._links[loop] = _LoopLink(self._opener)
                return None
        if found.link is None:
            found.open()
        return found.link

    def close(self) -> None:
        with self._lock:
            links, self._links = dict(self._links), WeakKeyDictionary()
        for loop, link in links.items():
            link.close(loop)


class _LoopLink(Generic[L]):
    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self.link: L | None = None
        self._opener = opener
        self._holder: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to open the link. Calls go through the thread meanwhile."""
        if self._holder is None:
            self._holder = asyncio.create_task(self._hold(), name="pulse loop link")

    async def _hold(self) -> None:
        try:
            async with self._opener() as self.link:
                await asyncio.Event().wait()
        except Exception as error:
            log.debug("no link could be opened on this loop, so calls go through the thread: %r", error)
            self._holder = None
        finally:
            self.link = None

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the link, from any thread. A loop that no longer runs has closed it already, or cannot any more."""
        if self._holder is not None and loop.is_running():
            loop.call_soon_threadsafe(self._holder.cancel)
