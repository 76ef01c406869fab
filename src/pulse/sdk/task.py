"""What is a task? A function with a name, and the methods that have a worker run it later."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_type_hints

from pulse.model.errors import InvalidOption, InvalidTask
from pulse.model.text import check_name
from pulse.sdk.arguments import Arguments, Result
from pulse.sdk.context import Context, current, placeholder_context
from pulse.sdk.handle import JobHandle
from pulse.sdk.options import Length, Options, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pulse.model.jobs import NewJob
    from pulse.sdk.app import Pulse

P = ParamSpec("P")  # the arguments, without a leading context
R = TypeVar("R")  # the result of the job
C = TypeVar("C")  # what a direct call returns: R, or a coroutine of it

Executor = Literal["auto", "process"]
Where = Literal["loop", "thread", "process"]


class Call(Generic[R]):
    """A call of a task, serialized and checked, to pass to `app.enqueue_many`."""

    __slots__ = ("job", "task")

    def __init__(self, task: Task[Any, R, Any], job: NewJob) -> None:
        self.task = task
        self.job = job


class Task(Generic[P, R, C]):
    """A function that runs here when it is called, and on a worker when it is enqueued."""

    def __init__(
        self,
        app: Pulse,
        function: Callable[..., Any],
        *,
        name: str,
        aliases: tuple[str, ...] = (),
        executor: Executor = "auto",
        options: Options,
    ) -> None:
        if not callable(function):
            raise InvalidTask(f"{function!r} is not a function")
        _refuse_method(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidTask(f"task {name!r} must not be a generator: return the result instead of yielding it")
        if executor not in ("auto", "process"):
            raise InvalidTask(f"executor of task {name!r} must be auto or process, not {executor!r}")
        self.app = app
        self.function = function
        self.name = check_name("task", name)
        self.aliases = tuple(check_name("alias", alias) for alias in aliases)
        self.is_async = inspect.iscoroutinefunction(function)
        self.where: Where = "process" if executor == "process" else "loop" if self.is_async else "thread"
        self.takes_context = _takes_context(function)
        self.arguments = Arguments(
            name, function, takes_context=self.takes_context, redaction=lambda: app.settings.redaction
        )
        self.result = Result(name, function, redaction=lambda: app.settings.redaction)
        self.options = options
        self.make = options.maker(name)  # makes a job from a payload that fits the function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here. If it takes a context, it gets that of the current job, or a placeholder."""
        if self.takes_context and not (args and isinstance(args[0], Context)):
            return self.function(current.get() or placeholder_context(self.name), *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    @property
    def topic(self) -> str:
        return self.options.topic or self.name

    def using(
        self,
        *,
        topic: str | None = None,
        priority: int | None = None,
        delay: Length | None = None,
        run_at: datetime | None = None,
        retry: Retry | int | None = None,
        timeout: Length | None = None,
        deadline: datetime | Length | None = None,
        unique_key: str | None = None,
        unique_window: Length | None = None,
        result_ttl: Length | None = None,
        tags: Sequence[str] | None = None,
        conn: Any = None,  # noqa: ANN401  a connection of any supported driver
    ) -> Task[P, R, C]:
        """Return a copy of this task with other options. The task itself stays as it is."""
        over = Options(
            topic=topic,
            priority=priority,
            delay=delay,
            run_at=run_at,
            retry=Retry(retry) if isinstance(retry, int) else retry,
            timeout=timeout,
            deadline=deadline,
            unique_key=unique_key,
            unique_window=unique_window,
            result_ttl=result_ttl,
            tags=tags,
            conn=conn,
        )
        copy: Task[P, R, C] = object.__new__(Task)
        copy.__dict__.update(self.__dict__)
        copy.options = self.options.merged(over)
        copy.make = replace(copy.options, conn=None).maker(self.name)
        return copy

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job that runs this task with these arguments. For coroutines there is `aenqueue`."""
        [job_id] = self.app.submit([self._job(args, kwargs)], conn=self.options.conn)
        return JobHandle(self.app, job_id, self.result)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue a job that runs this task with these arguments, from a coroutine."""
        [job_id] = await self.app.asubmit([self._job(args, kwargs)], conn=self.options.conn)
        return JobHandle(self.app, job_id, self.result)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return a checked call, to be enqueued together with others: `app.enqueue_many([...])`."""
        if self.options.conn is not None:  # enqueue_many would ignore it and enqueue outside the transaction
            given = type(self.options.conn).__name__
            raise InvalidOption("conn", given, "be unset for call() (give it to app.enqueue_many(calls, conn=…))")
        return Call(self, self._job(args, kwargs))

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        return self.make(self.arguments.pack(args, kwargs))


def _refuse_method(function: Callable[..., Any]) -> None:
    """Refuse a method: a worker has no object to call it on."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        raise InvalidTask(
            f"{function!r} cannot be a task, because its parameters cannot be read: define a function that calls it"
        ) from None
    where = str(getattr(function, "__qualname__", "")).rpartition("<locals>.")[2]
    if "." in where and parameters[:1] in (["self"], ["cls"]):
        raise InvalidTask(
            f"{where} is a method, and a worker has no object to call it on: define a function that creates the object"
        )


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(function)[parameters[0].name]
        except (NameError, TypeError):  # another annotation may name a class that the module defines further down
            return str(annotation).rpartition(".")[2] == Context.__name__
    return annotation is Context
