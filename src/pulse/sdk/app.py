"""What is an app? The one object that a program makes: it holds the tasks and reaches the database."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID
from weakref import WeakSet

from pulse.model.errors import InvalidInput, InvalidOption, InvalidSettings, InvalidTask
from pulse.model.jobs import Job, NewJob
from pulse.sdk.alarms import Alarms
from pulse.sdk.arguments import Result
from pulse.sdk.context import Context, current
from pulse.sdk.handle import JobHandle
from pulse.sdk.options import Length, Options, Retry, read_aliases
from pulse.sdk.schedules import Schedules
from pulse.sdk.task import Call, Executor, Task
from pulse.settings import Settings, suggest_setting
from pulse.telemetry.tracing import Enqueueing

if TYPE_CHECKING:
    from pulse.links.link import ProducerLink
    from pulse.links.link_thread import LinkThread

P = ParamSpec("P")
R = TypeVar("R")

EXAMPLE_ID = "01998e5c-7a40-7bd2-a3ea-0f2ce83f7000"
SETTING_NAMES = {field.name for field in fields(Settings)}
OF_ONE_JOB = {"run_at", "unique_key", "unique_window", "conn"}
OPTION_NAMES = {field.name for field in fields(Options)} - OF_ONE_JOB
Hook = Callable[[], Any]
Next = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, Next], Awaitable[Any]]
DeadLetterHook = Callable[[Job], Any]
H = TypeVar("H", bound=Hook)
M = TypeVar("M", bound=Middleware)
D = TypeVar("D", bound=DeadLetterHook)


class _Anything:
    """A type that only `object` and `Any` accept: a function that takes it first does not ask for the context."""


class TaskDecorator(Protocol):
    """The type of `@app.task(…)` with options: which task it makes of each kind of function."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[_Anything, ...], Coroutine[Any, Any, R]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[_Anything, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Pulse:
    """The tasks of an application, and its connection to the database or a server.

    Settings come from the environment (`PULSE_DATABASE_URL`, `DATABASE_URL`, …); those given here win. It connects
    when it is first used.
    """

    _apps: ClassVar[WeakSet[Pulse]] = WeakSet()  # every app of this process, for pulse.testing

    def __init__(self, database_url: str | None = None, *, settings: Settings | None = None, **overrides: Any) -> None:  # noqa: ANN401
        if unknown := overrides.keys() - SETTING_NAMES:
            name = min(unknown)
            raise InvalidSettings(f"there is no setting {name!r}: {suggest_setting(name, sorted(SETTING_NAMES))}")
        if settings is not None and (overrides or database_url is not None):
            raise InvalidSettings("give settings, or a database URL and single settings, not both")
        self._given_settings = settings
        self._overrides = overrides | {"database_url": database_url}
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self._aliases: dict[str, Task[..., Any, Any]] = {}
        self.startup_hooks: list[Hook] = []
        self.shutdown_hooks: list[Hook] = []
        self.middlewares: list[Middleware] = []
        self.dead_letter_hooks: list[DeadLetterHook] = []
        self.schedules = Schedules(self)
        self.alarms = Alarms(self)
        self.made_in: str = sys._getframe(1).f_globals.get("__name__", "")  # the module, see name_of in locate.py
        self._apps.add(self)

    @cached_property
    def settings(self) -> Settings:
        return self._given_settings or Settings.from_env(**self._overrides)

    # --- declaring

    @overload
    def task(
        self, function: Callable[Concatenate[_Anything, ...], Coroutine[Any, Any, R]], /
    ) -> Task[..., R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[Concatenate[_Anything, ...], R], /) -> Task[..., R, R]: ...
    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        executor: Executor = "auto",
        topic: str | None = None,
        priority: int | None = None,
        delay: Length | None = None,
        retry: Retry | int | None = None,
        timeout: Length | None = None,
        deadline: Length | None = None,
        result_ttl: Length | None = None,
        tags: Sequence[str] | None = None,
        cron: str | None = None,
        every: Length | None = None,
        tz: str | None = None,
    ) -> TaskDecorator: ...
    def task(self, function: Callable[..., Any] | None = None, **given: Any) -> Any:
        """Declare a task: `@app.task`, or `@app.task(topic="mail", retry=Retry(5), timeout="30s")`.

        With `cron="0 9 * * 1-5", tz="Europe/Berlin"` or `every="5m"` it also declares a schedule of the same name.
        """
        when = {name: given.pop(name, None) for name in ("cron", "every", "tz")}

        def declare(function: Callable[..., Any]) -> Task[..., Any, Any]:
            task = self._make_task(function, **given)
            self._check_names(task)
            self.schedules.declare_for(task, **when)
            self.tasks[task.name] = task
            self._aliases |= dict.fromkeys(task.aliases, task)
            return task

        return declare if function is None else declare(function)

    def _make_task(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        executor: Executor = "auto",
        retry: Retry | int | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Task[..., Any, Any]:
        if unknown := options.keys() - OPTION_NAMES:
            known = ", ".join(sorted({"name", "aliases", "executor", "cron", "every", "tz", *OPTION_NAMES}))
            raise InvalidOption("option of a task", min(unknown), f"be one of {known}")
        check_function(function)
        return Task(
            self,
            function,
            name=name or own_name(function),
            aliases=read_aliases(aliases),
            executor=executor,
            options=Options(retry=Retry(retry) if isinstance(retry, int) else retry, **options),
        )

    def _check_names(self, task: Task[..., Any, Any]) -> None:
        for name in (task.name, *task.aliases):
            if other := self.find_task(name):
                raise InvalidTask(
                    f"the name {name!r} is taken by {_source_of(other)}, so {_source_of(task)} needs another: "
                    'give it one with @app.task(name="…")'
                )

    def find_task(self, name: str) -> Task[..., Any, Any] | None:
        try:
            return self.tasks.get(name) or self._aliases.get(name)
        except TypeError:  # the value cannot be hashed, so it is not a name
            raise InvalidInput(f"name must be the name of a task, not {name!r}") from None

    @property
    def topics(self) -> list[str]:
        """Return the default topics of the tasks, and those of their former names."""
        named = [topic for task in self.tasks.values() for topic in (task.topic, *_former_topics(task))]
        return list(dict.fromkeys(named))

    def on_startup(self, hook: H) -> H:
        """Register a function that each worker calls before its first job, sync or async."""
        self.startup_hooks.append(hook)
        return hook

    def on_shutdown(self, hook: H) -> H:
        """Register a function that each worker calls after its last job."""
        self.shutdown_hooks.append(hook)
        return hook

    def middleware(self, around: M) -> M:
        """Register a function that runs around every handler.

        `async def around(ctx, run): …; result = await run(); …; return result`
        """
        self.middlewares.append(around)
        return around

    def on_dead_letter(self, hook: D) -> D:
        """Register a function that is called with each job that fails for good, by the worker that notices it.

        It is a hint that may be missed, not a record.
        """
        self.dead_letter_hooks.append(hook)
        return hook

    # --- enqueueing

    @cached_property
    def link_thread(self) -> LinkThread[ProducerLink]:
        from pulse.links.link_thread import LinkThread

        return LinkThread(self._open_link)

    @asynccontextmanager
    async def _open_link(self) -> AsyncIterator[ProducerLink]:
        from pulse.links.opening import open_link

        async with open_link(self.settings) as link:
            link.start_notifying()
            yield link

    def enqueue_many(self, calls: Iterable[Call[Any]], *, conn: Any = None) -> list[JobHandle[Any]]:  # noqa: ANN401
        """Enqueue many jobs, all or none of them: `app.enqueue_many(send.call(user.id) for user in users)`."""
        calls = _read_calls(calls)
        ids = self.submit([call.job for call in calls], conn=conn)
        return [JobHandle(self, job_id, call.task.result) for job_id, call in zip(ids, calls, strict=True)]

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, conn: Any = None) -> list[JobHandle[Any]]:  # noqa: ANN401
        calls = _read_calls(calls)
        ids = await self.asubmit([call.job for call in calls], conn=conn)
        return [JobHandle(self, job_id, call.task.result) for job_id, call in zip(ids, calls, strict=True)]

    def submit(self, jobs: list[NewJob], *, conn: Any = None) -> list[UUID]:  # noqa: ANN401
        """Enqueue jobs given as values, where the program does not have the tasks themselves."""
        _check_jobs(jobs)
        with Enqueueing(jobs, parent=_current_job_id()) as enqueueing:
            return enqueueing.sent(self._submit(enqueueing.jobs, conn))

    async def asubmit(self, jobs: list[NewJob], *, conn: Any = None) -> list[UUID]:  # noqa: ANN401
        _check_jobs(jobs)
        with Enqueueing(jobs, parent=_current_job_id()) as enqueueing:
            return enqueueing.sent(await self._asubmit(enqueueing.jobs, conn))

    def _submit(self, jobs: list[NewJob], conn: Any) -> list[UUID]:  # noqa: ANN401
        if conn is not None:
            from pulse.links.transactions import enqueue_through

            self._refuse_masked(jobs)
            return enqueue_through(conn, jobs, schema=self.settings.schema, notify=self.settings.notify)
        return [answer.id for answer in self.link_thread.call(lambda link: link.submit(jobs))]

    async def _asubmit(self, jobs: list[NewJob], conn: Any) -> list[UUID]:  # noqa: ANN401
        if conn is not None:
            from pulse.links.transactions import aenqueue_through

            self._refuse_masked(jobs)
            return await aenqueue_through(conn, jobs, schema=self.settings.schema, notify=self.settings.notify)
        return [answer.id for answer in await self.link_thread.acall(lambda link: link.submit(jobs))]

    def _refuse_masked(self, jobs: list[NewJob]) -> None:
        for job in jobs:
            self.settings.redaction.refuse_masked(job.payload)

    def handle(self, job_id: UUID | str) -> JobHandle[Any]:
        """Return the handle of a job, by the id that the program kept."""
        return JobHandle(self, _read_id(job_id), Result("", lambda: None))

    def close(self) -> None:
        """Close the connection. The next use of the app connects again."""
        if "link_thread" in self.__dict__:
            self.link_thread.close()


