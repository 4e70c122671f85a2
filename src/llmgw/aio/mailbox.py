"""Carries messages to the one owner of something mutable, with a bound.

Laws: one consumer; order is kept; nothing accepted is lost, also when the consumer is cancelled
while it waits; a full box makes senders wait or refuses, it never grows.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class MailboxClosed(Exception):
    """Nothing more can be put, or nothing is left and nothing more will come."""


class Mailbox(Generic[T]):
    """A bounded queue with a single consumer."""

    def __init__(self, capacity: int) -> None:
        assert capacity > 0, "a mailbox holds at least one message"
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._consumer: asyncio.Future[None] | None = None
        self._senders: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def try_put(self, item: T) -> bool:
        """Put without waiting; False when the box is full or senders wait already. Raises `MailboxClosed`."""
        if self._closed:
            raise MailboxClosed
        if len(self._items) >= self._capacity or self._senders:
            return False
        self._accept(item)
        return True

    async def put(self, item: T) -> None:
        """Put, waiting in turn for room. Raises `MailboxClosed`, also when closed while waiting."""
        while not self._closed and (len(self._items) >= self._capacity or self._senders):
            turn = asyncio.get_running_loop().create_future()
            self._senders.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._senders:
                    self._senders.remove(turn)
                else:
                    self._admit_next()  # our turn had come: hand it on
                raise
            if len(self._items) < self._capacity:
                break  # woken in turn: later senders still queued do not count against us
        if self._closed:
            raise MailboxClosed
        self._accept(item)
        self._admit_next()

    async def get(self) -> T:
        """The next message. Raises `MailboxClosed` once closed and empty. Safe to cancel."""
        while not self._items:
            if self._closed:
                raise MailboxClosed
            assert self._consumer is None, "a mailbox has one consumer"
            self._consumer = asyncio.get_running_loop().create_future()
            try:
                await self._consumer
            finally:
                self._consumer = None
        item = self._items.popleft()
        self._admit_next()
        return item

    def take_all(self) -> list[T]:
        """Every message that is there now, oldest first; does not wait."""
        taken = list(self._items)
        self._items.clear()
        self._admit_next()
        return taken

    def close(self) -> None:
        """Refuse new messages; what was accepted can still be got. Idempotent."""
        self._closed = True
        self._wake_consumer()
        for turn in self._senders:
            if not turn.done():
                turn.set_result(None)
        self._senders.clear()

    def _accept(self, item: T) -> None:
        self._items.append(item)
        self._wake_consumer()

    def _wake_consumer(self) -> None:
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)

    def _admit_next(self) -> None:
        if len(self._items) >= self._capacity:
            return
        while self._senders:
            turn = self._senders.popleft()
            if not turn.done():
                turn.set_result(None)
                return
