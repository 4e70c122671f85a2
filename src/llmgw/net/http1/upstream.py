"""One connection to an engine: a request out, a response in, and whether it may be used again.

Laws: a response is complete only when its framing says so; whatever ends otherwise is an
`UpstreamBroke` with the stage it had reached; nothing is parsed after the end; a connection is used
again only after a response that ended exactly where its bytes did; pieces go to the sink in the
protocol's callback.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from enum import Enum
from typing import Final, cast

from llmgw.aio.tasks import guarded
from llmgw.net.http1.chunked import BadChunks, ChunkedBody
from llmgw.net.http1.deadline import Deadline
from llmgw.net.http1.fields import write_fields
from llmgw.net.http1.heads import (
    CHUNKED,
    HEAD_END,
    LENGTH,
    UNTIL_CLOSE,
    BadResponse,
    Framing,
    ParsedResponse,
    parse_response,
)
from llmgw.net.http1.limits import PoolLimits
from llmgw.ports import HttpTimeouts, Stage, UpstreamBroke, UpstreamRequest

_OURS = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"upgrade"}
)
# Joining a larger body to its head would copy it on the loop for nothing.
_JOIN_MAX = 64 * 1024


def render_head(request: UpstreamRequest, host: bytes) -> bytes:
    """The head of a request. Raises `ValueError` on what would break its framing."""
    fields = write_fields(request.headers, _OURS)
    line = b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (request.method.encode(), request.target, host)
    if line.count(b"\n") != 2 or line.count(b"\r") != 2 or line.count(b" ") != 3:
        raise ValueError(f"method or target cannot be sent: {request.method!r} {request.target!r}")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        return b"%b%bcontent-length: %d\r\n\r\n" % (line, fields, len(request.body))
    return line + fields + b"\r\n"


class DiedAtOnce(UpstreamBroke):
    """The connection died as soon as the request was sent, with nothing received.

    On a connection that is used again it means that the engine had closed it before.
    """


class _State(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    COMPLETE = "complete"  # the response ended; its holder has not let go yet
    CLOSED = "closed"


# Members by their own names: looking one up on its enum costs 0.1 us in Python 3.11, dozens a request.
_IDLE: Final = _State.IDLE
_HEAD: Final = _State.HEAD
_BODY: Final = _State.BODY
_COMPLETE: Final = _State.COMPLETE
_CLOSED: Final = _State.CLOSED


class UpstreamConnection(asyncio.Protocol):
    """The protocol of one connection to an engine; carries one exchange at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: PoolLimits,
        lost: Callable[["UpstreamConnection"], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._state = _IDLE
        self._reusable = True
        self._deadline = Deadline(loop, self._expired)
        self._timeouts = HttpTimeouts()
        self._started = self._last = 0.0
        self._method = ""
        self._received = bytearray()  # of a head
        self._received_any = False
        self._head: asyncio.Future[ParsedResponse] | None = None
        self._framing: Framing = LENGTH
        self._missing = 0
        self._chunks: ChunkedBody | None = None
        self._pieces: list[bytes] = []
        self._unread = 0
        self._sink: Callable[[bytes], None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._paused_by_sink = False
        self._paused_unread = False
        self._reading_paused = False

    # ------------------------------------------------------------ the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: watch for a cut network (G12)."""
        self._transport = cast(asyncio.Transport, transport)
        if self._state is _CLOSED:  # aborted while it was being opened
            self._transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        limits = self._limits
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.keepalive_idle_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.keepalive_interval_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, limits.keepalive_probes)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limits.user_timeout_ms)

    def data_received(self, data: bytes) -> None:
        """Bytes of the response, or bytes nobody asked for."""
        state = self._state
        if state is _BODY:
            self._last = self._loop.time()
            chunks = self._chunks
            if chunks is not None:
                self._take_chunks(chunks, data)
            else:
                self._take_body(data)
        elif state is _HEAD:
            self._received_any = True
            self._take_head(data)
        elif state is _COMPLETE:
            self._reusable = False
        elif state is _IDLE:
            self.abort()

    def eof_received(self) -> None:
        """The engine closed: the end of a body without a length, else a break; the transport closes."""
        self._reusable = False
        if self._state is _BODY and self._framing is UNTIL_CLOSE:
            self._complete()
        else:
            self._broken("the engine closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._reusable = False
        self._broken(f"the connection broke: {exc}" if exc else "the connection was closed")
        self._state = _CLOSED
        self._transport = None
        self._deadline.cancel()
        self._lost(self)

    # ------------------------------------------------------------ what the pool asks for

    @property
    def usable(self) -> bool:
        """Whether an unused connection can still carry a request."""
        return self._state is _IDLE and self._transport is not None and not self._transport.is_closing()

    async def request(self, request: UpstreamRequest, head: bytes, started: float) -> ParsedResponse:
        """Send, and wait for the response head. Raises `UpstreamBroke`. Cancelling closes the connection.

        `head` is the request's, as `render_head` wrote it; `started` is when the whole exchange began.
        """
        transport = self._transport
        assert self.usable and transport is not None, "a request on a connection in use"
        self._state = _HEAD
        self._timeouts = request.timeouts
        self._started = started
        self._last = self._loop.time()
        self._method = request.method
        self._received_any = False
        if len(request.body) <= _JOIN_MAX:
            transport.write(head + request.body)
        else:
            transport.write(head)
            transport.write(request.body)
        self._deadline.set(self._due())
        self._head = self._loop.create_future()
        try:
            return await self._head
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._head = None

    def rest(self) -> None:
        """It was put aside, unused, for a while."""
        self._state = _IDLE
        self._deadline.set(self._loop.time() + self._limits.idle_s)

    def let_go(self) -> bool:
        """Its holder is done with the response; whether it may carry another, else it was closed."""
        transport = self._transport
        if (
            self._state is _COMPLETE
            and self._reusable
            and transport is not None
            and not transport.is_closing()
            and transport.get_write_buffer_size() == 0
        ):
            self._pieces.clear()
            self._unread = 0
            self._paused_by_sink = self._paused_unread = False
            self._apply_pause()
            return True
        self.abort()
        return False

    def abort(self) -> None:
        """Close at once; the engine sees its client leave."""
        self._broken("closed by the gateway")
        self._state = _CLOSED
        self._pieces.clear()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ what the response asks for

    async def stream(self, sink: Callable[[bytes], None]) -> None:
        """Give every piece to `sink`; see `UpstreamResponse`."""
        assert self._sink is None, "a body is streamed once"
        self._sink = guarded(sink, self.fail)
        pieces, self._pieces = self._pieces, []
        broke = self._failure  # what came before the break is still given out
        for piece in pieces:
            if self._failure is broke:
                self._sink(piece)
        self._unread = 0
        self._paused_unread = False
        self._apply_pause()
        try:
            if self._failure is not None:
                raise self._failure
            if self._state is _BODY:
                self._ended = self._loop.create_future()
                await self._ended
        finally:
            self._sink = self._ended = None

    def pause(self) -> None:
        """Stop reading; see `UpstreamResponse`."""
        self._paused_by_sink = True
        self._apply_pause()

    def resume(self) -> None:
        """Go on reading."""
        if self._paused_by_sink:
            self._paused_by_sink = False
            self._last = self._loop.time()
            if self._state is _BODY:
                self._deadline.set(self._due())
            self._apply_pause()

    def fail(self, failure: Exception) -> None:
        """End the exchange with this failure and close."""
        self._state = _CLOSED
        self._reusable = False
        self._failure = failure
        self._chunks = None
        waiting = self._head or self._ended
        if waiting is not None and not waiting.done():
            waiting.set_exception(failure)
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ heads

    def _take_head(self, data: bytes) -> None:
        if self._received:
            self._received += data
            data = bytes(self._received)
        while (end := data.find(HEAD_END)) >= 0:
            size = end + len(HEAD_END)
            try:
                parsed = parse_response(data[:size], self._method, self._limits)
            except BadResponse as bad:
                self.fail(UpstreamBroke(Stage.HEAD, str(bad)))
                return
            data = data[size:]
            if parsed.status >= 200:
                self._received.clear()
                self._begin_body(parsed, data)
                return
            if parsed.status == 101:
                self.fail(UpstreamBroke(Stage.HEAD, "the engine switched protocols unasked"))
                return
        self._received[:] = data
        if len(data) > self._limits.head_bytes:
            reason = f"response head larger than {self._limits.head_bytes} bytes"
            self.fail(UpstreamBroke(Stage.HEAD, reason))
        elif data[:5] != b"HTTP/"[: len(data)] or b"\n\n" in data:
            self.fail(UpstreamBroke(Stage.HEAD, "malformed response head: not HTTP/1.1 or 1.0"))

    def _begin_body(self, parsed: ParsedResponse, rest: bytes) -> None:
        self._state = _BODY
        self._reusable = parsed.keep_alive
        self._framing = parsed.framing
        self._missing = parsed.length
        self._last = self._loop.time()
        if self._head is not None and not self._head.done():
            self._head.set_result(parsed)
        if parsed.framing is CHUNKED:
            self._chunks = ChunkedBody()
        elif parsed.framing is LENGTH and not parsed.length:
            self._reusable = self._reusable and not rest
            self._complete()
            return
        self._deadline.set(self._due())
        if rest:
            self._take_body(rest)

    # ------------------------------------------------------------ bodies

    def _take_body(self, data: bytes) -> None:
        if self._chunks is not None:
            self._take_chunks(self._chunks, data)
        elif self._framing is UNTIL_CLOSE:
            self._deliver(data)
        else:
            if len(data) > self._missing:
                data = data[: self._missing]
                self._reusable = False  # bytes after the end: whose are they?
            self._missing -= len(data)
            self._deliver(data)
            if not self._missing and self._state is _BODY:
                self._complete()

    def _take_chunks(self, chunks: ChunkedBody, data: bytes) -> None:
        try:
            piece = chunks.feed(data)
        except BadChunks as bad:
            if bad.before:
                self._deliver(bad.before)
            self.fail(UpstreamBroke(Stage.BODY, f"malformed chunked body: {bad}"))
            return
        if piece:
            self._deliver(piece)
        if chunks.complete and self._state is _BODY:
            self._reusable = self._reusable and chunks.clean_end
            self._complete()

    def _deliver(self, piece: bytes) -> None:
        if self._sink is not None:
            if self._state is _BODY:
                self._sink(piece)
            return
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > self._limits.unread_bytes:
            self._paused_unread = True
            self._apply_pause()

    def _complete(self) -> None:
        self._state = _COMPLETE
        self._chunks = None
        self._deadline.clear()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _apply_pause(self) -> None:
        pause = self._paused_by_sink or self._paused_unread
        transport = self._transport
        if pause is self._reading_paused or transport is None or transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # ------------------------------------------------------------ ends and deadlines

    def _broken(self, reason: str) -> None:
        if self._state is _HEAD:
            at_once = not self._received_any and self._loop.time() - self._last <= self._limits.race_s
            kind = DiedAtOnce if at_once else UpstreamBroke
            self.fail(kind(Stage.HEAD, f"{reason} before answering"))
        elif self._state is _BODY:
            missing = f", {self._missing} bytes short" if self._framing is LENGTH else ""
            self.fail(UpstreamBroke(Stage.BODY, f"{reason} in the middle of the answer{missing}"))

    def _due(self) -> float:
        """When the exchange is late, in the loop's time."""
        timeouts = self._timeouts
        total = self._started + timeouts.total
        if self._state is _HEAD:
            return min(total, self._last + timeouts.first_byte)
        return total if self._paused_by_sink else min(total, self._last + timeouts.idle)

    def _expired(self) -> None:
        if self._state is _IDLE:
            self.abort()
        if self._state not in (_HEAD, _BODY):
            return
        due = self._due()
        if due - self._loop.time() > 0.001:  # bytes came since it was set
            self._deadline.set(due)
            return
        timeouts = self._timeouts
        if due >= self._started + timeouts.total:
            reason = f"not complete within {timeouts.total:g} s"
        elif self._state is _HEAD:
            reason = f"no answer within {timeouts.first_byte:g} s"
        else:
            reason = f"silent for {timeouts.idle:g} s in the middle of the answer"
        stage = Stage.HEAD if self._state is _HEAD else Stage.BODY
        self.fail(UpstreamBroke(stage, reason, timed_out=True))
