"""How does a coroutine reach a link without leaving its own event loop?

The way through the thread's thread and back costs a quarter of a millisecond, most of what an enqueue takes beside the
database. So a loop that calls more than once gets a link of its own: the first call goes through the thread, because a
loop that lives for one call (`asyncio.run` in a script, Django's `async_to_sync`) is not worth a connection.

The link is closed with the loop: a task holds it, and a loop that is shut down properly, as `asyncio.run` does, cancels
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
    """The links that live on the callers' loops."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopLink[L]] = WeakKeyDictionary()

    def link(self) -> L | None:
        """The running loop's link, if it has one by now."""
        loop = asyncio.get_running_loop()
        with self._lock:
            own = self._links.get(loop)
            if own is None:
                self._links[loop] = _LoopLink(self._opener)
                return None
        if own.link is None:
            own.open()
        return own.link

    def close(self) -> None:
        with self._lock:
            links, self._links = dict(self._links), WeakKeyDictionary()
        for loop, own in links.items():
            own.close(loop)


class _LoopLink(Generic[L]):
    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self.link: L | None = None
        self._opener = opener
        self._keeper: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to; whoever calls meanwhile goes through the thread."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="pulse own link")

    async def _keep(self) -> None:
        try:
            async with self._opener() as self.link:
                await asyncio.Event().wait()
        except Exception as error:
            log.debug("no link on this loop yet, so calls go through the thread: %r", error)
            self._keeper = None
        finally:
            self.link = None

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """From any thread. A loop that no longer turns has closed it, or cannot any more."""
        if self._keeper is not None and loop.is_running():
            loop.call_soon_threadsafe(self._keeper.cancel)
