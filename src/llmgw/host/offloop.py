"""Runs what may block away from the loop, each with a bound (A17b).

Laws: the loop never waits for a thread longer than it said; a thread that hangs keeps its slot, so that
hung disks and tools cannot pile up without end, and it is a daemon, so that it cannot keep the program
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

    async def run(self, work: Callable[[], T], *, within: float | None) -> T:
        """What `work` returns or raises. `TimeoutError` when that, or a free slot, takes too long."""
        async with asyncio.timeout(within):
            await self._slots.acquire()
            loop = asyncio.get_running_loop()
            done: asyncio.Future[T] = loop.create_future()

            def deliver(result: T | Failed) -> None:
                self._slots.release()
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
