"""Runs what may block away from the loop, each with a bound (A17b).

Laws: the loop never waits for a thread longer than it said; a thread that hangs keeps its slot, so that
hung disks and tools cannot pile up without end, and what is known to hang is not given a second one, so
that it cannot take the slots of everything else; a thread is a daemon, so that it cannot keep the program
from ending (the executors of the standard library are joined at exit).
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from llmgw.aio.tasks import Failed, outcome_of

T = TypeVar("T")

SLOTS = 16  # more hang only when many disks do; then waiting for a slot is as good an answer


class OffLoop:
    """A bounded number of threads, one a call."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._busy: dict[str, asyncio.Event] = {}

    async def run(self, work: Callable[[], T], *, within: float | None, at: str | None = None) -> T:
        """What `work` returns or raises. `TimeoutError` when that, or a free slot, takes too long.

        `at` names what may hang, such as a path: calls on one such thing follow each other, so that a
        thing that hangs holds one slot, however often it is tried again.
        """
        async with asyncio.timeout(within):
            await self._take(at)
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()

            def deliver(result: T | Failed) -> None:
                self._give_back(at)
                if done.done():
                    return
                if isinstance(result, Failed):
                    done.set_exception(result.failure)
                else:
                    done.set_result(result)

            def body() -> None:
                result = outcome_of(work)
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(deliver, result)

            threading.Thread(target=body, daemon=True, name="llmgw-offloop").start()
            return await done

    async def _take(self, at: str | None) -> None:
        if at is not None:
            while (earlier := self._busy.get(at)) is not None:
                await earlier.wait()
            self._busy[at] = asyncio.Event()
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            self._free(at)
            raise

    def _give_back(self, at: str | None) -> None:
        self._slots.release()
        self._free(at)

    def _free(self, at: str | None) -> None:
        if at is not None:
            self._busy.pop(at).set()
