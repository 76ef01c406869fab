"""What do the jobs of the demo do, and who works them?

Every 33rd job fails once, a dozen fail always, every 20th is delayed and every 10th is urgent. A handler pretends to
work by sleeping a little; all else is the engine as any application uses it.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pulse.model.errors import PulseError
from pulse.model.jobs import FINISHED, Claim, NewJob, Outcome, Report, Retry, TopicCount

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.engine.engine import Engine
    from pulse.store.jobs import Woken

SLOTS = 20  # jobs a consumer works at a time
LOOK_EVERY = 0.1  # seconds between two looks at the counts
PATIENCE = 120.0  # seconds; far more than a slow machine needs
IDLE = 0.25  # seconds until an idle consumer asks again, should a wake-up be missed
RETRY = Retry(kind="fixed", base=0.5)
ALWAYS = 1_000


class Kind(NamedTuple):
    topic: str
    task: str
    jobs: int
    works: float  # seconds
    error: str


KINDS = (
    Kind("images", "make_thumbnail", 1_200, 0.025, "image file is truncated"),
    Kind("mail", "send_receipt", 2_000, 0.010, "mail server answered 451, try again later"),
    Kind("payments", "capture_payment", 800, 0.015, "payment provider timed out"),
    Kind("reports", "build_report", 1_000, 0.020, "deadlock detected"),
)


class Order(msgspec.Struct):
    """The payload of a demo job."""

    number: int
    fails: int  # how many attempts


class HandlerFailed(Exception):
    """What a handler of the demo raises."""


def make_jobs() -> list[NewJob]:
    return [_make(kind, number) for kind in KINDS for number in range(kind.jobs)]


def _make(kind: Kind, number: int) -> NewJob:
    fails = ALWAYS if number % 400 == 7 else int(number % 33 == 0)
    return NewJob(
        task=kind.task,
        topic=kind.topic,
        payload=msgspec.json.encode(Order(number, fails)).decode(),
        priority=10 if number % 10 == 0 else 0,
        delay=timedelta(milliseconds=500 + number) if number % 20 == 3 else None,
        retry=RETRY,
        tags=("demo",),
    )


class Drain:
    """Consumers of all topics, until no job is left."""

    def __init__(self, engine: Engine) -> None:
        self.retried: Counter[str] = Counter()  # jobs that needed a second attempt, per topic
        self._engine = engine
        self._is_over = asyncio.Event()

    async def run(self, show: Callable[[list[TopicCount]], None]) -> float:
        """Answers with how many seconds it took."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for kind in KINDS:
                    _ = group.create_task(self._consume(kind))
                await self._watch(show)
        except TimeoutError:
            raise PulseError(f"the demo was not done after {PATIENCE:.0f} s, which it should be") from None
        except ExceptionGroup as problems:  # one consumer's problem ends the others, and is the one to tell
            raise problems.exceptions[0] from None
        return time.perf_counter() - started

    async def _watch(self, show: Callable[[list[TopicCount]], None]) -> None:
        while True:
            counts = await self._engine.jobs.counts()
            show(counts)
            if all(status in FINISHED for count in counts for status in count.counts):
                return self._is_over.set()
            await asyncio.sleep(LOOK_EVERY)

    async def _consume(self, kind: Kind) -> None:
        is_woken = asyncio.Event()

        def wake(woken: Woken) -> None:
            if woken.topic in (kind.topic, "*"):
                is_woken.set()

        self._engine.wakeups.on_wake(wake)
        while not self._is_over.is_set():
            is_woken.clear()
            claims = await self._engine.jobs.claim(kind.topic, worker=f"demo-{kind.topic}", slots=SLOTS)
            if not claims:
                await _wait(is_woken)
                continue
            self.retried[kind.topic] += sum(claim.attempt == 2 for claim in claims)
            reports = await asyncio.gather(*(_work(kind, claim) for claim in claims))
            _ = await self._engine.jobs.report(reports)


async def _wait(event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(IDLE):
            _ = await event.wait()
    except TimeoutError:
        pass


async def _work(kind: Kind, claim: Claim) -> Report:
    try:
        result = await _handle(kind, claim)
    except HandlerFailed as error:
        return Report(
            id=claim.id,
            lease_id=claim.lease_id,
            outcome=Outcome.FAIL,
            error=f"{type(error).__name__}: {error}",
            traceback=traceback.format_exc(),
        )
    return Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.COMPLETE, result=result)


async def _handle(kind: Kind, claim: Claim) -> str:
    order = msgspec.json.decode(claim.payload, type=Order)
    await asyncio.sleep(kind.works)
    if claim.attempt <= order.fails:
        raise HandlerFailed(kind.error)
    return msgspec.json.encode({"number": order.number, "attempt": claim.attempt}).decode()
