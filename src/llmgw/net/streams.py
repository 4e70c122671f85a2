"""Opens and accepts message streams: agents' and routers' connections to a server, as WebSockets.

Laws: sockets are opened only through the running loop, with literal addresses resolved without a
thread (a host *name* is looked up in the loop's executor, which a simulated loop does not have);
no proxy and nothing else from the environment is used; messages and buffers are bounded; what one
end says on closing reaches the other end; library errors leave here only as `StreamClosed`.
"""

import asyncio
import contextlib
import http
import logging
import socket
import struct
from collections.abc import Mapping
from typing import Any

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import Server, ServerConnection, serve, unix_serve
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode
from websockets.http11 import Request, Response

from llmgw.aio.tasks import Failed, FailureReport, outcome, report_to_log
from llmgw.net import unixsocket
from llmgw.net.addresses import Address, BadAddress, TcpAddress, UnixAddress, parse_address
from llmgw.ports import Peer, StreamClosed, StreamHandler

# A snapshot of 5,000 models with their endpoints is about 4 MiB; nothing honest is larger.
MESSAGE_MAX = 8 * 1024 * 1024
# Received messages waiting for `receive`, a stream; beyond, the socket is not read. 4 of them bound
# the memory of a stream to 4 * MESSAGE_MAX in the worst case and to kilobytes in practice.
RECEIVE_QUEUE = 4
# Unsent bytes beyond which `send` waits.
SEND_BUFFER = 256 * 1024
# Heartbeats (5 s) tell a dead agent first; pings find a dead network under a silent, idle stream.
PING_EVERY_S = 10.0
PING_ANSWER_S = 10.0
# Patience with the other end's half of a handshake.
OPEN_WITHIN_S = 5.0
CLOSE_WITHIN_S = 2.0
# A WebSocket close reason holds 123 bytes.
REASON_MAX = 120

_UCRED = struct.Struct("3i")  # pid, uid, gid
_REFUSAL_TEXT_MAX = 200


class WebSocketStream:
    """A `MessageStream` over one WebSocket."""

    def __init__(self, connection: Connection, peer: Peer) -> None:
        self._connection = connection
        self._peer = peer

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._peer

    async def send(self, message: bytes) -> None:
        """Send one message; see `MessageStream`. A message above MESSAGE_MAX is a `ValueError`."""
        if len(message) > MESSAGE_MAX:
            raise ValueError(f"message of {len(message)} bytes; a stream carries at most {MESSAGE_MAX}")
        try:
            await self._connection.send(message)
        except ConnectionClosed as closed:
            raise StreamClosed(_reason(closed)) from closed

    async def receive(self) -> bytes:
        """The next message; see `MessageStream`. Safe to cancel."""
        try:
            return await self._connection.recv(decode=False)
        except ConnectionClosed as closed:
            raise StreamClosed(_reason(closed)) from closed

    async def close(self, reason: str = "") -> None:
        """Close and tell the other end why; waits at most CLOSE_WITHIN_S for its half."""
        await self.close_with(CloseCode.NORMAL_CLOSURE, reason)

    async def close_with(self, code: CloseCode, reason: str) -> None:
        """The same with a protocol code of the caller's choice."""
        with contextlib.suppress(WebSocketException, OSError):
            await self._connection.close(code, _clipped(reason))


class StreamDialer:
    """The `Dialer` of production."""

    async def dial(self, address: str, path: str, *, within: float = OPEN_WITHIN_S) -> WebSocketStream:
        """Open the stream `path` at `address`; see `Dialer`."""
        try:
            parsed = parse_address(address)
            async with asyncio.timeout(within):
                connection = await _connect(parsed, path)
        except InvalidStatus as refused:
            raise StreamClosed(_refusal(refused)) from refused
        except TimeoutError as late:
            raise StreamClosed(f"no answer from {address} within {within:g} s") from late
        except AssertionError as garbled:
            # websockets 17 asserts when bytes that are not HTTP arrive before its request is out.
            raise StreamClosed(f"{address}: what answers there is no llmgw listener") from garbled
        except (BadAddress, WebSocketException, EOFError) as broken:
            raise StreamClosed(f"{address}: {broken}") from broken
        except OSError as failed:
            raise StreamClosed(f"cannot reach {address}: {failed.strerror or failed}") from failed
        return WebSocketStream(connection, _peer(connection, parsed))


class WebSocketListener:
    """The `StreamListener` of production."""

    def __init__(self, on_failure: FailureReport = report_to_log) -> None:
        self._on_failure = on_failure

    async def listen(self, address: str, handlers: Mapping[str, StreamHandler]) -> "StreamListening":
        """Open a listener; see `StreamListener`."""
        listening = StreamListening(parse_address(address), dict(handlers), self._on_failure)
        await listening.open()
        return listening


