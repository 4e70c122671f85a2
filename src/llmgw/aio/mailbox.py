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
        self._granted = 0  # room given to senders that were woken and have not run yet
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def try_put(self, item: T) -> bool:
        """Put without waiting; False when the box is full or senders wait already. Raises `MailboxClosed`."""
        if self._closed:
            raise MailboxClosed
        if not self._has_room():
            return False
        self._accept(item)
        return True

    async def put(self, item: T) -> None:
        """Put, waiting in turn for room. Raises `MailboxClosed`, also when closed while waiting."""
        if not self._closed and not self._has_room():
            await self._turn()
        if self._closed:
            raise MailboxClosed
        self._accept(item)

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
        self._admit()
        return item

    def take_all(self) -> list[T]:
        """Every message that is there now, oldest first; does not wait."""
        taken = list(self._items)
        self._items.clear()
        self._admit()
        return taken

    def close(self) -> None:
        """Refuse new messages; what was accepted can still be got. Idempotent."""
        self._closed = True
        self._wake_consumer()
        self._admit()

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._senders.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._senders.remove(turn)
            else:
                self._granted -= 1
                self._admit()
            raise
        self._granted -= 1

    def _has_room(self) -> bool:
        return len(self._items) + self._granted < self._capacity

    def _accept(self, item: T) -> None:
        self._items.append(item)
        self._wake_consumer()

    def _wake_consumer(self) -> None:
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)

    def _admit(self) -> None:
        while self._senders and (self._closed or self._has_room()):
            self._granted += 1
            self._senders.popleft().set_result(None)
