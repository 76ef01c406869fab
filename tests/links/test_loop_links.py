"""Does a loop that calls more than once get a link of its own, and is it closed with the loop?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pulse.links.link_thread import LinkThread


class Opener:
    """Links that are the name of the thread they live on, and how many are open."""

    def __init__(self) -> None:
        self.opened = self.open = 0
        self.is_broken = False

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        await asyncio.sleep(0)
        if self.is_broken and threading.current_thread() is threading.main_thread():
            raise ConnectionRefusedError
        self.opened += 1
        self.open += 1
        try:
            yield threading.current_thread().name
        finally:
            self.open -= 1


async def where(link: str) -> str:
    return link


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def link_thread(opener: Opener) -> LinkThread[str]:
    return LinkThread(opener)


async def ask(link_thread: LinkThread[str], times: int) -> list[str]:
    answers = []
    for _ in range(times):
        answers.append(await link_thread.acall(where))
        await asyncio.sleep(0.01)
    return answers


def test_a_loop_that_calls_once_goes_through_the_portal(link_thread: LinkThread[str], opener: Opener) -> None:
    assert [asyncio.run(link_thread.acall(where)) for _ in range(3)] == ["pulse link"] * 3
    assert opener.opened == 1
    link_thread.close()


def test_one_that_calls_on_is_answered_on_its_own_loop(link_thread: LinkThread[str], opener: Opener) -> None:
    assert asyncio.run(ask(link_thread, 4)) == ["pulse link", "pulse link", "MainThread", "MainThread"]
    assert opener.open == 1, "the loop's own was closed with the loop, the link_thread's is still there"
    link_thread.close()
    assert opener.open == 0


def test_what_is_asked_while_it_opens_goes_through_the_portal(link_thread: LinkThread[str], opener: Opener) -> None:
    async def many() -> None:
        await link_thread.acall(where)
        await asyncio.gather(*(link_thread.acall(where) for _ in range(50)))
        await ask(link_thread, 1)
        assert await link_thread.acall(where) == "MainThread"

    asyncio.run(many())
    assert opener.opened == 2
    link_thread.close()


def test_each_loop_has_its_own(link_thread: LinkThread[str], opener: Opener) -> None:
    def work(found: list[str]) -> None:
        found += asyncio.run(ask(link_thread, 3))

    found: list[str] = []
    threads = [threading.Thread(target=work, args=(found,), name=f"loop {n}") for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == ["loop 0", "loop 1", "loop 2", *["pulse link"] * 6]
    link_thread.close()
    assert (opener.opened, opener.open) == (4, 0)


def test_where_none_can_be_opened_the_portal_goes_on_and_it_is_tried_again(
    link_thread: LinkThread[str], opener: Opener
) -> None:
    async def work() -> None:
        opener.is_broken = True
        assert await ask(link_thread, 4) == ["pulse link"] * 4
        opener.is_broken = False
        assert (await ask(link_thread, 3))[-1] == "MainThread"

    asyncio.run(work())
    link_thread.close()


def test_closing_the_portal_closes_those_of_loops_that_run(link_thread: LinkThread[str], opener: Opener) -> None:
    async def work() -> None:
        await ask(link_thread, 3)
        assert opener.open == 2
        await asyncio.to_thread(link_thread.close)
        await asyncio.sleep(0.01)
        assert opener.open == 0
        assert await ask(link_thread, 3) == ["pulse link", "pulse link", "MainThread"]

    asyncio.run(work())
    link_thread.close()
    assert opener.open == 0


def test_an_error_reaches_the_caller(link_thread: LinkThread[str]) -> None:
    async def fail(_: str) -> None:
        raise LookupError("nothing there")

    async def work() -> None:
        for _ in range(3):
            with pytest.raises(LookupError, match="nothing there"):
                await link_thread.acall(fail)
            await asyncio.sleep(0.01)

    asyncio.run(work())
    link_thread.close()
