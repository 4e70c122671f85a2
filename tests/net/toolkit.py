"""Raw ends of connections for the tests of HTTP: a client and an engine that send what they are told."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from llmgw.aio.tasks import Tasks, outcome
from llmgw.net.addresses import tcp_address
from llmgw.net.http1.limits import POOL_LIMITS, SERVER_LIMITS, PoolLimits, ServerLimits
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.http1.server import HttpListener, HttpServing
from llmgw.ports import Exchange, ExchangeHandler, HttpTimeouts, UpstreamRequest

PATIENT = HttpTimeouts(connect=5, first_byte=20, idle=20, total=50)


class FixedClock:
    """Wall time that stands still: Tuesday, 1 December 2026, 12:00."""

    def now(self) -> float:
        return 1796126400.0


class Answer(msgspec.Struct):
    """What a raw client read: `clean` is False when the connection ended before the answer did."""

    status: int
    headers: dict[str, str]
    body: bytes
    clean: bool


class Wire:
    """One end of a connection, without any opinion about HTTP but how to read an answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, address: str) -> "Wire":
        where = tcp_address(address)
        return cls(*await asyncio.open_connection(where.host, where.port))

    async def send(self, data: bytes) -> None:
        for start in range(0, len(data), 65536):
            self.writer.write(data[start : start + 65536])
            await self.writer.drain()

    async def head(self) -> bytes:
        """Everything up to and with a blank line."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> tuple[bytes, bytes]:
        """Head and body of a request with a length."""
        head = await self.head()
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return head, await self.reader.readexactly(length)

    async def answer(self, method: str = "GET") -> Answer:
        """One answer, interim ones skipped."""
        head = await self.head()
        lines = head.decode().split("\r\n")
        status = int(lines[0].split(" ")[1])
        if status < 200:
            return await self.answer(method)
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        if method == "HEAD" or status in (204, 304):
            return Answer(status, headers, b"", True)
        if "content-length" in headers:
            length = int(headers["content-length"])
            body = await self.reader.readexactly(length)
            return Answer(status, headers, body, True)
        if headers.get("transfer-encoding") == "chunked":
            body, clean = await self._chunks()
            return Answer(status, headers, body, clean)
        try:
            return Answer(status, headers, await self.reader.read(), True)
        except ConnectionError:
            return Answer(status, headers, b"", False)

    async def _chunks(self) -> tuple[bytes, bool]:
        pieces: list[bytes] = []
        try:
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                pieces.append(await self.reader.readexactly(size))
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
        except (asyncio.IncompleteReadError, ConnectionError):
            return b"".join(pieces), False
        return b"".join(pieces), True

    async def closed(self) -> bytes:
        """Wait for the other end to close; what it had still sent."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def abort(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """Close so that the other end sees a reset, not an end."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def gone(self) -> None:
        """Close, and wait until the loop has seen it."""
        self.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something is so; the test's time limit is the bound."""
    while not condition():  # noqa: ASYNC110  what is waited for has no event to wait on
        await asyncio.sleep(0.001)


def get(target: str = "/", *, extra: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: gateway\r\n{extra}\r\n".encode()


def post(body: bytes, target: str = "/", *, extra: str = "") -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: gateway\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


async def echo(exchange: Exchange) -> None:
    """Answers with what it was sent."""
    body = await exchange.read_body(32 * 1024 * 1024)
    head = exchange.head
    exchange.respond(200, [(b"x-method", head.method.encode()), (b"x-target", head.target)], body)


@asynccontextmanager
async def serving(
    handler: ExchangeHandler, *, limits: ServerLimits = SERVER_LIMITS, failures: list[str] | None = None
) -> AsyncIterator[HttpServing]:
    """An open listener; failures of handlers fail the test unless it gave a list for them."""
    unexpected: list[str] = []
    seen = unexpected if failures is None else failures
    listener = HttpListener(
        FixedClock(), limits=limits, on_failure=lambda what, why: seen.append(f"{what}: {why!r}")
    )
    opened = await listener.serve("127.0.0.1:0", handler)
    try:
        yield opened
    finally:
        await opened.aclose()
    assert unexpected == []


Script = Callable[[Wire, int], Awaitable[None]]


class Engine:
    """A scripted engine: each accepted connection runs the script; counts what it saw."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0
        self.open = 0
        self.host, self.port = "127.0.0.1", 0

    async def accept(self, wire: Wire) -> None:
        number = self.connections
        self.connections += 1
        self.open += 1
        try:
            # A script whose client leaves is over; what went wrong in it shows in what the client saw.
            await outcome(self._script(wire, number))
        finally:
            self.open -= 1
            wire.writer.close()
            with contextlib.suppress(ConnectionError):
                await wire.writer.wait_closed()

    def request(
        self,
        body: bytes = b"",
        *,
        method: str = "POST",
        target: bytes = b"/v1/completions",
        timeouts: HttpTimeouts = PATIENT,
    ) -> UpstreamRequest:
        return UpstreamRequest(
            self.host, self.port, method, target, ((b"content-type", b"text/plain"),), body, timeouts
        )


@asynccontextmanager
async def engine(script: Script) -> AsyncIterator[Engine]:
    running = Engine(script)
    async with Tasks() as tasks:

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.start(running.accept(Wire(reader, writer)), name="engine")

        server = await asyncio.start_server(accepted, "127.0.0.1", 0)
        running.port = server.sockets[0].getsockname()[1]
        try:
            yield running
        finally:
            server.close()


@asynccontextmanager
async def pool(limits: PoolLimits = POOL_LIMITS) -> AsyncIterator[UpstreamPool]:
    opened = UpstreamPool(limits)
    try:
        yield opened
    finally:
        await opened.aclose()
