"""The bounds of the client listener and of the pool of connections to engines, each with its reason."""

import msgspec


class ServerLimits(msgspec.Struct, frozen=True):
    """Bounds of the client listener (S1). Times in seconds, sizes in bytes."""

    head_bytes: int = 32 * 1024
    """Request line and headers. Browsers and SDKs send under 4 KiB; long tokens of sign-on proxies
    reach 16; nginx stops at 32 as well."""

    head_count: int = 100
    """Header fields of a request; what Apache allows."""

    head_s: float = 10.0
    """From a request's first byte (or the connection) to the end of its head. A head is one packet;
    more than this is a slow-loris."""

    idle_s: float = 75.0
    """Between requests of one connection. Longer than the 60 s after which balancers drop theirs, so
    that the one who closes first is not us."""

    body_grace_s: float = 20.0
    """Patience with a body before its rate counts."""

    body_rate: int = 16 * 1024
    """Bytes a second a body must keep after the grace: the largest body (32 MB) then takes at most
    34 minutes, an ordinary one fits the grace."""

    unread_bytes: int = 64 * 1024
    """Body bytes taken before the handler asked for the body; one read's worth. Beyond, the socket
    is not read, so a request that will be refused costs this much."""

    pipelined_bytes: int = 32 * 1024
    """Bytes of following requests kept while one is in progress; beyond, the socket is not read (and
    a client that leaves is then noticed by writing to it only)."""

    write_high: int = 64 * 1024
    """Unsent bytes of an answer at which the source is told to pause; times connections, the memory
    slow readers can take."""

    write_low: int = 16 * 1024
    """Unsent bytes at which it is told to go on."""

    stall_s: float = 120.0
    """A client that takes longer to read `write_high` bytes is gone."""

    linger_s: float = 2.0
    """How long an unread request is swallowed after its answer, so that the client sees the answer
    and not a reset."""

    linger_bytes: int = 4 * 1024 * 1024
    """How much of it is swallowed."""

    connections: int = 10_000
    """Open connections; beyond, 503 and close. About 10 KiB each when idle."""

    backlog: int = 2048
    """Connections the kernel keeps while the loop is busy."""


class PoolLimits(msgspec.Struct, frozen=True):
    """Bounds of the pool of connections to engines. Times in seconds, sizes in bytes."""

    head_bytes: int = 64 * 1024
    """A response head; engines send under 1 KiB, a debugging proxy's trace headers fit."""

    head_count: int = 200
    """Header fields of a response."""

    idle_per_address: int = 128
    """Unused connections kept for one engine; engines run fewer requests than this at once."""

    idle_s: float = 4.0
    """How long an unused connection is kept. uvicorn's engines close theirs after 5 s, llama.cpp's
    too; closing first avoids the race."""

    race_s: float = 0.5
    """A reused connection that dies within this time with nothing received had been closed before the
    request came: a round trip, generously. Later, the engine may have worked on it: no retry."""

    unread_bytes: int = 64 * 1024
    """Body bytes taken before somebody asked for them; beyond, the socket is not read."""

    keepalive_idle_s: int = 5
    """TCP keep-alive (G12): the first probe on a silent connection,"""

    keepalive_interval_s: int = 2
    """the time between probes,"""

    keepalive_probes: int = 3
    """and how many may stay unanswered."""

    user_timeout_ms: int = 10_000
    """Sent bytes that stay unacknowledged this long mean the network is cut (G12)."""


SERVER_LIMITS = ServerLimits()
POOL_LIMITS = PoolLimits()
