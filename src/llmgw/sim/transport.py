"""One end of a simulated connection: what asyncio protocols see as their transport.

Laws: a writer is paused when more is on its way or unread than the high-water mark, as a kernel's send
buffer would; delivery times of one direction strictly increase, because asyncio's timers do not keep the
order of equal ones; after `connection_lost` a protocol hears nothing more.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from enum import Enum
from typing import Any, Protocol

HIGH_WATER = 64 * 1024  # asyncio's own default
LOW_WATER = HIGH_WATER // 4
_SMALLEST_STEP_S = 1e-7


class Sign(Enum):
    """What travels on a connection besides bytes."""

    END = "end"  # the writer sent its end
    RESET = "reset"  # the connection is broken


Piece = bytes | Sign


class Carrier(Protocol):
    """What a transport needs of its network."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def pieces(self, data: bytes) -> list[tuple[float, bytes]]:
        """How one write arrives: pieces with their extra delay."""
        ...

    def is_cut(self, source: str, target: str) -> bool:
        """Whether bytes from `source` do not reach `target`."""
        ...

    def forget(self, transport: "SimTransport") -> None:
        """A transport is closed."""
        ...

    def next_number(self) -> int:
        """A number no other transport of this network has."""
        ...


class SimServer(asyncio.AbstractServer):
    """A listener."""

    def __init__(
        self, factory: Callable[[], Any], address: Any, process: str, unlist: Callable[[], object]
    ) -> None:
        self.factory = factory
        self.process = process
        self.context: Context = copy_context()
        self._address = address
        self._unlist = unlist
        self._serving = True
        self.open: set[SimTransport] = set()

    @property
    def sockets(self) -> tuple["_NamedSocket", ...]:
        """Stand-ins that know their address, as callers read the port from there."""
        return (_NamedSocket(self._address),) if self._serving else ()

    def close(self) -> None:
        """Stop accepting; open connections live on."""
        if self._serving:
            self._serving = False
            self._unlist()

    def is_serving(self) -> bool:
        """Whether it accepts."""
        return self._serving

    async def start_serving(self) -> None:
        """It serves from the start."""

    async def serve_forever(self) -> None:
        """Serve until cancelled."""
        await asyncio.get_running_loop().create_future()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        return asyncio.get_running_loop()

    async def wait_closed(self) -> None:
        """Returns at once: whoever must wait for connections counts them itself."""

    def close_clients(self) -> None:
        """Close every accepted connection."""
        for transport in list(self.open):
            transport.close()

    def abort_clients(self) -> None:
        """Abort every accepted connection."""
        for transport in list(self.open):
            transport.abort()


class _NamedSocket:
    """Answers with its name and family; nothing else of a socket exists here."""

    def __init__(self, address: Any) -> None:
        self._address = address
        self.family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET

    def getsockname(self) -> Any:
        return self._address


