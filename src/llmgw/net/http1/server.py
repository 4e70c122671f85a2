"""The client listener: accepts connections, runs a task a request, and stops in order.

Laws: listening goes through the running loop alone; the port can be shared (SO_REUSEPORT, so that a
successor can listen before its predecessor stops); stopping gives answers in progress their time
and then ends everything.
"""

import asyncio

from llmgw.aio.tasks import Failed, FailureReport, Tasks, outcome, report_to_log
from llmgw.net.addresses import TcpAddress, tcp_address
from llmgw.net.http1.connection import ServerConnection
from llmgw.net.http1.exchange import HttpExchange
from llmgw.net.http1.limits import SERVER_LIMITS, ServerLimits
from llmgw.net.http1.refusals import RefusalRenderer, openai_refusal
from llmgw.net.http1.replies import ReplyHeads
from llmgw.ports import Clock, ExchangeHandler


class HttpListener:
    """The `ExchangeListener` of production."""

    def __init__(
        self,
        clock: Clock,
        *,
        limits: ServerLimits = SERVER_LIMITS,
        render: RefusalRenderer = openai_refusal,
        on_failure: FailureReport = report_to_log,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._render = render
        self._on_failure = on_failure

    async def serve(self, address: str, handler: ExchangeHandler) -> "HttpServing":
        """Open a listener; see `ExchangeListener`."""
        loop = asyncio.get_running_loop()
        where = tcp_address(address)
        heads = ReplyHeads(self._clock, loop)
        serving = HttpServing(handler, heads, self._limits, self._render, self._on_failure)
        await serving.open(where)
        return serving


class HttpServing:
    """The `Serving` of production: one open listener with its connections."""

    def __init__(
        self,
        handler: ExchangeHandler,
        heads: ReplyHeads,
        limits: ServerLimits,
        render: RefusalRenderer,
        on_failure: FailureReport,
    ) -> None:
        self.heads = heads
        self.limits = limits
        self.render = render
        self.draining = False
        self._handler = handler
        self._on_failure = on_failure
        self._tasks = Tasks(on_failure)
        self._connections: set[ServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._address: TcpAddress | None = None
        self._no_connections = asyncio.Event()
        self._no_connections.set()

    @property
    def address(self) -> str:
        """Where it really listens."""
        return str(self._address)

    @property
    def in_flight(self) -> int:
        """Exchanges whose handler has not returned."""
        return len(self._tasks)

    @property
    def open_connections(self) -> int:
        """Connections, idle ones included."""
        return len(self._connections)

    async def open(self, where: TcpAddress) -> None:
        """Bind and start to accept. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ServerConnection(self, loop),
            where.host,
            where.port,
            backlog=self.limits.backlog,
            reuse_port=True,
        )
        self._address = TcpAddress(where.host, self._server.sockets[0].getsockname()[1])

    def stop_accepting(self) -> None:
        """See `Serving`."""
        self.draining = True
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self._connections):
            connection.drain()

    async def drained(self, bound: float) -> bool:
        """See `Serving`; answers count as ended when their last byte was handed to the kernel."""
        try:
            async with asyncio.timeout(bound):
                await self._no_connections.wait()
                await self._tasks.settled()
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """See `Serving`."""
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.stop()
        await self._tasks.aclose()
        await self._no_connections.wait()

    # ------------------------------------------------------------ what connections ask for

    def admit(self, connection: ServerConnection) -> bool:
        """Count a new connection; False when there are too many (it is counted all the same)."""
        self._connections.add(connection)
        self._no_connections.clear()
        return len(self._connections) <= self.limits.connections

    def forget(self, connection: ServerConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._no_connections.set()

    def start(self, exchange: HttpExchange) -> asyncio.Task[None]:
        """Run the handler on a new exchange."""
        return self._tasks.start(self._run(exchange), name="exchange")

    async def _run(self, exchange: HttpExchange) -> None:
        ended = await outcome(self._handler(exchange))
        if isinstance(ended, Failed):
            head = exchange.head
            self._on_failure(f"answering {head.method} {head.target!r}", ended.failure)
        exchange.settle()
