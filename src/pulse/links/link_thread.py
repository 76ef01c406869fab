"""How does any thread of a program, with an event loop or without, use a link that needs an event loop of its own?

One thread with one event loop per process holds the link. Callers submit a call and wait for it, a coroutine by
awaiting and others by blocking. So a caller needs no loop, and may have several. After a fork the child has the memory
of the parent but not its thread, so it starts a new one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakSet

from pulse import event_loop
from pulse.links.blocking_calls import warn_of_blocking
from pulse.links.loop_links import LoopLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

L = TypeVar("L")
T = TypeVar("T")

STOP_PATIENCE = 5.0  # seconds to send the last notifications and close the link
_parents_objects: list[object] = []  # kept alive in a fork: to dispose of them would close the parent's connections


class LinkThread(Generic[L]):
    """A link on a thread of its own, opened when it is first used."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._thread: _Thread[L] | None = None
        self._loop_links = LoopLinks(opener)
        _link_threads.add(self)

    def call(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> T:
        if asyncio._get_running_loop() is not None:  # get_running_loop would raise, which takes six times as long
            warn_of_blocking()
        return self._running_thread().submit(work).result()

    async def acall(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> T:
        if (link := self._loop_links.link()) is not None:
            return await work(link)
        return await asyncio.wrap_future(self._running_thread().submit(work))

    def close(self) -> None:
        self._loop_links.close()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _running_thread(self) -> _Thread[L]:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = _Thread(self._opener)
                self._thread.start()
            return self._thread

    def restart_after_fork(self) -> None:
        """Start anew in a forked child, which has no thread."""
        _parents_objects.extend([self._thread, self._loop_links])
        self._loop_links = LoopLinks(self._opener)
        self._lock = threading.Lock()
        self._thread = None


class _Thread(threading.Thread, Generic[L]):
    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        super().__init__(name="pulse link", daemon=True)
        self._opener = opener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._opening: asyncio.Task[L] | None = None
        self._link: L | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop_requested: asyncio.Event | None = None

    def submit(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a call on the loop of this thread. asyncio.run_coroutine_threadsafe does the same with two more futures,
        which would take a fifth of the time of an enqueue."""
        self._is_up.wait()
        assert self._loop is not None
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._begin, work, answer)
        return answer

    def _begin(self, work: Callable[[L], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        if answer.set_running_or_notify_cancel():  # False if the caller was cancelled meanwhile
            task = asyncio.get_running_loop().create_task(self._run_call(work, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        self._is_up.wait()
        if self._loop is not None and self._stop_requested is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self.join(STOP_PATIENCE)

    def run(self) -> None:
        event_loop.run(self._run_until_stopped())

    async def _run_until_stopped(self) -> None:
        self._loop, self._stop_requested = asyncio.get_running_loop(), asyncio.Event()
        self._contexts: list[AbstractAsyncContextManager[L]] = []
        self._is_up.set()
        await self._stop_requested.wait()
        for context in self._contexts:
            await context.__aexit__(None, None, None)

    async def _run_call(self, work: Callable[[L], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        try:
            result = await work(self._link or await self._open_once())
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    async def _open_once(self) -> L:
        """Open the link once for all calls that wait for it. After a failure the next call tries again."""
        if self._opening is None or (self._opening.done() and self._has_failed(self._opening)):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> L:
        context = self._opener()
        link = await context.__aenter__()
        self._contexts.append(context)
        self._link = link
        return link

    @staticmethod
    def _has_failed(task: asyncio.Task[L]) -> bool:
        return task.cancelled() or task.exception() is not None


_link_threads: WeakSet[LinkThread[Any]] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close all links when the program ends, so that the notifications about its last jobs are sent."""
    for link_thread in list(_link_threads):
        link_thread.close()


def _restart_all_after_fork() -> None:
    for link_thread in list(_link_threads):
        link_thread.restart_after_fork()


os.register_at_fork(after_in_child=_restart_all_after_fork)
