"""What can a program do with alarms? Set and change them, and read what became of each delivery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pulse.model.errors import InvalidOption
from pulse.sdk.alarm_options import AlarmOptions, WantedAlarms, read_alarm_filter, read_new_alarm
from pulse.sdk.python_words import in_python_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from typing import Unpack
    from uuid import UUID

    from pulse.links.link import AlarmsLink
    from pulse.model.alarms import Alarm, Delivery, NewAlarm
    from pulse.sdk.app import Pulse

T = TypeVar("T")

PAGE_SIZE = 100  # items read at once by the iterators


class Alarms:
    """`app.alarms`. Each method has a twin for coroutines, with an `a` in front.

    An alarm is found by its id, or by its name and owner; the owner may be left out if it is the program's own.
    One of `at`, `delay` and `cron` sets when it fires; the other options are in docs/reference/alarms.md.
    """

    def __init__(self, app: Pulse) -> None:
        self._app = app

    # --- setting

    def set(self, name: str | None = None, *, conn: Any = None, **options: Unpack[AlarmOptions]) -> Alarm:  # noqa: ANN401
        """Set an alarm. One with a name replaces the alarm of that name; with a `key`, setting the same alarm again
        changes nothing. With `conn` it commits or rolls back with the transaction that is open there."""
        with in_python_words():
            new = self._new(name, conn, options)
            if conn is None:
                return self._call(lambda link: link.set(new)).alarm
            from pulse.links.alarm_transactions import set_alarm_through

            return set_alarm_through(conn, new, self._app.settings).alarm

    async def aset(self, name: str | None = None, *, conn: Any = None, **options: Unpack[AlarmOptions]) -> Alarm:  # noqa: ANN401
        with in_python_words():
            new = self._new(name, conn, options)
            if conn is None:
                return (await self._acall(lambda link: link.set(new))).alarm
            from pulse.links.alarm_transactions import aset_alarm_through

            return (await aset_alarm_through(conn, new, self._app.settings)).alarm

    def _owner(self, given: str | None) -> str | None:
        """Return the given owner, else the one of the settings; None leaves it to the link."""
        return self._app.settings.alarm_owner if given is None else given

    def _new(self, name: str | None, conn: object, options: AlarmOptions) -> NewAlarm:
        settings = self._app.settings
        if (owner := self._owner(options.get("owner"))) is not None:
            options = {**options, "owner": owner}
        if conn is not None and options.get("owner") is None and settings.server_url and settings.token:
            # Only a server knows the owner that belongs to a token. Set through the database without that owner, the
            # alarm would belong to somebody else.
            raise InvalidOption(
                "owner",
                None,
                "be given with conn, here or as PULSE_ALARM_OWNER (only the server knows the owner of a token)",
            )
        return read_new_alarm(name, options)

    # --- changing

    def cancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Cancel the alarm. Cancelling it again changes nothing."""
        return self._call(lambda link: link.cancel(key, owner=self._owner(owner)))

    async def acancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.cancel(key, owner=self._owner(owner)))

    def pause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Pause the alarm: nothing is delivered until it is resumed."""
        return self._call(lambda link: link.pause(key, owner=self._owner(owner)))

    async def apause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.pause(key, owner=self._owner(owner)))

    def resume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Resume the alarm. What a cron alarm missed while paused is not delivered; one that fires once and whose time
        has passed fires now."""
        return self._call(lambda link: link.resume(key, owner=self._owner(owner)))

    async def aresume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.resume(key, owner=self._owner(owner)))

    def fire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Deliver the alarm now. Its timetable stays as it is; one that has fired or failed is delivered once more."""
        return self._call(lambda link: link.fire(key, owner=self._owner(owner)))

    async def afire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.fire(key, owner=self._owner(owner)))

    # --- reading

    def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return self._call(lambda link: link.get(key, owner=self._owner(owner)))

    async def aget(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.get(key, owner=self._owner(owner)))

    def list(self, **wanted: Unpack[WantedAlarms]) -> Iterator[Alarm]:
        """Iterate over alarms, newest first, page by page. Without an owner: all that the caller may see."""
        chosen = read_alarm_filter(wanted)
        return _iterate(
            lambda after: self._call(lambda link: link.list_page(chosen, after=after, limit=PAGE_SIZE)),
            lambda page: page.alarms,
        )

    def alist(self, **wanted: Unpack[WantedAlarms]) -> AsyncIterator[Alarm]:
        """Iterate like `list`, with `async for`."""
        chosen = read_alarm_filter(wanted)
        return _aiterate(
            lambda after: self._acall(lambda link: link.list_page(chosen, after=after, limit=PAGE_SIZE)),
            lambda page: page.alarms,
        )

    def deliveries(self, key: UUID | str, *, owner: str | None = None) -> Iterator[Delivery]:
        """Iterate over the attempts to deliver the alarm, newest first, page by page."""
        return _iterate(
            lambda after: self._call(
                lambda link: link.deliveries(key, owner=self._owner(owner), after=after, limit=PAGE_SIZE)
            ),
            lambda page: page.deliveries,
        )

    def adeliveries(self, key: UUID | str, *, owner: str | None = None) -> AsyncIterator[Delivery]:
        """Iterate like `deliveries`, with `async for`."""
        return _aiterate(
            lambda after: self._acall(
                lambda link: link.deliveries(key, owner=self._owner(owner), after=after, limit=PAGE_SIZE)
            ),
            lambda page: page.deliveries,
        )

    # --- shared

    def _call(self, work: Callable[[AlarmsLink], Coroutine[Any, Any, T]]) -> T:
        return self._app.link_thread.call(lambda link: work(link.alarms))

    async def _acall(self, work: Callable[[AlarmsLink], Coroutine[Any, Any, T]]) -> T:
        return await self._app.link_thread.acall(lambda link: work(link.alarms))


class Page(Protocol):
    @property
    def next(self) -> str | None: ...


P = TypeVar("P", bound=Page)


def _iterate(read: Callable[[str | None], P], items: Callable[[P], Sequence[T]]) -> Iterator[T]:
    page = read(None)
    yield from items(page)
    while page.next is not None:
        page = read(page.next)
        yield from items(page)


async def _aiterate(read: Callable[[str | None], Awaitable[P]], items: Callable[[P], Sequence[T]]) -> AsyncIterator[T]:
    page = await read(None)
    while True:
        for item in items(page):
            yield item
        if page.next is None:
            return
        page = await read(page.next)
