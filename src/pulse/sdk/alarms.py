"""What can a program do with alarms? Have a URL woken when it is time, and see what came of it."""

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

    from pulse.links.link import Waking
    from pulse.model.alarms import Alarm, Delivery, NewAlarm
    from pulse.sdk.app import Pulse

T = TypeVar("T")

PAGE = 100  # of what is iterated over


class Alarms:
    """`app.alarms`. Each method has a twin for coroutines, with an `a` in front.

    An alarm is called by its id, or by its name, and then by its owner where that is another than the program's own.
    When it fires is said by one of `at`, `delay` and `cron`; the other options are in docs/reference/alarms.md.
    """

    def __init__(self, app: Pulse) -> None:
        self._app = app

    # --- setting

    def set(self, name: str | None = None, *, conn: Any = None, **options: Unpack[AlarmOptions]) -> Alarm:  # noqa: ANN401
        """Set an alarm. One with a name replaces the alarm of that name; with a `key`, saying the same again changes
        nothing. With `conn` it commits or rolls back with the transaction that is open there."""
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
        """Return whose alarm it is: the one that is said, else the setting's; none: whose the link says."""
        return self._app.settings.alarm_owner if given is None else given

    def _new(self, name: str | None, conn: object, options: AlarmOptions) -> NewAlarm:
        settings = self._app.settings
        if (owner := self._owner(options.get("owner"))) is not None:
            options = {**options, "owner": owner}
        if conn is not None and options.get("owner") is None and settings.server_url and settings.token:
            # A server knows whose a token's alarms are, a database does not: they must not become two owners'.
            raise InvalidOption(
                "owner",
                None,
                "be given with conn, here or as PULSE_ALARM_OWNER (only the server knows the owner of a token)",
            )
        return read_new_alarm(name, options)

    # --- changing

    def cancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """End it. Cancelling it again changes nothing."""
        return self._call(lambda link: link.cancel(key, owner=self._owner(owner)))

    async def acancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.cancel(key, owner=self._owner(owner)))

    def pause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Deliver nothing until it is resumed."""
        return self._call(lambda link: link.pause(key, owner=self._owner(owner)))

    async def apause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.pause(key, owner=self._owner(owner)))

    def resume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Go on. What a timetable missed meanwhile is not made up for; a once alarm whose time has passed fires now."""
        return self._call(lambda link: link.resume(key, owner=self._owner(owner)))

    async def aresume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.resume(key, owner=self._owner(owner)))

    def fire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Deliver it now. A timetable goes on as before; one that has fired or failed is delivered once more."""
        return self._call(lambda link: link.fire(key, owner=self._owner(owner)))

    async def afire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.fire(key, owner=self._owner(owner)))

    # --- looking

    def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return self._call(lambda link: link.get(key, owner=self._owner(owner)))

    async def aget(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        return await self._acall(lambda link: link.get(key, owner=self._owner(owner)))

    def list(self, **wanted: Unpack[WantedAlarms]) -> Iterator[Alarm]:
        """All of them, newest first, read page by page. Without an owner: everybody's that one may see."""
        chosen = read_alarm_filter(wanted)
        return _each(
            lambda after: self._call(lambda link: link.list_page(chosen, after=after, limit=PAGE)),
            lambda page: page.alarms,
        )

    def alist(self, **wanted: Unpack[WantedAlarms]) -> AsyncIterator[Alarm]:
        """As `list`, for `async for`."""
        chosen = read_alarm_filter(wanted)
        return _aeach(
            lambda after: self._acall(lambda link: link.list_page(chosen, after=after, limit=PAGE)),
            lambda page: page.alarms,
        )

    def deliveries(self, key: UUID | str, *, owner: str | None = None) -> Iterator[Delivery]:
        """Every attempt to deliver it, newest first, read page by page."""
        return _each(
            lambda after: self._call(
                lambda link: link.deliveries(key, owner=self._owner(owner), after=after, limit=PAGE)
            ),
            lambda page: page.deliveries,
        )

    def adeliveries(self, key: UUID | str, *, owner: str | None = None) -> AsyncIterator[Delivery]:
        """As `deliveries`, for `async for`."""
        return _aeach(
            lambda after: self._acall(
                lambda link: link.deliveries(key, owner=self._owner(owner), after=after, limit=PAGE)
            ),
            lambda page: page.deliveries,
        )

    # --- shared

    def _call(self, work: Callable[[Waking], Coroutine[Any, Any, T]]) -> T:
        return self._app.link_thread.call(lambda link: work(link.alarms))

    async def _acall(self, work: Callable[[Waking], Coroutine[Any, Any, T]]) -> T:
        return await self._app.link_thread.acall(lambda link: work(link.alarms))


class Page(Protocol):
    @property
    def next(self) -> str | None: ...


P = TypeVar("P", bound=Page)


def _each(read: Callable[[str | None], P], items: Callable[[P], Sequence[T]]) -> Iterator[T]:
    page = read(None)
    yield from items(page)
    while page.next is not None:
        page = read(page.next)
        yield from items(page)


async def _aeach(read: Callable[[str | None], Awaitable[P]], items: Callable[[P], Sequence[T]]) -> AsyncIterator[T]:
    page = await read(None)
    while True:
        for item in items(page):
            yield item
        if page.next is None:
            return
        page = await read(page.next)
