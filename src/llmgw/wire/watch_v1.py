"""Decides the bytes between control plane and routers: what to serve down, use and usage up (G17, R16a).

Laws: one snapshot, then updates, each with the revision it leads to; a router acknowledges every
revision once it is in force, and a withdrawn endpoint's engine is told to stop only after that (or a
bound). Tolerant like `agent_v1`: unknown types and fields are ignored, missing ones are unknown.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from llmgw.wire.envelope import MessageSet, Unknown

# ---------------------------------------------------------------- what a router serves


class FallbackEntry(msgspec.Struct, frozen=True):
    """A model to go on with, and the cases it is for (`unavailable`, `context`)."""

    model: str
    on: tuple[str, ...] = ("unavailable",)


class ModelEntry(msgspec.Struct, frozen=True):
    """A model as clients see it."""

    name: str
    mode: str  # core.catalog.Mode value
    created: int = 0
    owned_by: str = "llmgw"
    description: str | None = None
    context_length: int | None = None
    capabilities: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    starting: bool = False  # a replica is on its way
    reason: str | None = None  # why nothing can serve it now
    timeouts: Mapping[str, float] = {}  # connect, first_byte, idle, total; seconds
    fallbacks: tuple[FallbackEntry, ...] | msgspec.UnsetType = msgspec.UNSET  # left out when there are none


class EndpointEntry(msgspec.Struct, frozen=True):
    """Where one ready replica is reached."""

    id: str  # the replica's id
    model: str
    host: str
    port: int
    engine: str = ""
    engine_key: str = ""
    weight: float = 1.0
    node: str = ""  # where its leader runs


class KeyEntry(msgspec.Struct, frozen=True):
    """An API key as a router must know it: never the secret (K2)."""

    public_id: str
    secret_sha256: str  # hex
    key_id: str
    project: str = ""
    team: str = ""
    org: str = ""
    user: str | None = None
    expires_at: float | None = None
    disabled: bool = False
    models: tuple[str, ...] | None = None  # names or globs; None allows all


class AliasEntry(msgspec.Struct, frozen=True):
    """An alias and the models it draws from, with weights."""

    name: str
    targets: tuple[tuple[str, float], ...]


# ---------------------------------------------------------------- down: control plane to router


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """Everything, at `revision`. Replaces all a router knew.

    But for endpoints on `unheard` nodes: this server has not heard from those since it began to lead, so
    that it cannot know what runs there. A router keeps what it had on them until they are heard or lost.
    """

    revision: int
    cluster_id: str
    term: int
    models: tuple[ModelEntry, ...] = ()
    aliases: tuple[AliasEntry, ...] = ()
    endpoints: tuple[EndpointEntry, ...] = ()
    keys: tuple[KeyEntry, ...] = ()
    unheard: tuple[str, ...] = ()


class Update(msgspec.Struct, frozen=True, tag="update"):
    """What changed since the revision before. Entries replace by id; `gone_*` name ids to drop."""

    revision: int
    models: tuple[ModelEntry, ...] = ()
    aliases: tuple[AliasEntry, ...] = ()
    endpoints: tuple[EndpointEntry, ...] = ()
    keys: tuple[KeyEntry, ...] = ()
    gone_models: tuple[str, ...] = ()
    gone_aliases: tuple[str, ...] = ()
    gone_endpoints: tuple[str, ...] = ()
    gone_keys: tuple[str, ...] = ()
    unheard: tuple[str, ...] | None = None  # None: as before


class UsageStored(msgspec.Struct, frozen=True, tag="usage_stored"):
    """These batches are in the store; the router may forget them."""

    batch: int


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Stop accepting, finish what is open within `bound_s`, exit: another process took over."""

    reason: str
    bound_s: float


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The stream is not accepted (a standby, an incompatible version); closed after this."""

    reason: str
    leader: str | None = None


# ---------------------------------------------------------------- up: router to control plane


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message of a stream: who this router is."""

    router_id: str  # random per process
    version: str
    settings_hash: str  # of the settings it was started with; differs = replaced
    pid: int
    start_time: int
    started_s: float = 0.0  # age of the process, seconds
    address: str | None = None  # where it listens for clients
    index: int = 0


class Applied(msgspec.Struct, frozen=True, tag="applied"):
    """Everything up to `revision` is in force here: nothing new goes to an endpoint withdrawn by it."""

    revision: int


class EndpointUse(msgspec.Struct, frozen=True):
    """Use of one endpoint: requests in flight and seconds since the last one; None: not used yet."""

    in_flight: int
    idle_s: float | None = None
    unreachable: str | None = None  # why this router cannot reach it, if so


class Use(msgspec.Struct, frozen=True, tag="use"):
    """Once per tick: use by endpoint id, and models asked for that have no endpoint (seconds ago)."""

    endpoints: Mapping[str, EndpointUse]
    demand: Mapping[str, float] = {}
    known_s: float = 0.0  # for how long this router has been counting


class UsageRow(msgspec.Struct, frozen=True, gc=False):
    """One accepted request, whatever its end (K6). Times in seconds since the epoch, durations in s.

    Untracked by the collector: a router may hold tens of thousands while its control plane is away.
    """

    request_id: str
    at: float
    key_id: str
    model_asked: str
    project: str = ""
    team: str = ""
    org: str = ""
    user: str | None = None
    model_answered: str | None = None
    replica: str | None = None
    endpoint: str = ""  # the route, such as /v1/chat/completions
    stream: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False
    status: int = 0  # HTTP status sent; 499 when the client left first
    error: str | None = None  # error code sent, also mid-stream
    latency_s: float | None = None
    first_byte_s: float | None = None
    attempts: int = 1


class UsageBatch(msgspec.Struct, frozen=True, tag="usage_batch"):
    """Rows to be stored; sent again with the same number until `UsageStored`."""

    batch: int
    rows: tuple[UsageRow, ...]
    dropped: int = 0  # rows lost since the router started because its buffer was full


Down = Snapshot | Update | UsageStored | Drain | Refused
Up = Hello | Applied | Use | UsageBatch

DOWN: Final = MessageSet[Down](Snapshot, Update, UsageStored, Drain, Refused)
UP: Final = MessageSet[Up](Hello, Applied, Use, UsageBatch)


def encode(message: Up | Down) -> bytes:
    """The bytes of one message."""
    return msgspec.json.encode(message)


def decode_up(data: bytes) -> Up | Unknown:
    """What a router sent. Never raises: what cannot be read is `Unknown` with the reason."""
    return UP.decode(data)


def decode_down(data: bytes) -> Down | Unknown:
    """What a control plane sent. Never raises."""
    return DOWN.decode(data)
