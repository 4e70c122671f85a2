"""The Protocols through which shells reach what is outside them: sockets, streams, processes, clocks.

Laws: shells import these and never an adapter; an adapter (net, host, store) implements them and
never imports a shell; the simulator implements them again. Each port has one contract suite, run
against every implementation. Errors a port may raise are defined beside it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from llmgw.core.inventory import Filesystem, Gpu, NodeReport, OperatorMark
from llmgw.core.weights import FileFacts
from llmgw.wire.admin_v1 import EventRow, Explanation, ModelRow, NodeRow, ReplicaRow, RouterRow, Status
from llmgw.wire.watch_v1 import KeyEntry, UsageRow

# ---------------------------------------------------------------- time


class Clock(Protocol):
    """Wall time. Durations come from the running loop's `time()`, never from here."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


# ---------------------------------------------------------------- HTTP, the data plane

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


# ---------------------------------------------------------------- message streams


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


# ---------------------------------------------------------------- processes on a node


class ProcessId(msgspec.Struct, frozen=True):
    """Identity of a process: a pid alone may be reused (A14)."""

    boot_id: str
    pid: int
    start_time: int  # clock ticks since boot, /proc/PID/stat field 22


class SpawnSpec(msgspec.Struct, frozen=True):
    """A process to start, in its own process group, output appended to `log_path`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]  # the whole environment, marker included
    log_path: str
    cwd: str | None = None


class SpawnFailed(Exception):
    """The process could not be started; the text is the operating system's reason."""


class ProcessHandle(Protocol):
    """A process we started or adopted."""

    @property
    def identity(self) -> ProcessId: ...

    async def wait(self) -> int | None:
        """Exit status (negative: signal); `None` when it was adopted and the status is not ours to know."""
        ...

    def signal_group(self, signum: int) -> None:
        """Signal its process group; no error when it is gone."""
        ...


class Processes(Protocol):
    """Starts, finds and signals processes on this node."""

    async def spawn(self, spec: SpawnSpec) -> ProcessHandle:
        """Raises `SpawnFailed`."""
        ...

    def adopt(self, identity: ProcessId) -> ProcessHandle | None:
        """A handle on a process that is alive with exactly this identity (zombies are dead)."""
        ...

    async def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        """Every live process whose environment holds all of these variables.

        Waits, because looking into a process stuck in the kernel may hang (A17b).
        """
        ...

    def kill(self, identity: ProcessId, signum: int) -> None:
        """Signal one process if it still has this identity."""
        ...

    def boot_id(self) -> str: ...


# ---------------------------------------------------------------- a node, as its agent looks at it


class NodeVitals(msgspec.Struct, frozen=True):
    """What changes from moment to moment (A6). `None`: could not be learned.

    `stale_s` names the fields whose probe did not answer in time, with the age of the value given.
    """

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    ports_in_use: tuple[int, ...] | None = None
    stale_s: Mapping[str, float] = {}


class NodeProbe(Protocol):
    """Looks at this node. Every look is bounded; one that hangs yields the last value (A17b)."""

    async def report(self) -> NodeReport:
        """The whole node, looked at anew (A1)."""
        ...

    async def vitals(self, ports: range) -> NodeVitals:
        """What a heartbeat carries; of the ports only those in `ports`."""
        ...


class NodeChecks(Protocol):
    """What is looked at on the node before an engine is started (A16), and after it ended."""

    async def port_free(self, address: str, port: int) -> bool:
        """Whether an engine could listen there now. Raises `OSError` when the address is not ours."""
        ...

    async def file(self, path: str) -> FileFacts:
        """What is at a path; a filesystem that does not answer is `UNREADABLE`."""
        ...

    async def secret(self, path: str) -> str:
        """The content of a secret's file without its last newline. Raises `OSError`."""
        ...


class EngineLogs(Protocol):
    """The bounded files engines write their output to (A15), by name."""

    def path(self, name: str) -> str:
        """Where an engine's output goes; the folder is there."""
        ...

    async def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The last lines, oldest first; () when there is no such log."""
        ...

    async def read(self, name: str, offset: int | None) -> tuple[tuple[str, ...], int]:
        """Whole lines after a byte offset and the next offset; `None` begins at the end.

        A log that was cut meanwhile is read from its new start.
        """
        ...

    async def trim(self) -> None:
        """Cut logs that grew beyond their bound, remove the oldest of those no engine writes."""
        ...


# ---------------------------------------------------------------- files of a role


class StateFiles(Protocol):
    """Small files of a role's state directory; written whole (temporary, fsync, rename), mode 0600."""

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> None: ...

    def remove(self, name: str) -> None: ...

    def names(self, prefix: str) -> list[str]: ...

    def path(self, name: str) -> str:
        """Absolute path of a state file, for a process that must be told where it is."""
        ...


