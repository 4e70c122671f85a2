"""Starts every task of the program, keeps it referenced, and says when one fails.

Laws: nothing else creates a task (a task nobody references may be collected while it runs), and
nothing else catches `Exception`; a failure is always either returned to someone or reported.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Self, TypeVar

import msgspec

T = TypeVar("T")

FailureReport = Callable[[str, BaseException], None]

_LOG = logging.getLogger("llmgw.tasks")


def report_to_log(what: str, failure: BaseException) -> None:
    """Write a failure with its traceback to the log; what happens to failures unless told otherwise."""
    _LOG.error("%s failed: %s", what, str(failure) or type(failure).__name__, exc_info=failure)


class Tasks:
    """Owns the tasks of one component: keeps them referenced, reports failures, cancels them on close.

    A task that ends by an exception is reported once, by its name, whether or not somebody awaits it.
    Cancellation is no failure.
    """

    def __init__(self, on_failure: FailureReport = report_to_log) -> None:
        self._running: set[asyncio.Task[object]] = set()
        self._on_failure = on_failure
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, work: Coroutine[object, object, T], *, name: str) -> asyncio.Task[T]:
        """Run `work` as a task of this owner. After `aclose` it is refused with `RuntimeError`."""
        if self._closed:
            work.close()
            raise RuntimeError(f"task {name!r} was started after its owner had closed")
        if self._loop is None:  # asking each time costs a system call
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def __len__(self) -> int:
        return len(self._running)

    def cancel(self) -> None:
        """Ask every task to stop; does not wait and does not close the owner."""
        for task in tuple(self._running):
            task.cancel()

    async def settled(self) -> None:
        """Wait until no task is left, without cancelling any."""
        while self._running:
            await asyncio.wait(tuple(self._running))

    async def aclose(self) -> None:
        """Cancel every task and wait until all have ended. May be called from one of them; idempotent."""
        self._closed = True
        caller = asyncio.current_task()
        while others := [task for task in self._running if task is not caller]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            self._on_failure(task.get_name(), failure)


class Failed(msgspec.Struct, frozen=True):
    """The outcome of work that raised."""

    failure: Exception


async def outcome(work: Awaitable[T]) -> T | Failed:
    """What `work` returned, or the `Exception` it raised as a value; cancellation passes through."""
    try:
        return await work
    except Exception as failure:  # noqa: BLE001  the one place that may
        return Failed(failure)


def outcome_of(work: Callable[[], T]) -> T | Failed:
    """The same for a plain call: for callbacks given by others, which must not break their caller."""
    try:
        return work()
    except Exception as failure:  # noqa: BLE001  the one place that may
        return Failed(failure)


def guarded(call: Callable[[T], None], failed: Callable[[Exception], None]) -> Callable[[T], None]:
    """`call` with its failures given to `failed`: for a callback that others gave and the loop runs."""

    def run(value: T) -> None:
        try:
            call(value)
        except Exception as failure:  # noqa: BLE001  the one place that may
            failed(failure)

    return run
