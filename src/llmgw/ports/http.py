"""HTTP/1.1 as the gateway sees it: exchanges with clients, a pool of connections to engines.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol

import msgspec

HeaderList = Sequence[tuple[bytes, bytes]]


class RequestHead:
    """The head of one request, already checked against the gaps of the parser (host, framing, limits).

    A value: nobody changes it. Plain, so that a listener may put its fields together when asked for:
    most of a request's headers are never looked at.
    """

    def __init__(
        self,
        method: str,
        target: bytes,
        headers: tuple[tuple[bytes, bytes], ...],
        peer: str,
        keep_alive: bool,
    ) -> None:
        self.method = method
        self.target = target  # exactly as received: path and query; what is authorised is what is routed
        self.peer = peer  # the other end's IP address, from the socket
        self.keep_alive = keep_alive
        self._headers = headers

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Every header, names lower-cased, order and duplicates kept."""
        return self._headers

    def header(self, name: bytes) -> bytes | None:
        """The first value of a lower-case header name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


class BodyTooLarge(Exception):
    """The request body is longer than the limit given to `read_body` (413)."""


class BodyTooSlow(Exception):
    """The request body did not arrive at the minimum rate (408)."""


class Exchange(Protocol):
    """One request and its answer on the client listener.

    The handler runs as one task per request. When the client goes away that task is cancelled, which
    is how an upstream is cancelled at once. Exactly one of `respond` or `start … finish|abort` ends it;
    a handler that returns without ending it, or raises, makes the server answer 500 or abort.
    """

    @property
    def head(self) -> RequestHead: ...

    async def read_body(self, limit: int) -> bytes:
        """The whole body, at most `limit` bytes. Raises `BodyTooLarge` or `BodyTooSlow`."""
        ...

    def respond(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Send a whole answer; adds content-length, date and connection."""
        ...

    def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a streamed answer (chunked; until close on HTTP/1.0)."""
        ...

    def write(self, data: bytes) -> None:
        """Send one piece of a streamed answer at once. Never blocks; see `watch_pressure`."""
        ...

    def watch_pressure(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Call `pause` when the client reads slower than we write (bounded buffer), `resume` after."""
        ...

    def finish(self) -> None:
        """End a streamed answer with its terminator; a clean end."""
        ...

    def abort(self) -> None:
        """Close the connection without the terminator, so that no client takes it for a clean end."""
        ...


ExchangeHandler = Callable[[Exchange], Awaitable[None]]


class Serving(Protocol):
    """A client listener that was opened; `address` is the one it really has (port 0 resolved)."""

    @property
    def address(self) -> str: ...

    @property
    def in_flight(self) -> int:
        """Exchanges whose handler has not returned."""
        ...

    def stop_accepting(self) -> None:
        """Close the listening socket and idle connections; exchanges in progress go on, then close."""
        ...

    async def drained(self, bound: float) -> bool:
        """Wait at most `bound` seconds for every exchange to end; whether they did."""
        ...

    async def aclose(self) -> None:
        """Stop at once: cancel every handler, abort every connection. Never raises."""
        ...


class ExchangeListener(Protocol):
    """Opens client listeners; each request runs `handler` as its own task."""

    async def serve(self, address: str, handler: ExchangeHandler) -> Serving:
        """`address` is `host:port` (`[::]:8080` for IPv6). Raises `OSError`; SO_REUSEPORT is always set."""
        ...


class HttpTimeouts(msgspec.Struct, frozen=True):
    """Seconds. `first_byte` runs from the request sent to the response head, `idle` between pieces."""

    connect: float = 2.0
    first_byte: float = 600.0
    idle: float = 300.0
    total: float = 3600.0


class Stage(Enum):
    """How far an upstream exchange had come when it broke; decides whether a retry is safe."""

    CONNECT = "connect"  # nothing was sent
    HEAD = "head"  # sent; no complete response head received
    BODY = "body"  # the response head was complete; the body was not


class UpstreamBroke(Exception):
    """An upstream exchange that did not end as HTTP says it must.

    `timed_out` tells silence from a broken connection. `reason` is one short line for logs.
    """

    def __init__(self, stage: Stage, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(f"{stage.value}: {reason}")
        self.stage = stage
        self.reason = reason
        self.timed_out = timed_out


class UpstreamRequest(msgspec.Struct, frozen=True):
    """One request to an engine. `headers` hold no hop-by-hop names; host and length are added."""

    host: str
    port: int
    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    timeouts: HttpTimeouts = HttpTimeouts()


class Fetched(msgspec.Struct, frozen=True):
    """A whole answer, for probes and scrapes."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class UpstreamResponse(Protocol):
    """A response whose head has arrived. Always closed by `async with`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]: ...

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises `UpstreamBroke`, also (stage BODY) when it is longer than `limit`."""
        ...

    async def stream(self, sink: Callable[[bytes], None]) -> None:
        """Give each piece to `sink` as it arrives, in the protocol's callback (no task, no wake-up a piece).

        Returns at the clean end of the message; raises `UpstreamBroke` otherwise, or what `sink` raised.
        """
        ...

    def pause(self) -> None:
        """Stop reading from the engine (back-pressure); the idle timeout does not run while paused."""
        ...

    def resume(self) -> None: ...

    async def __aenter__(self) -> "UpstreamResponse": ...

    async def __aexit__(self, *exc: object) -> None:
        """Return the connection to the pool after a clean end, else close it (which cancels the engine)."""
        ...


class Upstream(Protocol):
    """A pool of connections to engines."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send, and wait for the response head. Raises `UpstreamBroke`.

        A reused connection that dies at once with nothing received is replaced by a fresh one, once.
        """
        ...

    async def fetch(self, request: UpstreamRequest, limit: int) -> Fetched:
        """Send, and read the whole answer of at most `limit` bytes. Raises `UpstreamBroke`."""
        ...

    def close_idle(self, host: str, port: int) -> None:
        """Forget pooled connections to an address that was withdrawn."""
        ...

    async def aclose(self) -> None: ...
