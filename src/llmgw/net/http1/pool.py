"""The pool of connections to engines: which connection carries a request, and the one free retry.

Laws: the connection used last is used first (the others grow old and are closed by us); a reused
connection that dies at once with nothing received is replaced by a fresh one, once; nothing else is
ever retried here, because only the gateway knows what may be sent twice.
"""

import asyncio
from collections.abc import Callable
from typing import Self

from llmgw.net.addresses import TcpAddress
from llmgw.net.http1.heads import ParsedResponse
from llmgw.net.http1.limits import POOL_LIMITS, PoolLimits
from llmgw.net.http1.upstream import DiedAtOnce, UpstreamConnection, render_head
from llmgw.ports import Fetched, Stage, UpstreamBroke, UpstreamRequest

_Key = tuple[str, int]


def _host_header(where: _Key) -> bytes:
    host, port = where
    return b"%b:%d" % (f"[{host}]".encode() if ":" in host else host.encode(), port)


class EngineResponse:
    """The `UpstreamResponse` of production."""

    __slots__ = ("_connection", "_parsed", "_pool", "_where")

    def __init__(
        self, pool: "UpstreamPool", where: _Key, connection: UpstreamConnection, parsed: ParsedResponse
    ) -> None:
        self._pool = pool
        self._where = where
        self._connection = connection
        self._parsed = parsed

    @property
    def status(self) -> int:
        """The status code; never 1xx."""
        return self._parsed.status

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header fields, names in lower case."""
        return self._parsed.headers

    async def read(self, limit: int) -> bytes:
        """The whole body; see `UpstreamResponse`."""
        pieces: list[bytes] = []
        size = 0

        def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)
            if size > limit:
                raise UpstreamBroke(Stage.BODY, f"answer longer than {limit} bytes")
            pieces.append(piece)

        await self._connection.stream(take)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def stream(self, sink: Callable[[bytes], None]) -> None:
        """Give each piece to `sink`; see `UpstreamResponse`."""
        await self._connection.stream(sink)

    def pause(self) -> None:
        """Stop reading; see `UpstreamResponse`."""
        self._connection.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._connection.resume()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool.take_back(self._where, self._connection)


class UpstreamPool:
    """The `Upstream` of production."""

    def __init__(self, limits: PoolLimits = POOL_LIMITS) -> None:
        self._limits = limits
        self._idle: dict[_Key, list[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: UpstreamRequest) -> EngineResponse:
        """Send, and wait for the response head; see `Upstream`."""
        where = (request.host, request.port)
        head = render_head(request, _host_header(where))
        if self._loop is None:  # asking each time costs a system call
            self._loop = asyncio.get_running_loop()
        started = self._loop.time()
        reused = self._take(where)
        if reused is not None:
            try:
                return EngineResponse(self, where, reused, await reused.request(request, head, started))
            except DiedAtOnce:
                pass  # the engine had closed it; the request never arrived
        fresh = await self._connect(where, request.timeouts.connect)
        return EngineResponse(self, where, fresh, await fresh.request(request, head, started))

    async def fetch(self, request: UpstreamRequest, limit: int) -> Fetched:
        """Send, and read the whole answer; see `Upstream`."""
        async with await self.send(request) as response:
            return Fetched(response.status, response.headers, await response.read(limit))

    def close_idle(self, host: str, port: int) -> None:
        """Forget unused connections; see `Upstream`."""
        for connection in self._idle.pop((host, port), []):
            connection.abort()

    async def aclose(self) -> None:
        """Close every connection, those in use too, and refuse new requests."""
        self._closed = True
        self._idle.clear()
        for connection in tuple(self._open):
            connection.abort()
        await self._none_open.wait()

    def take_back(self, where: _Key, connection: UpstreamConnection) -> None:
        """The response's holder is done with it."""
        if not connection.let_go():
            return
        if self._closed:
            connection.abort()
            return
        resting = self._idle.setdefault(where, [])
        resting.append(connection)
        connection.rest()
        if len(resting) > self._limits.idle_per_address:
            resting.pop(0).abort()

    def _take(self, where: _Key) -> UpstreamConnection | None:
        resting = self._idle.get(where)
        while resting:
            connection = resting.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self, where: _Key, within: float) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        address = str(TcpAddress(*where))
        connection = UpstreamConnection(loop, self._limits, lambda lost: self._forget(where, lost))
        self._open.add(connection)
        self._none_open.clear()
        try:
            async with asyncio.timeout(within):
                await loop.create_connection(lambda: connection, *where)
        except TimeoutError as late:
            self._forget(where, connection)
            reason = f"no connection to {address} within {within:g} s"
            raise UpstreamBroke(Stage.CONNECT, reason, timed_out=True) from late
        except OSError as failed:
            self._forget(where, connection)
            reason = f"cannot connect to {address}: {failed.strerror or failed}"
            raise UpstreamBroke(Stage.CONNECT, reason) from failed
        except asyncio.CancelledError:
            connection.abort()
            self._forget(where, connection)
            raise
        if self._closed or not connection.usable:
            connection.abort()
            raise UpstreamBroke(Stage.CONNECT, f"the connection to {address} was closed at once")
        return connection

    def _forget(self, where: _Key, connection: UpstreamConnection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        resting = self._idle.get(where)
        if resting is not None and connection in resting:
            resting.remove(connection)
        if not resting:
            self._idle.pop(where, None)
