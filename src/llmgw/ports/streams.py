"""Streams of whole messages, which agents and routers speak over.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec


class Peer(msgspec.Struct, frozen=True):
    """Who is at the other end of a stream. Without TLS the certificate fields are `None`."""

    address: str
    name: str | None = None  # certificate CN
    role: str | None = None  # agent, router or server, from the certificate
    pid: int | None = None  # of a process on the same machine (Unix socket peer credentials)


class StreamClosed(Exception):
    """The other end closed, refused, or the connection broke; `reason` is what it said, if anything."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "closed")
        self.reason = reason


class MessageStream(Protocol):
    """A bidirectional stream of whole messages (bytes), in order; agents and routers speak over it."""

    @property
    def peer(self) -> Peer: ...

    async def send(self, message: bytes) -> None:
        """Raises `StreamClosed`. Waits while the peer does not read (bounded buffer)."""
        ...

    async def receive(self) -> bytes:
        """The next message. Raises `StreamClosed`."""
        ...

    async def close(self, reason: str = "") -> None:
        """Close; `reason` (at most 120 bytes) reaches the other end. Never raises."""
        ...


StreamHandler = Callable[[MessageStream], Awaitable[None]]


class Dialer(Protocol):
    """Opens message streams."""

    async def dial(self, address: str, path: str, *, within: float = 5.0) -> MessageStream:
        """Open the stream `path` (`/agent`, `/watch`) at `address`: `host:port` or `unix:/path`.

        Gives up after `within` seconds. Raises `StreamClosed` with what went wrong.
        """
        ...


class Listening(Protocol):
    """A listener that was opened; `address` is the one it really has (port 0 resolved)."""

    @property
    def address(self) -> str: ...

    async def aclose(self) -> None: ...


class StreamListener(Protocol):
    """Opens listeners for message streams; each accepted stream runs its handler as its own task."""

    async def listen(self, address: str, handlers: Mapping[str, StreamHandler]) -> Listening:
        """One listener for several kinds of stream, told apart by path (`/agent`, `/watch`).

        `address` is `host:port` or `unix:/path`. Raises `OSError`. A stream is closed when its handler
        returns; a handler that raises closes it with the reason `internal error`.
        """
        ...
