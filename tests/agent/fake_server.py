"""A control plane's end of the agent stream, on a real socket, that a test drives by hand."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from llmgw.aio.mailbox import Mailbox
from llmgw.net.streams import WebSocketListener
from llmgw.ports import Listening, MessageStream, StreamClosed
from llmgw.wire.agent_v1 import (
    Down,
    Heartbeat,
    Register,
    ShardReport,
    ShardStatus,
    Up,
    Welcome,
    decode_up,
    encode,
)
from llmgw.wire.envelope import Unknown

M = TypeVar("M")

PATIENCE_S = 20.0


class FakeServer:
    """Welcomes agents (unless told otherwise) and keeps what they say."""

    def __init__(self, *, cluster: str = "c1", term: int = 1, heartbeat_s: float = 5.0) -> None:
        self.welcome = Welcome(cluster, term, heartbeat_s, 20000, 29999)
        self.refusal: Down | None = None
        self.streams: list[MessageStream] = []
        self.heard: list[Up] = []
        self._inbox: Mailbox[Up] = Mailbox(10_000)
        self._listening: Listening | None = None

    @property
    def address(self) -> str:
        assert self._listening is not None
        return self._listening.address

    async def start(self, address: str = "127.0.0.1:0") -> None:
        self._listening = await WebSocketListener().listen(address, {"/agent": self._serve})

    async def stop(self) -> None:
        if self._listening is not None:
            await self._listening.aclose()
            self._listening = None

    async def _serve(self, stream: MessageStream) -> None:
        self.streams.append(stream)
        try:
            if self.refusal is not None:
                await stream.send(encode(self.refusal))
                return
            await self._read(stream)
            await stream.send(encode(self.welcome))
            while True:
                await self._read(stream)
        except StreamClosed:
            return

    async def _read(self, stream: MessageStream) -> None:
        message = decode_up(await stream.receive())
        assert not isinstance(message, Unknown), message
        self.heard.append(message)
        await self._inbox.put(message)

    async def say(self, message: Down) -> None:
        await self.streams[-1].send(encode(message))

    async def say_bytes(self, data: bytes) -> None:
        await self.streams[-1].send(data)

    async def hear(self, kind: type[M], true: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of a kind for which something holds; others before it are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self._inbox.get()
                if isinstance(message, kind) and true(message):
                    return message

    async def registered(self) -> Register:
        return await self.hear(Register)

    async def connected(self) -> Register:
        """Wait until an agent has taken our welcome."""
        registration = await self.registered()
        await self.hear(Heartbeat)
        return registration

    async def phase(self, phase: str) -> ShardReport:
        """Wait until a shard is said to be in a phase."""
        status = await self.hear(ShardStatus, lambda said: said.shard.phase == phase)
        return status.shard