def _read_calls(calls: object) -> list[Call[Any]]:
    """Return the calls as a list, or refuse values that are not calls, such as tasks and handles."""
    given = list(calls) if isinstance(calls, Iterable) and not isinstance(calls, str | bytes | Mapping) else None
    wrong = None if given is None else next((each for each in given if not isinstance(each, Call)), None)
    if given is None or wrong is not None:
        found = "" if wrong is None else f", not {_describe(wrong)}"
        raise InvalidInput(f"enqueue_many takes calls of tasks, such as [send.call(1), send.call(2)]{found}")
    return given


def _describe(thing: object) -> str:
    match thing:
        case Task():
            return f"the task {thing.name} itself: write {thing.__name__}.call(…)"
        case JobHandle():
            return f"{thing!r}, which is enqueued already"
    return f"a value of type {type(thing).__name__}"


def _current_job_id() -> UUID | None:
    """Return the id of the job whose handler is running here, or None."""
    context = current.get()
    return None if context is None else context.job_id


def _check_jobs(jobs: object) -> None:
    if not isinstance(jobs, list) or not all(isinstance(job, NewJob) for job in jobs):
        raise InvalidInput("submit takes a list of NewJob: use enqueue_many for calls of tasks")


def _read_id(job_id: object) -> UUID:
    if isinstance(job_id, UUID):
        return job_id
    try:
        return UUID(job_id)  # type: ignore[arg-type]
    except (ValueError, TypeError, AttributeError):
        shown = repr(job_id)[:100]
        raise InvalidInput(f"job_id must be the id of a job, such as {EXAMPLE_ID}, not {shown}") from None


