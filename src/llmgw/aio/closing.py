"""Closes what a component opened, in reverse order.

Laws: everything is closed, whatever happens to the others; each has a bound, so that one which
hangs cannot keep the program from ending; failures are reported.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from llmgw.aio.tasks import Failed, FailureReport, outcome, report_to_log

CloseWork = Callable[[], Awaitable[None]]

# Longer than the bounds inside (drains have their own), shorter than a service manager's patience.
CLOSE_BOUND_S = 10.0


class Closing:
    """A stack of things to close; add each right after opening it."""

    def __init__(self, on_failure: FailureReport = report_to_log) -> None:
        self._stack: list[tuple[str, CloseWork, float]] = []
        self._on_failure = on_failure

    def add(self, name: str, close: CloseWork, *, bound_s: float = CLOSE_BOUND_S) -> None:
        """Have `close` called, before everything added earlier."""
        self._stack.append((name, close, bound_s))

    async def aclose(self) -> None:
        """Close everything. When cancelled meanwhile, abandons the one at hand, goes on, then raises."""
        cancelled: asyncio.CancelledError | None = None
        while self._stack:
            name, close, bound_s = self._stack.pop()
            try:
                async with asyncio.timeout(bound_s):
                    ended = await outcome(close())
            except TimeoutError as late:
                ended = Failed(late)
            except asyncio.CancelledError as stop:
                cancelled = stop
                continue
            if isinstance(ended, Failed):
                self._on_failure(f"closing {name}", ended.failure)
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