class StreamListening:
    """One open listener and the streams accepted on it."""

    def __init__(
        self, address: Address, handlers: Mapping[str, StreamHandler], on_failure: FailureReport
    ) -> None:
        self._address = address
        self._handlers = handlers
        self._on_failure = on_failure
        self._accepted: set[ServerConnection] = set()
        self._serving: set[asyncio.Task[object]] = set()
        self._server: Server | None = None
        self._file: unixsocket.FileId | None = None

    @property
    def address(self) -> str:
        """Where it really listens."""
        return str(self._address)

    async def open(self) -> None:
        """Bind and start to accept. Raises `OSError`."""
        match self._address:
            case UnixAddress(path):
                await unixsocket.make_way(path)
                # Bound but not listening yet: nobody can connect before the file is private.
                self._server = await unix_serve(self._serve, path, start_serving=False, **self._options())
                self._file = unixsocket.make_private(path)
                await self._server.start_serving()
            case TcpAddress(host, port):
                self._server = await serve(self._serve, host, port, **self._options())
                self._address = TcpAddress(host, self._server.sockets[0].getsockname()[1])

    async def aclose(self) -> None:
        """Stop accepting, end every stream with a reason, cancel handlers. Never raises; idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close(close_connections=False)
        for task in tuple(self._serving):
            task.cancel()
        for connection in tuple(self._accepted):
            if connection.response is None:  # still in its opening handshake
                connection.transport.abort()
        await server.wait_closed()
        if isinstance(self._address, UnixAddress):
            unixsocket.remove_own(self._address.path, self._file)

    def _options(self) -> dict[str, Any]:
        accepted = self._accepted

        class Accepted(ServerConnection):
            """Known to the listener from its first byte, so that closing leaves none behind."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                accepted.add(self)

            def connection_lost(self, exc: Exception | None) -> None:
                accepted.discard(self)
                super().connection_lost(exc)

        return _limits() | {
            "create_connection": Accepted,
            "process_request": self._admit,
            "server_header": None,
            "open_timeout": OPEN_WITHIN_S,
        }

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if _path(request) in self._handlers:
            return None
        return connection.respond(http.HTTPStatus.NOT_FOUND, f"no stream at {_path(request)}\n")

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None, "served before its handshake"
        stream = WebSocketStream(connection, _peer(connection, self._address))
        handler = self._handlers[_path(connection.request)]
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            ended = await outcome(handler(stream))
        except asyncio.CancelledError:
            await stream.close_with(CloseCode.GOING_AWAY, "stopping")
            raise
        finally:
            self._serving.discard(task)
        match ended:
            case None | Failed(StreamClosed()):  # the other end went away: no failure of the handler
                await stream.close()
            case Failed(failure):
                self._on_failure(f"stream from {stream.peer.address}", failure)
                await stream.close_with(CloseCode.INTERNAL_ERROR, "internal error")


def _quiet_logger() -> logging.Logger:
    # The library says at INFO what its callers say better; its errors still reach the root's handlers.
    logger = logging.Logger("llmgw.streams", logging.WARNING)
    logger.parent = logging.getLogger()
    return logger


def _limits() -> dict[str, Any]:
    return {
        "max_size": MESSAGE_MAX,
        "max_queue": RECEIVE_QUEUE,
        "write_limit": SEND_BUFFER,
        "compression": None,  # messages are small or sent rarely; a window a stream costs 300 KB
        "ping_interval": PING_EVERY_S,
        "ping_timeout": PING_ANSWER_S,
        "close_timeout": CLOSE_WITHIN_S,
        "logger": _quiet_logger(),
    }


async def _connect(address: Address, path: str) -> ClientConnection:
    # `open_timeout` is the caller's; `proxy=None` keeps the library from reading the environment.
    options = _limits() | {"open_timeout": None, "proxy": None, "user_agent_header": None}
    match address:
        case UnixAddress(socket_path):
            return await unix_connect(socket_path, f"ws://localhost{path}", **options)
        case TcpAddress(host, port):
            return await connect(f"ws://{address}{path}", host=host, port=port, **options)


def _path(request: Request) -> str:
    return request.path.partition("?")[0]


def _peer(connection: Connection, address: Address) -> Peer:
    if isinstance(address, UnixAddress):
        return Peer(address=str(address), pid=_peer_pid(connection.transport))
    host, port = connection.remote_address[:2]
    return Peer(address=str(TcpAddress(host, port)))


def _peer_pid(transport: asyncio.Transport) -> int | None:
    told: int | None = transport.get_extra_info("peer_pid")  # a simulated transport knows it itself
    sock = transport.get_extra_info("socket")
    if told is not None or sock is None or sock.family != socket.AF_UNIX:
        return told
    pid: int = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
    return pid or None


def _clipped(reason: str) -> str:
    return reason.encode()[:REASON_MAX].decode(errors="ignore")


def _reason(closed: ConnectionClosed) -> str:
    """What the other end said, else what is known."""
    if closed.rcvd is not None:
        return closed.rcvd.reason
    if closed.sent is not None and closed.sent.reason:
        return closed.sent.reason
    return "connection lost"


def _refusal(refused: InvalidStatus) -> str:
    response = refused.response
    text = bytes(response.body or b"")[:_REFUSAL_TEXT_MAX].decode(errors="replace").strip()
    return f"refused with status {response.status_code}" + (f": {text}" if text else "")
