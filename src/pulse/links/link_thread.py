"""How does any thread of a program, with an event loop or without, reach a link that lives on a loop of its own?

One thread with one event loop per process holds the link. Callers hand it a piece of work and wait, each in its own
way. So no loop of the caller's is needed, and it does not matter how many there are. After a fork the child has the
memory and not the thread, so it starts anew.
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

STOP_PATIENCE = 5.0  # seconds for what is still to be told
_left_to_the_parent: list[object] = []  # never collected: closing what is the parent's would close it for the parent


class LinkThread(Generic[L]):
    """The way to one link, opened when first used."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._thread: _Thread[L] | None = None
        self._loop_links = LoopLinks(opener)
        _link_threads.add(self)

    def call(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> T:
        if asyncio._get_running_loop() is not None:  # get_running_loop raises without one: six times as long
            warn_of_blocking()
        return self._thread_of_this_process().submit(work).result()

    async def acall(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> T:
        if (link := self._loop_links.link()) is not None:
            return await work(link)
        return await asyncio.wrap_future(self._thread_of_this_process().submit(work))

    def close(self) -> None:
        self._loop_links.close()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _thread_of_this_process(self) -> _Thread[L]:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = _Thread(self._opener)
                self._thread.start()
            return self._thread

    def restart_after_fork(self) -> None:
        """In a forked child: there is no thread here."""
        _left_to_the_parent.extend([self._thread, self._loop_links])
        self._loop_links = LoopLinks(self._opener)
        self._lock = threading.Lock()
        self._thread = None


class _Thread(threading.Thread, Generic[L]):
    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[L]]) -> None:
        super().__init__(name="pulse link", daemon=True)
        self._opener = opener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._opened: asyncio.Task[L] | None = None
        self._at_hand: L | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_to_stop: asyncio.Event | None = None

    def submit(self, work: Callable[[L], Coroutine[Any, Any, T]]) -> Future[T]:
        """asyncio.run_coroutine_threadsafe does the same through two more futures, a fifth of what an enqueue takes."""
        self._is_up.wait()
        assert self._loop is not None
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._begin, work, answer)
        return answer

    def _begin(self, work: Callable[[L], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        if answer.set_running_or_notify_cancel():  # whoever asked may have gone already
            task = asyncio.get_running_loop().create_task(self._do(work, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        self._is_up.wait()
        if self._loop is not None and self._is_to_stop is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._is_to_stop.set)
            self.join(STOP_PATIENCE)

    def run(self) -> None:
        event_loop.run(self._live())

    async def _live(self) -> None:
        self._loop, self._is_to_stop = asyncio.get_running_loop(), asyncio.Event()
        self._contexts: list[AbstractAsyncContextManager[L]] = []
        self._is_up.set()
        await self._is_to_stop.wait()
        for context in self._contexts:
            await context.__aexit__(None, None, None)

    async def _do(self, work: Callable[[L], Coroutine[Any, Any, T]], answer: Future[T]) -> None:
        try:
            found = await work(self._at_hand or await self._link())
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(found)

    async def _link(self) -> L:
        """Open it once for all who ask meanwhile; after a failure the next one tries again."""
        if self._opened is None or (self._opened.done() and self._failed(self._opened)):
            self._opened = asyncio.create_task(self._open())
        return await asyncio.shield(self._opened)

    async def _open(self) -> L:
        context = self._opener()
        link = await context.__aenter__()
        self._contexts.append(context)
        self._at_hand = link
        return link

    @staticmethod
    def _failed(task: asyncio.Task[L]) -> bool:
        return task.cancelled() or task.exception() is not None


_link_threads: WeakSet[LinkThread[Any]] = WeakSet()


@atexit.register
def _close_all() -> None:
    """A program that enqueues and ends has something left to tell those who wait for work."""
    for link_thread in list(_link_threads):
        link_thread.close()


def _restart_all_after_fork() -> None:
    for link_thread in list(_link_threads):
        link_thread.restart_after_fork()


os.register_at_fork(after_in_child=_restart_all_after_fork)
