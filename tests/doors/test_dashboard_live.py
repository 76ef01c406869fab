"""Do pages stay fresh, for everybody, at the cost of one?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from pulse.doors.dashboard.live import Live, PageUpdate
from pulse.engine.engine import Engine
from pulse.model.errors import DatabaseUnreachable
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.doors.http_client import Http, served_http
from tests.factories import submit_one

VIEWERS = 10


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):  # a page that takes long to draw, on a busy machine, is drawn less often
        while not is_so():
            await asyncio.sleep(0.005)


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


@asynccontextmanager
async def following(http: Http, path: str = "/live") -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
    """The events of a stream, as a browser reads them."""
    async with http.client.stream("GET", path, timeout=30) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer)


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    name, lines = "", []
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            lines.append(line.removeprefix("data: "))
        elif not line and name:
            yield name, "\n".join(lines)
            name, lines = "", []


async def test_a_stream_begins_with_the_page_as_it_is_and_tells_what_changes(http: Http, engine: Engine) -> None:
    async with following(http) as news:
        assert "All is well." in (await anext(news))[1]
        await submit_one(engine, topic="sudden")
        name, page = await anext(news)

    assert name == "page"
    assert "no worker is connected for sudden" in page


async def test_what_somebody_does_is_seen_at_once_by_the_others(http: Http, engine: Engine) -> None:
    await submit_one(engine)
    from tests.doors.test_dashboard_access import word_of

    word = word_of(await http.client.get("/"))
    async with following(http) as news:
        await anext(news)
        await http.client.post("/topics/mail/pause", data={"csrf": word})
        assert "mail is paused" in (await anext(news))[1]


async def test_ten_viewers_cost_what_one_costs(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    rows = Connection.rows

    async def counted(self: Connection, name: str, **given: Any) -> Any:
        asked[name] += 1
        return await rows(self, name, **given)

    monkeypatch.setattr(Connection, "rows", counted)

    async def looks(viewers: int) -> int:
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(following(http)) for _ in range(viewers)]
            for stream in streams:
                await anext(stream)
            asked.clear()
            await until(lambda: asked["read_recent"] >= 2)  # of the room, one after another
            return max(asked[name] for name in ("read_recent", "count_jobs", "read_series", "read_concerns"))

    alone, together = await looks(1), await looks(VIEWERS)

    assert together <= alone + 1


async def test_nobody_looks_when_nobody_watches(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    live: Live = http.server._http._server.config.app.state.live  # type: ignore[union-attr]
    async with following(http) as news:
        await anext(news)
        assert len(live._groups) == 1
    await until(lambda: not live._groups)


async def test_streams_do_not_hold_up_the_end_of_a_server(settings: Settings) -> None:
    async with served_http(settings) as http, following(http) as news:
        await anext(news)
        async with asyncio.timeout(5):
            await http.server.drain()
            assert [event async for event in news] == []


async def test_a_stream_whose_viewer_cannot_be_looked_up_ends_in_words_and_not_in_an_error(
    http: Http, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: object) -> None:
        raise DatabaseUnreachable("the database is away")

    async with following(http) as news:
        await anext(news)
        monkeypatch.setattr("pulse.doors.dashboard.app.SESSION_CHECK_INTERVAL", 0.0)
        monkeypatch.setattr("pulse.doors.dashboard.guard.Guard.find_visitor", away)
        await submit_one(engine)  # so that there is news
        assert [each async for each in news] == [("trouble", "the database is away")]

    assert not caplog.records


@pytest.mark.parametrize("path", ["/live/nowhere", "/live?range=century", "/live/jobs/x/y"])
async def test_a_stream_of_what_is_not_there_says_so(http: Http, path: str) -> None:
    if "range" in path:  # it may become right: the page says what is wrong
        async with following(http, path) as news:
            assert (await anext(news))[0] == "trouble"
    else:
        assert (await http.client.get(path)).status_code == 404


# --- rooms


class Drawn:
    """A page that changes when told to, and may fail."""

    def __init__(self) -> None:
        self.text, self.looks = "first", 0
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.text


async def test_trouble_is_told_once_and_so_is_its_end() -> None:
    live, drawn = Live(), Drawn()
    news = live.follow("key", drawn, 0.001)
    seen = [await anext(news)]
    drawn.error = DatabaseUnreachable("the database is away")
    seen.append(await anext(news))
    looks = drawn.looks
    await until(lambda: drawn.looks > looks + 2)
    drawn.error = None
    seen.append(await anext(news))
    await news.aclose()  # type: ignore[attr-defined]

    assert seen == [
        PageUpdate("page", "first"),
        PageUpdate("trouble", "the database is away"),
        PageUpdate("page", "first"),
    ]
    assert live._groups == {}


async def test_a_mistake_in_a_page_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    live, drawn = Live(), Drawn()
    drawn.error = ZeroDivisionError("secret")
    news = live.follow("key", drawn, 0.001)
    told = await anext(news)
    await news.aclose()  # type: ignore[attr-defined]

    assert told.event == "trouble"
    assert "secret" not in told.text
    assert "ZeroDivisionError" in caplog.text


async def test_who_looks_where_nobody_draws_any_more_is_sent_away() -> None:
    """And comes back to a room of its own."""

    async def cut() -> str:
        raise asyncio.CancelledError  # of something that it waited for

    live = Live()
    async with asyncio.timeout(5):
        assert [news async for news in live.follow("page", cut, 0.01)] == []
    assert not live._groups


async def test_who_comes_later_sees_what_there_is_at_once() -> None:
    live, drawn = Live(), Drawn()
    first = live.follow("key", drawn, 60)
    await anext(first)
    second = live.follow("key", drawn, 60)
    assert await anext(second) == PageUpdate("page", "first")
    assert drawn.looks == 1
    live.touch()
    drawn.text = "second"
    assert [(await anext(each)).text for each in (first, second)] == ["second", "second"]
    for each in (first, second):
        await each.aclose()  # type: ignore[attr-defined]


def test_a_page_travels_whole() -> None:
    text = "a\r\nb\n\ndata: c\rd\x00\ud800"

    encoded = PageUpdate("page", text).encode()

    assert encoded.startswith(b"event: page\n")
    assert encoded.endswith(b"\n\n")
    assert encoded.count(b"\ndata: ") == 5
    assert b"\r" not in encoded