class LoopOwner(Protocol):
    """What a running role offers to the one that started it."""

    async def run(self) -> None: ...

    async def aclose(self) -> None: ...


AsyncTask = asyncio.Task[None]


# ---------------------------------------------------------------- the store


class StoreUnavailable(Exception):
    """The database could not be reached or did not answer in time. Never evidence about who leads (H2)."""


class LeaseOwner(msgspec.Struct, frozen=True):
    """Who asks for the lease: random per process, with the process's identity for same-host takeover."""

    owner: str
    boot_id: str
    pid: int
    start_time: int
    address: str | None = None  # where this server's agent listener is, for standbys to point at


class Lease(msgspec.Struct, frozen=True):
    """The lease row after an attempt: whether the asker holds it; `term` grows with each holder."""

    held: bool
    term: int
    holder: LeaseOwner
    expires_in_s: float  # by the database's clock


class LeaseStore(Protocol):
    """The lease (H1): taken and renewed by one statement, judged by the database's clock."""

    async def cluster_id(self) -> str:
        """Written with the first migration."""
        ...

    async def take(self, owner: LeaseOwner, duration_s: float) -> Lease:
        """Take it when free, expired, or held by a dead process of this host; renew it when ours."""
        ...

    async def raise_term(self, owner: LeaseOwner, above: int) -> Lease:
        """Make the term `above + 1`, only while `owner` holds the lease (H2)."""
        ...

    async def release(self, owner: LeaseOwner) -> None:
        """Give it up, if it is ours."""
        ...


class RosterRow(msgspec.Struct, frozen=True):
    """A node that was seen once, with the operator's mark."""

    node_id: str
    mark: OperatorMark
    address: str | None = None


class RosterStore(Protocol):
    """The stored roster of nodes and their marks (I2, R10)."""

    async def roster(self) -> tuple[RosterRow, ...]: ...

    async def remember_node(self, node_id: str, address: str | None) -> None: ...

    async def set_mark(self, node_id: str, mark: OperatorMark) -> None: ...

    async def forget_node(self, node_id: str) -> None: ...


class KeyStore(Protocol):
    """What routers must know of API keys, and the revision that changes with any of it (G17)."""

    async def key_revision(self) -> int: ...

    async def keys(self) -> tuple[KeyEntry, ...]: ...


class LedgerStore(Protocol):
    """Where usage rows and events end up."""

    async def add_usage(self, rows: Sequence[UsageRow]) -> None:
        """Idempotent by request id: a batch sent twice is stored once."""
        ...

    async def add_events(self, events: Sequence[EventRow]) -> None: ...

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]: ...


class ControlStore(LeaseStore, RosterStore, KeyStore, LedgerStore, Protocol):
    """All the control plane needs of the store."""


# ---------------------------------------------------------------- the control plane, as its pages see it


class AdminRefused(Exception):
    """An admin request that cannot be done: `code` for programs, the text for a person; a 4xx status."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class LogFollower(Protocol):
    """Lines of an engine's log as they come; `async for`."""

    def __aiter__(self) -> AsyncIterator[str]: ...

    async def aclose(self) -> None: ...


class ClusterAdmin(Protocol):
    """What the admin API and the dashboard may ask of the control plane; answers are values."""

    def status(self) -> Status: ...

    def nodes(self) -> tuple[NodeRow, ...]: ...

    def replicas(self) -> tuple[ReplicaRow, ...]: ...

    def models(self) -> tuple[ModelRow, ...]: ...

    def routers(self) -> tuple[RouterRow, ...]: ...

    async def explain(self, model: str) -> Explanation:
        """Raises `AdminRefused` (404) for an unknown model."""
        ...

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[EventRow, ...]: ...

    async def set_mark(self, node: str, mark: OperatorMark) -> NodeRow:
        """Raises `AdminRefused` (404) for an unknown node."""
        ...

    async def logs(self, replica: str, rank: int, lines: int, follow: bool) -> LogFollower:
        """Raises `AdminRefused`: 404 unknown replica, 503 when its node is not connected."""
        ...
