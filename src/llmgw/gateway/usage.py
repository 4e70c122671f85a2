"""Keeps usage rows until the control plane has stored them, in numbered batches with a bound (K6).

Laws: a row leaves only when its batch is stored, or when the bound is reached, and then it is counted;
a batch keeps its number and its rows however often it is sent, so that storing is idempotent.
"""

import itertools
from collections import deque

import msgspec

from llmgw.wire.watch_v1 import UsageBatch, UsageRow

# About 0.5 KB a row in memory: 25 MB, or 17 minutes of 50 requests a second without a control plane.
ROWS_MAX = 50_000
BATCH_ROWS = 500  # below 256 KB as a message, and below the store's 250 ms a write
BATCHES_OUT_MAX = 8  # sent and not acknowledged; a store that is slow is not buried
RESEND_AFTER_S = 5.0


class _Sent(msgspec.Struct):
    batch: UsageBatch
    at: float | None  # when it was last sent on the stream at hand


class UsageBuffer:
    """Rows on their way to the store."""

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows: deque[UsageRow] = deque()
        self._out: dict[int, _Sent] = {}
        self._numbers = itertools.count(1)
        self._out_rows = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Rows that are not stored yet."""
        return len(self._rows) + self._out_rows

    def add(self, row: UsageRow) -> None:
        """Keep a row; beyond the bound it is lost and counted."""
        if len(self) >= self._rows_max:
            self.dropped += 1
        else:
            self._rows.append(row)

    def due(self, now: float) -> list[UsageBatch]:
        """What is to be sent now: new batches, and those whose answer is overdue."""
        while self._rows and len(self._out) < BATCHES_OUT_MAX:
            rows = tuple(self._rows.popleft() for _ in range(min(BATCH_ROWS, len(self._rows))))
            number = next(self._numbers)
            self._out[number] = _Sent(UsageBatch(number, rows, self.dropped), None)
            self._out_rows += len(rows)
        late = [sent for sent in self._out.values() if sent.at is None or now - sent.at >= RESEND_AFTER_S]
        for sent in late:
            sent.at = now
        return [sent.batch for sent in late]

    def stored(self, number: int) -> None:
        """A batch is in the store; saying it twice does no harm."""
        sent = self._out.pop(number, None)
        if sent is not None:
            self._out_rows -= len(sent.batch.rows)

    def stream_ended(self) -> None:
        """What was sent on the stream and not acknowledged is sent again on the next."""
        for sent in self._out.values():
            sent.at = None
