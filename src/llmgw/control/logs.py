"""Carries an engine's log lines from its node to whoever asked, with a bound.

Law: a reader that is slower than the log loses the oldest lines and is told how many, it never makes
the node's stream wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

# A screenful times a hundred; beyond, a slow reader is told what it missed.
LINES_MAX = 5000


class LogChannel:
    """Lines as they come; implements `ports.LogFollower`."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._news = asyncio.Event()
        self._ended = False
        self._error: str | None = None
        self._leave = leave

    def give(self, lines: Sequence[str]) -> None:
        """Lines arrived."""
        self._lines.extend(lines)
        while len(self._lines) > LINES_MAX:
            self._lines.popleft()
            self._dropped += 1
        self._news.set()

    def end(self, error: str | None) -> None:
        """Nothing more comes; `error` says why there is less than was asked for."""
        self._ended, self._error = True, error
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                yield f"[{dropped} lines skipped: the reader was too slow]"
            while self._lines:
                yield self._lines.popleft()
            if self._ended:
                if self._error:
                    yield f"[{self._error}]"
                return
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """The reader leaves; the node stops following."""
        if not self._ended:
            self._leave()
            self.end(None)
