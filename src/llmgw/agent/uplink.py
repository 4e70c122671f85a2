"""Carries messages of this node to whichever control plane it is connected to.

Laws: nothing is kept for later, since a registration tells everything again; the queue is bounded, and
one that is full ends the stream; order is kept within a stream.
"""

import asyncio

from llmgw.aio.mailbox import Mailbox, MailboxClosed
from llmgw.ports import MessageStream
from llmgw.wire.agent_v1 import Up, encode

QUEUE_MAX = 512  # a node's shards, several times over, and a screen of followed logs


class Uplink:
    """Where messages for the control plane go."""

    def __init__(self) -> None:
        self._queue: Mailbox[Up] | None = None
        self._sent = asyncio.Event()

    def say(self, message: Up) -> None:
        """Send when connected; dropped otherwise."""
        if self._queue is None:
            return
        try:
            taken = self._queue.try_put(message)
        except MailboxClosed:
            return
        if not taken:
            self._queue.close()  # the other end reads too slowly; it will hear all of it again

    def open(self, first: Up) -> None:
        """Begin with a stream's first message; what is said from now on follows it."""
        self._queue = Mailbox(QUEUE_MAX)
        self._queue.try_put(first)

    def shut(self) -> None:
        """The stream is over."""
        if self._queue is not None:
            self._queue.close()
        self._queue = None
        self._sent.set()

    async def pump(self, stream: MessageStream) -> None:
        """Send what is said until the queue is closed. Raises `StreamClosed`."""
        queue = self._queue
        assert queue is not None, "opened before"
        while True:
            try:
                message = await queue.get()
            except MailboxClosed:
                await stream.close("this node's messages are not read fast enough")
                return
            await stream.send(encode(message))
            if not len(queue):
                self._sent.set()

    async def sent(self, within: float) -> None:
        """Wait until all that was said is sent, or cannot be, or `within` seconds are over."""
        try:
            async with asyncio.timeout(within):
                while self._queue is not None and len(self._queue):
                    self._sent.clear()
                    await self._sent.wait()
        except TimeoutError:
            pass
