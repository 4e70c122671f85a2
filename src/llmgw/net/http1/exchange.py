"""One request on the client listener and its answer; what the gateway's handler holds.

Laws: exactly one answer; one `transport.write` a piece; a request body is kept only up to what the
handler allows; once the client is gone everything here is silent, because the handler is being
cancelled already.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from llmgw.net.http1.heads import LENGTH, ParsedRequest
from llmgw.net.http1.limits import ServerLimits
from llmgw.net.http1.refusals import HANDLER_FAILED, Refusal
from llmgw.net.http1.replies import CONTINUE, LAST_CHUNK, ReplyHeads, has_no_body
from llmgw.ports import BodyTooLarge, BodyTooSlow, HeaderList, RequestHead


class Carrier(Protocol):
    """What an exchange needs of the connection it is on."""

    loop: asyncio.AbstractEventLoop
    limits: ServerLimits
    heads: ReplyHeads
    close_after: bool
    write_paused: bool

    @property
    def closes_after(self) -> bool:
        """Whether the answer in progress is the last of this connection."""
        ...

    def send(self, data: bytes) -> None:
        """Write, unless the connection is gone."""
        ...

    def render(self, refusal: Refusal) -> tuple[HeaderList, bytes]:
        """How this listener words a refusal."""
        ...

    def hold_reading(self) -> None:
        """Stop taking bytes from the socket."""
        ...

    def await_body(self, due: float) -> None:
        """The handler waits for the body: take it, with a deadline."""
        ...

    def body_awaited(self) -> None:
        """The handler waits no longer."""
        ...

    def answered(self, exchange: "HttpExchange") -> None:
        """The answer is complete."""
        ...

    def abandon(self, *, reset: bool) -> None:
        """Close without a clean end of the answer."""
        ...


class _Answer(Enum):
    NONE = "none"  # nothing sent
    STREAM = "stream"  # head sent, the end not yet
    ENDED = "ended"
    VANISHED = "vanished"  # the client is gone; what the handler still does is for nobody


# Members by their own names: looking one up on its enum costs 0.1 us in Python 3.11, dozens a request.
_NONE: Final = _Answer.NONE
_STREAM: Final = _Answer.STREAM
_ENDED: Final = _Answer.ENDED
_VANISHED: Final = _Answer.VANISHED


_OVER = (_ENDED, _VANISHED)


class HttpExchange:
    """The `Exchange` of production."""

    # How every exchange begins; on the class, because one is made for each request.
    task: asyncio.Task[None] | None = None
    _body_size = 0
    _reader: asyncio.Future[None] | None = None
    _limit = 0
    _reading_since = 0.0
    _answer = _NONE
    _held_head = b""
    _chunked = False
    _silent_body = False
    _pause: Callable[[], None] | None = None
    _resume: Callable[[], None] | None = None

    def __init__(self, connection: Carrier, parsed: ParsedRequest) -> None:
        self._connection = connection
        self._parsed = parsed
        self.body_complete = parsed.framing is LENGTH and parsed.length == 0
        self._pieces: list[bytes] = []

    @property
    def head(self) -> RequestHead:
        """The request's head."""
        return self._parsed.head

    @property
    def untouched(self) -> bool:
        """Whether nothing of an answer was sent."""
        return self._answer is _NONE

    # ------------------------------------------------------------ the request's body

    async def read_body(self, limit: int) -> bytes:
        """The whole body; see `Exchange`."""
        if max(self._parsed.length, self._body_size) > limit:
            raise BodyTooLarge(f"the body is longer than {limit} bytes")
        if not self.body_complete:
            await self._rest_of_body(limit)
        if len(self._pieces) != 1:
            self._pieces = [b"".join(self._pieces)]
        return self._pieces[0]

    async def _rest_of_body(self, limit: int) -> None:
        connection = self._connection
        if self._parsed.expects_continue and not self._body_size and self._answer is _NONE:
            connection.send(CONTINUE)
        self._limit = limit
        self._reader = connection.loop.create_future()
        self._reading_since = connection.loop.time()
        connection.await_body(self._body_due())
        try:
            await self._reader
        finally:
            self._reader = None
            connection.body_awaited()

    def add_body(self, piece: bytes) -> None:
        """The connection received a piece of the body."""
        self._body_size += len(piece)
        if self._answer in _OVER:
            return
        if self._reader is None:
            self._pieces.append(piece)
            if self._body_size > self._connection.limits.unread_bytes:
                self._connection.hold_reading()
        elif self._body_size <= self._limit:
            self._pieces.append(piece)
        elif not self._reader.done():
            self._pieces.clear()
            self._connection.hold_reading()
            self._reader.set_exception(BodyTooLarge(f"the body is longer than {self._limit} bytes"))

    def take_whole_body(self, body: bytes) -> None:
        """The connection received the body at once, before anybody could ask for it."""
        self._pieces = [body]
        self._body_size = len(body)
        self.body_complete = True

    def end_body(self) -> None:
        """The connection received the end of the body."""
        self.body_complete = True
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def body_is_late(self) -> float | None:
        """The body's deadline came: when it is due now, or None after the reader was told it is too slow."""
        if self._reader is None or self._reader.done():
            return None
        due = self._body_due()
        if due > self._connection.loop.time():
            return due
        self._reader.set_exception(BodyTooSlow("the body did not arrive at the minimum rate"))
        return None

    def _body_due(self) -> float:
        limits = self._connection.limits
        return self._reading_since + limits.body_grace_s + self._body_size / limits.body_rate

    # ------------------------------------------------------------ the answer

    def respond(self, status: int, headers: HeaderList, body: bytes) -> None:
        """Send a whole answer; see `Exchange`."""
        if not self._may_begin():
            return
        framing = b"" if status in (204, 304) else b"content-length: %d\r\n" % len(body)
        sent_body = b"" if has_no_body(self.head.method, status) else body
        self._connection.send(self._render(status, headers, framing, sent_body))
        self._end()

    def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a streamed answer; it travels with a first piece written in the same turn."""
        if not self._may_begin():
            return
        self._answer = _STREAM
        self._silent_body = has_no_body(self.head.method, status)
        self._chunked = not self._parsed.http10 and status not in (204, 304)
        if not self._chunked and not self._silent_body:
            self._connection.close_after = True  # HTTP/1.0 knows no other end
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        self._held_head = self._render(status, headers, framing)
        self._connection.loop.call_soon(self._flush_head)

    def write(self, data: bytes) -> None:
        """Send one piece of a streamed answer; see `Exchange`."""
        if self._answer is not _STREAM and not self._is_streaming():
            return
        if not data or self._silent_body:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._held_head:
            data, self._held_head = self._held_head + data, b""
        self._connection.send(data)

    def finish(self) -> None:
        """End a streamed answer cleanly; see `Exchange`."""
        if not self._is_streaming():
            return
        end = LAST_CHUNK if self._chunked and not self._silent_body else b""
        if self._held_head or end:
            self._connection.send(self._held_head + end)
            self._held_head = b""
        self._end()

    def abort(self) -> None:
        """End without a clean end; see `Exchange`. What was written before still goes out first.

        Where the end of the connection is the end of the body (HTTP/1.0) only a reset tells the
        difference, and what was not sent yet is lost.
        """
        if self._answer in _OVER:
            return
        streaming = self._answer is _STREAM
        self._flush_head()
        self._answer = _ENDED
        self._release()
        self._connection.abandon(reset=streaming and not self._chunked)

    def watch_pressure(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Tell about a client that reads slowly; see `Exchange`."""
        self._pause, self._resume = pause, resume
        if self._connection.write_paused:
            pause()

    def pressure(self, on: bool) -> None:
        """The connection's write buffer filled or emptied."""
        callback = self._pause if on else self._resume
        if callback is not None:
            callback()

    def settle(self) -> None:
        """The handler returned or raised: what it left open is ended for it."""
        if self._answer is _NONE:
            self.respond(HANDLER_FAILED.status, *self._connection.render(HANDLER_FAILED))
        elif self._answer is _STREAM:
            self.abort()

    def vanish(self) -> None:
        """The client is gone: nothing more is sent, and the handler is cancelled."""
        self._answer = _VANISHED
        self._held_head = b""
        self._release()
        if self.task is not None:
            self.task.cancel()

    def _may_begin(self) -> bool:
        if self._answer in (_STREAM, _ENDED):
            raise RuntimeError("a second answer to one request")
        return self._answer is _NONE

    def _is_streaming(self) -> bool:
        if self._answer in (_NONE, _ENDED):
            raise RuntimeError("a piece of an answer that is not being streamed")
        return self._answer is _STREAM

    def _end(self) -> None:
        self._answer = _ENDED
        self._release()
        self._connection.answered(self)

    def _release(self) -> None:
        self._pause = self._resume = None

    def _render(self, status: int, headers: HeaderList, framing: bytes, body: bytes = b"") -> bytes:
        connection = self._connection
        if not self.body_complete or connection.closes_after:
            connection.close_after = True
            framing += b"connection: close\r\n"
        elif self._parsed.http10:
            framing += b"connection: keep-alive\r\n"
        return connection.heads.write(status, headers, framing, body)

    def _flush_head(self) -> None:
        if self._held_head:
            self._connection.send(self._held_head)
            self._held_head = b""
