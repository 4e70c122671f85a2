"""One connection of the client listener: bytes to requests, and the connection's life.

Laws: one request at a time, the next begins when the answer to the last is complete; what arrives
meanwhile is kept up to a bound and then not read; a client that closes, or half-closes, has left,
and its handler is cancelled at once (a half-closed client cannot be told from a closed one before
it is written to, and an engine that works for nobody costs more than a client that half-closes);
after anything ambiguous the connection carries nothing more.
"""

import asyncio
import contextlib
import socket
import struct
from enum import Enum
from typing import Final, Protocol, cast

from llmgw.net.http1.chunked import BadChunks, ChunkedBody
from llmgw.net.http1.deadline import Deadline
from llmgw.net.http1.exchange import HttpExchange
from llmgw.net.http1.heads import CHUNKED, HEAD_END, ParsedRequest, Repeat, parse_request
from llmgw.net.http1.limits import ServerLimits
from llmgw.net.http1.refusals import (
    HEAD_TOO_LARGE,
    HEAD_TOO_SLOW,
    TOO_MANY_CONNECTIONS,
    Refusal,
    RefusalRenderer,
    bad_request,
)
from llmgw.net.http1.replies import ReplyHeads
from llmgw.ports import HeaderList

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s


class Listener(Protocol):
    """What a connection needs of the listener that accepted it."""

    limits: ServerLimits
    heads: ReplyHeads
    render: RefusalRenderer
    draining: bool

    def admit(self, connection: "ServerConnection") -> bool:
        """Count a new connection; False when there are too many."""
        ...

    def forget(self, connection: "ServerConnection") -> None:
        """A connection is gone."""
        ...

    def start(self, exchange: HttpExchange) -> asyncio.Task[None]:
        """Run the handler on a new exchange."""
        ...


class _Stage(Enum):
    HEAD = "head"  # between requests, or within a head
    BODY = "body"  # the body of the request in progress
    ANSWER = "answer"  # the request is complete, its answer is not
    LINGER = "linger"  # answered and closing; what still comes is swallowed
    CLOSED = "closed"


# Members by their own names: looking one up on its enum costs 0.1 us in Python 3.11, dozens a request.
_HEAD: Final = _Stage.HEAD
_BODY: Final = _Stage.BODY
_ANSWER: Final = _Stage.ANSWER
_LINGER: Final = _Stage.LINGER
_CLOSED: Final = _Stage.CLOSED