class SimTransport(asyncio.Transport):
    """One end of a connection between two simulated processes."""

    def __init__(
        self, network: Carrier, protocol: asyncio.BaseProtocol, hosts: tuple[str, str], process: str
    ) -> None:
        here, there = hosts
        self.number = network.next_number()
        self._facts: dict[str, object] = {
            "peername": (there, self.number),
            "sockname": (here, self.number),
        }
        super().__init__(self._facts)
        self.process = process
        self._network = network
        self._protocol = protocol
        self._here, self._there = here, there
        self._context = copy_context()
        self._peer: SimTransport | None = None
        self._server: SimServer | None = None
        self._inbox: deque[Piece] = deque()  # arrived, not yet given to the protocol (reading is paused)
        self._held: deque[Piece] = deque()  # on a cut link
        self._outstanding = 0  # bytes written and not yet given to the peer's protocol
        self._last_delivery = 0.0
        self._high, self._low = HIGH_WATER, LOW_WATER
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._ended = False
        self._lost = False

    def pair(self, other: "SimTransport", server: SimServer) -> None:
        """Join two ends; `other` was accepted by `server`."""
        self._peer, other._peer = other, self
        other._server = server
        other._context = server.context.copy()
        server.open.add(other)

    def __hash__(self) -> int:
        return self.number  # an address in memory would order sets differently in every run

    @property
    def host(self) -> str:
        """The host this end is on."""
        return self._here

    @property
    def other(self) -> "SimTransport":
        """The other end."""
        assert self._peer is not None, "a transport is paired before it is used"
        return self._peer

    @property
    def holds(self) -> bool:
        """Whether something it sent waits on a cut link."""
        return bool(self._held)

    def tell(self, **facts: object) -> None:
        """Add what `get_extra_info` answers."""
        self._facts.update(facts)

    def crosses_hosts(self) -> bool:
        """Whether the two ends are on different hosts."""
        return self._here != self._there

    # ------------------------------------------------------------ asyncio.Transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that hears this end."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Switch to another protocol (WebSocket upgrade does)."""
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; silently dropped after the end, as asyncio does."""
        if self._lost or self._closing or self._ended or not data:
            return
        self._outstanding += len(data)
        for delay, piece in self._network.pieces(bytes(data)):
            self._send(piece, delay)
        if self._outstanding > self._high and not self._writing_paused:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def writelines(self, pieces: Any) -> None:
        """Send several pieces as one write."""
        self.write(b"".join(pieces))

    def can_write_eof(self) -> bool:
        """TCP can."""
        return True

    def write_eof(self) -> None:
        """Send the end, keep reading."""
        if not self._ended and not self._lost:
            self._ended = True
            self._send(Sign.END, 0.0)

    def get_write_buffer_size(self) -> int:
        """Bytes written and not yet read by the other end."""
        return self._outstanding

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high water."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As asyncio's."""
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        """Stop giving bytes to the protocol."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Give what waited, then go on."""
        self._reading_paused = False
        self._network.loop.call_soon(self._drain_inbox)

    def is_reading(self) -> bool:
        """Whether bytes are given to the protocol."""
        return not self._reading_paused and not self._closing

    def is_closing(self) -> bool:
        """Whether this end is closed or closing."""
        return self._closing or self._lost

    def close(self) -> None:
        """Send what was written, then the end; this end hears `connection_lost` at once."""
        if self._closing or self._lost:
            return
        self.write_eof()
        self._closing = True
        self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Reset: the other end loses the connection with an error."""
        if self._lost:
            return
        self._closing = True
        self._network.loop.call_soon(self._lose, None)
        self._send(Sign.RESET, 0.0)

    # ------------------------------------------------------------ delivery

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        # A copy, because a context cannot be entered twice, and a protocol may write from its callback.
        self._context.copy().run(callback, *args)

    def _send(self, piece: Piece, delay: float) -> None:
        if self._network.is_cut(self._here, self._there):
            self._held.append(piece)
            return
        loop = self._network.loop
        self._last_delivery = max(loop.time() + delay, self._last_delivery + _SMALLEST_STEP_S)
        # In no process's context: the kernel answers for a process that is dead by then.
        loop.call_at(self._last_delivery, self.other._arrived, piece, context=Context())

    def release_held(self) -> None:
        """The link healed: what waited travels now."""
        held, self._held = self._held, deque()
        for piece in held:
            self._send(piece, 0.0)

    def _arrived(self, piece: Piece) -> None:
        if piece is Sign.RESET:
            self._lose(_reset())
        elif not self._lost:
            self._inbox.append(piece)
            self._drain_inbox()
        elif piece is not Sign.END and self._peer is not None and not self._peer._lost:
            self._send(Sign.RESET, 0.0)

    def _drain_inbox(self) -> None:
        while self._inbox and not self._reading_paused and not self._lost:
            self._call(self._give, self._inbox.popleft())

    def _give(self, piece: Piece) -> None:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol), "stream protocols only"
        if isinstance(piece, Sign):
            if not protocol.eof_received():
                self.close()
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            _fill(protocol, piece)
        else:
            protocol.data_received(piece)
        if self._peer is not None:
            self._peer._was_read(len(piece))

    def _was_read(self, count: int) -> None:
        self._outstanding -= count
        if self._writing_paused and self._outstanding <= self._low and not self._lost:
            self._writing_paused = False
            self._call(self._protocol.resume_writing)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._leave()
        self._inbox.clear()
        self._call(self._protocol.connection_lost, error)

    def _leave(self) -> None:
        self._lost = self._closing = True
        self._network.forget(self)
        if self._server is not None:
            self._server.open.discard(self)

    # ------------------------------------------------------------ faults

    def break_now(self) -> None:
        """Both ends lose the connection."""
        loop = self._network.loop
        for end in (self, self._peer):
            if end is not None:
                end._context.run(loop.call_soon, end._lose, _reset())

    def vanish(self, *, silently: bool = False) -> None:
        """The process of this end is dead: its protocol hears nothing, the other end is reset.

        Silently: its machine lost power, so the other end finds out by its own timers or, once the
        machine is up again, when it sends something.
        """
        if silently:
            self._held.clear()
        if self._lost:
            return
        if not silently:
            self._send(Sign.RESET, 0.0)
        self._leave()


def _reset() -> ConnectionResetError:
    return ConnectionResetError(104, "Connection reset by peer")


def _fill(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    while data:
        buffer = memoryview(protocol.get_buffer(len(data)))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]