def check_function(function: object) -> None:
    """Refuse anything but a function: a worker finds it by its name and calls it by its signature."""
    if not callable(function):
        raise InvalidTask(f"{function!r} is not a function")
    if not hasattr(function, "__qualname__"):
        kind = "partial" if isinstance(function, partial) else f"{type(function).__name__} object"
        raise InvalidTask(f"{function!r} is a {kind}, which has no name: define a function that calls it")


def own_name(function: Callable[..., Any]) -> str:
    """Return the name by which workers find the function and which lists show."""
    found = default_name(function)
    if "<lambda>" in found:
        raise InvalidTask(
            'a lambda has no name by which a worker could find it: define a function, or give it a name with name="…"'
        )
    return found


def default_name(function: Callable[..., Any]) -> str:
    """Return `module.function`. A script is named for its file, because "__main__" is another module elsewhere."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if "<locals>" in name or "<lambda>" in name:
        name = name.replace("<locals>.", "")
    if module == "__main__":
        module = main_module_name()
    module = module.removesuffix(".__main__")  # python -m package, seen from another process
    return f"{module}.{name}" if module else name


def main_module_name() -> str:
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m package.module
        return str(spec.name).removesuffix(".__main__")
    path = str(getattr(main, "__file__", "") or "__main__")
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _former_topics(task: Task[..., Any, Any]) -> Iterable[str]:
    """Return the topics of jobs that were enqueued under former names: a task without a topic uses its name."""
    return () if task.options.topic else task.aliases


def _source_of(task: Task[..., Any, Any]) -> str:
    code = getattr(task.function, "__code__", None)
    return f"{task.function.__qualname__} ({code.co_filename}:{code.co_firstlineno})" if code else repr(task.function)
