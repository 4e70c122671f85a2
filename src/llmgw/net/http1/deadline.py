"""One deadline of one connection, moved often and reached rarely.

Law: moving it costs an assignment. The loop's timer is armed only when none is set or the new
deadline is earlier; a timer that fires early arms itself again for the rest.
"""

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls `expired` once when the loop's time reaches the deadline last set."""

    __slots__ = ("_at", "_expired", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expired: Callable[[], None]) -> None:
        self._loop = loop
        self._expired = expired
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Move the deadline to `at`, in the loop's time."""
        self._at = at
        timer = self._timer
        if timer is None:
            self._timer = self._loop.call_at(at, self._fire)
        elif timer.when() > at:
            timer.cancel()
            self._timer = self._loop.call_at(at, self._fire)

    def clear(self) -> None:
        """There is no deadline now; a timer that runs is left to find that out."""
        self._at = None

    def cancel(self) -> None:
        """The connection is gone: leave no timer behind."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        at = self._at
        if at is None:
            return
        # uvloop's clock has whole milliseconds: a timer may fire that much before its time.
        if at - self._loop.time() > 0.001:
            self._timer = self._loop.call_at(at, self._fire)
            return
        self._at = None
        self._expired()