class ServerConnection(asyncio.Protocol):
    """The protocol of one accepted connection."""

    def __init__(self, serving: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.limits = serving.limits
        self.heads = serving.heads
        self.close_after = False  # the answer in progress is the last of this connection
        self.write_paused = False
        self._serving = serving
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._stage = _HEAD
        self._deadline = Deadline(loop, self._expired)
        self._partial = bytearray()  # of a head
        self._last: tuple[ParsedRequest, bytes] | None = None  # the last head read, if it had a length
        self._repeat: Repeat | None = None  # made of it when a second one comes
        self._held: list[bytes] = []  # bytes after the request in progress
        self._held_size = 0
        self._unread_rest = False  # bytes of a next request were swallowed with this one's body
        self._swallowed = 0
        self._reading_held = False
        self._exchange: HttpExchange | None = None
        self._missing = 0  # of a body with a length
        self._chunks: ChunkedBody | None = None

    # ------------------------------------------------------------ the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else ""
        self._transport.set_write_buffer_limits(self.limits.write_high, self.limits.write_low)
        if not self._serving.admit(self):
            self._refuse(TOO_MANY_CONNECTIONS)
            return
        self._deadline.set(self.loop.time() + self.limits.head_s)

    def data_received(self, data: bytes) -> None:
        """Bytes came; where they belong depends on the stage."""
        stage = self._stage
        if stage is _HEAD:
            self._take_head(data)
        elif stage is _BODY:
            self._take_body(data)
        elif stage is _ANSWER:
            self._hold(data)
        elif stage is _LINGER:
            self._swallow(data)

    def eof_received(self) -> None:
        """The client closed its half, and so has left; the transport closes itself."""
        self._client_left()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self._client_left()
        self._deadline.cancel()
        self._transport = None
        self._serving.forget(self)

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self.write_paused = True
        self._deadline.set(self.loop.time() + self.limits.stall_s)
        if self._exchange is not None:
            self._exchange.pressure(on=True)

    def resume_writing(self) -> None:
        """It has read."""
        self.write_paused = False
        self._restore_deadline()
        if self._exchange is not None:
            self._exchange.pressure(on=False)

    # ------------------------------------------------------------ what the exchange asks for

    @property
    def closes_after(self) -> bool:
        """Whether the answer in progress is the last of this connection."""
        return self.close_after or self._serving.draining

    def send(self, data: bytes) -> None:
        """Write, unless the connection is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def render(self, refusal: Refusal) -> tuple[HeaderList, bytes]:
        """How this listener words a refusal."""
        return self._serving.render(refusal)

    def hold_reading(self) -> None:
        """Stop taking bytes from the socket."""
        if not self._reading_held and self._transport is not None and not self._transport.is_closing():
            self._reading_held = True
            self._transport.pause_reading()

    def await_body(self, due: float) -> None:
        """The handler waits for the body: take it, with a deadline."""
        self._release_reading()
        self._deadline.set(due)

    def body_awaited(self) -> None:
        """The handler waits no longer."""
        if not self.write_paused:
            self._deadline.clear()

    def answered(self, exchange: HttpExchange) -> None:
        """The answer is complete: go on with the next request, or close."""
        if exchange is not self._exchange:
            return
        self._exchange = None
        if self._stage is _BODY or (self.close_after and (self._held or self._unread_rest)):
            self._linger()
        elif self.closes_after:
            self._close()
        else:
            self._next_request()

    def abandon(self, *, reset: bool) -> None:
        """Close without a clean end of the answer; with `reset`, so that even a plain end is missing."""
        self._exchange = None
        transport = self._transport
        if transport is None:
            return
        if reset:
            sock = transport.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._stage = _CLOSED
            transport.abort()
        elif self._stage is _BODY:
            self._linger()
        else:
            self._close()

    # ------------------------------------------------------------ what the listener asks for

    def drain(self) -> None:
        """Close now if nothing is in progress, else after the answer."""
        if self._stage is _HEAD and not self._partial:
            self._close()

    def stop(self) -> None:
        """Close at once, whatever is in progress."""
        if self._transport is not None:
            self._transport.abort()
        self._client_left()

    # ------------------------------------------------------------ heads

    def _take_head(self, data: bytes) -> None:
        if not self._partial:
            repeated = self._read_repeated(data)
            if repeated is not None:
                self._begin(repeated[0], data[repeated[1] :])
                return
        if self._partial:
            searched = max(0, len(self._partial) - len(HEAD_END) + 1)
            self._partial += data
            end = self._partial.find(HEAD_END, searched)
        else:
            while data.startswith(b"\r\n"):  # RFC 9112 2.2: empty lines before a request are skipped
                data = data[2:]
            if not data:
                return
            end = data.find(HEAD_END)
        size = end + len(HEAD_END) if end >= 0 else len(self._partial) or len(data)
        if size > self.limits.head_bytes:
            self._refuse(HEAD_TOO_LARGE)
            return
        if end < 0:
            self._keep_partial(data)
            return
        if self._partial:
            data = bytes(self._partial)
            self._partial.clear()
        raw = data[:size]
        parsed = parse_request(raw, self._peer, self.limits)
        if isinstance(parsed, Refusal):
            self._refuse(parsed)
            return
        self._last, self._repeat = (parsed, raw) if parsed.length else None, None
        self._begin(parsed, data[size:])

    def _read_repeated(self, data: bytes) -> tuple[ParsedRequest, int] | None:
        repeat = self._repeat
        if repeat is None:
            if self._last is None:
                return None
            repeat = self._repeat = Repeat(*self._last)
        repeated = repeat.read(data)
        return repeated if repeated is not None and repeated[1] <= self.limits.head_bytes else None

    def _keep_partial(self, data: bytes) -> None:
        if self._partial:
            return  # `data` was appended before the search
        first = data[0]
        if first != 0x0D and not 0x41 <= first <= 0x5A:  # CR or A-Z
            self._refuse(
                bad_request("The request does not begin with a method; is this TLS on a plain port?")
            )
            return
        self._partial += data
        self._deadline.set(self.loop.time() + self.limits.head_s)

    def _begin(self, parsed: ParsedRequest, rest: bytes) -> None:
        self._deadline.clear()
        self.close_after = not parsed.head.keep_alive
        length = parsed.length
        exchange = self._exchange = HttpExchange(self, parsed)
        if parsed.framing is CHUNKED:
            self._stage = _BODY
            self._chunks = ChunkedBody()
        elif length > len(rest):
            self._stage = _BODY
            self._missing = length
        else:  # the usual request: its body came with its head
            self._stage = _ANSWER
            if length:
                exchange.take_whole_body(rest[:length])
                rest = rest[length:]
        exchange.task = self._serving.start(exchange)
        if rest:
            self.data_received(rest)

    def _next_request(self) -> None:
        self._stage = _HEAD
        self._deadline.set(self.loop.time() + self.limits.idle_s)
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            self._held_size = 0
            self._release_reading()
            self._take_head(data)
        else:
            self._release_reading()

    # ------------------------------------------------------------ bodies

    def _take_body(self, data: bytes) -> None:
        exchange = self._exchange
        assert exchange is not None, "a body without its request"
        if self._chunks is not None:
            self._take_chunks(self._chunks, exchange, data)
            return
        piece = data if len(data) <= self._missing else data[: self._missing]
        self._missing -= len(piece)
        exchange.add_body(piece)
        if not self._missing:
            self._body_complete(exchange)
            if len(piece) < len(data):
                self._hold(data[len(piece) :])

    def _take_chunks(self, chunks: ChunkedBody, exchange: HttpExchange, data: bytes) -> None:
        try:
            piece = chunks.feed(data)
        except BadChunks as error:
            self._break_off(exchange, bad_request(f"The request's chunked body is malformed: {error}."))
            return
        if piece:
            exchange.add_body(piece)
        if chunks.complete:
            self._chunks = None
            if not chunks.clean_end:
                # Where the next request began is not known: do not guess.
                self.close_after = self._unread_rest = True
            self._body_complete(exchange)

    def _body_complete(self, exchange: HttpExchange) -> None:
        self._stage = _ANSWER
        self._release_reading()  # or a client that leaves would not be noticed
        exchange.end_body()

    def _break_off(self, exchange: HttpExchange, refusal: Refusal) -> None:
        """The request turned out malformed while its handler runs."""
        untouched = exchange.untouched
        self._exchange = None
        self._chunks = None
        exchange.vanish()
        if untouched:
            self._refuse(refusal)
        else:
            self._close()

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size > self.limits.pipelined_bytes:
            self.hold_reading()

    def _release_reading(self) -> None:
        if self._reading_held and self._transport is not None and not self._transport.is_closing():
            self._reading_held = False
            self._transport.resume_reading()

    # ------------------------------------------------------------ ends

    def _refuse(self, refusal: Refusal) -> None:
        self._partial.clear()
        headers, body = self.render(refusal)
        framing = b"content-length: %d\r\nconnection: close\r\n" % len(body)
        self.send(self.heads.write(refusal.status, headers, framing, body))
        self._linger()

    def _linger(self) -> None:
        """Close after the client had a chance to read: unread bytes would make the kernel reset it."""
        self._stage = _LINGER
        self._held.clear()
        transport = self._transport
        if transport is None:
            return
        if transport.can_write_eof():
            transport.write_eof()
        self._release_reading()
        self._deadline.set(self.loop.time() + self.limits.linger_s)

    def _swallow(self, data: bytes) -> None:
        self._swallowed += len(data)
        if self._swallowed > self.limits.linger_bytes and self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        self._stage = _CLOSED
        if self._transport is not None:
            self._deadline.set(self.loop.time() + self.limits.stall_s)  # for what is not written yet
            self._transport.close()

    def _client_left(self) -> None:
        self._stage = _CLOSED
        self._chunks = None
        self._held.clear()
        self._partial.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.vanish()

    # ------------------------------------------------------------ deadlines

    def _restore_deadline(self) -> None:
        if self._stage is _HEAD:
            self._deadline.set(self.loop.time() + self.limits.idle_s)
        elif self._stage is _ANSWER:
            self._deadline.clear()

    def _expired(self) -> None:
        if self.write_paused or self._stage in (_LINGER, _CLOSED):
            self.stop()
        elif self._stage is _BODY and self._exchange is not None:
            due = self._exchange.body_is_late()
            if due is not None:
                self._deadline.set(due)
        elif self._stage is _HEAD and self._partial:
            self._refuse(HEAD_TOO_SLOW)
        elif self._stage is _HEAD:
            self._close()
