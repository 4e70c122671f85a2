"""Decides the bytes between agent and control plane (A8, A11).

Laws: tolerant both ways. The envelope is read first; an unknown message type decodes to `Unknown` and
is ignored, unknown fields are ignored, a missing field is `None` = unknown, an unknown phase is
`unknown`. A field is only ever added, with a default; golden files of old bytes hold us to it.
Messages are JSON, one per stream message.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from llmgw.core.catalog import ArgValue, SecretRef
from llmgw.core.claims import Claim
from llmgw.core.inventory import Filesystem, Gpu, NodeReport
from llmgw.wire.envelope import MessageSet, Unknown

PROTOCOL = 1

# ---------------------------------------------------------------- parts


class ShardKey(msgspec.Struct, frozen=True):
    """Which incarnation of which shard a message speaks of."""

    replica: str
    rank: int
    generation: int


class ShardSpec(msgspec.Struct, frozen=True):
    """Everything an agent needs to run one shard; also what its state file keeps."""

    key: ShardKey
    model: str
    profile: str
    fingerprint: str
    engine: str
    source: str | None
    shard_count: int
    address: str  # the node address the engine listens on
    port: int
    claim: Claim
    engine_key: str = ""  # random per replica; engines require it from whoever asks (A17a)
    install: str | None = None
    context_length: int | None = None
    gpus_per_node: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    launch_mode: str = "native"
    fabric: str | None = None
    master_address: str | None = None
    master_port: int | None = None
    args: Mapping[str, ArgValue] = {}
    env: Mapping[str, str | SecretRef] = {}
    startup_timeout_s: float = 600.0
    fetch_timeout_s: float | None = None
    stall_timeout_s: float = 120.0


class ShardReport(msgspec.Struct, frozen=True):
    """One shard as the agent sees it now. Carries the spec's identity so that a control plane that
    knows nothing can rebuild the replica from it (R9)."""

    key: ShardKey
    phase: str  # a ShardPhase value of core.replica; others read as unknown
    model: str = ""
    profile: str = ""
    fingerprint: str = ""
    engine: str = ""
    term: int | None = None
    shard_count: int | None = None
    fabric: str | None = None
    address: str | None = None
    port: int | None = None
    claim: Claim | None = None
    engine_key: str | None = None
    pid: int | None = None
    start_time: int | None = None
    started_at: float | None = None  # agent's wall clock; only for display
    running_s: float | None = None  # age: how long the engine has run
    failure: str | None = None  # a core.reason.Failure value
    reason: str | None = None
    log_tail: tuple[str, ...] | None = None


# ---------------------------------------------------------------- up: agent to control plane


class Register(msgspec.Struct, frozen=True, tag="register"):
    """First message of a stream: the whole node and all it runs ("nothing" is news)."""

    instance_id: str  # random, from the agent's state directory
    boot_id: str
    node: NodeReport
    shards: tuple[ShardReport, ...] = ()
    complete: bool = True  # only a complete list may lead to "gone"
    cluster_id: str | None = None  # the cluster this agent belongs to, once it has joined one
    highest_term: int | None = None
    protocol: int = PROTOCOL


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent every few seconds. Fields left out did not change or are unknown."""

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    ports_in_use: tuple[int, ...] | None = None
    stale_s: Mapping[str, float] | None = None  # fields whose probe hung, with their value's age


class NodeChanged(msgspec.Struct, frozen=True, tag="node_changed"):
    """Sent when discovery finds something else than was registered (engines, weights, memory)."""

    node: NodeReport


class ShardStatus(msgspec.Struct, frozen=True, tag="shard_status"):
    """A shard changed its phase."""

    shard: ShardReport


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Bytes of a fetch; never a status."""

    key: ShardKey
    bytes_done: int
    bytes_total: int | None = None
    what: str = "fetching"


class LogLines(msgspec.Struct, frozen=True, tag="log_lines"):
    """Answer to `LogRequest`; `last` ends it. `error` says why there is none."""

    request_id: str
    lines: tuple[str, ...] = ()
    last: bool = True
    error: str | None = None


class CommandRefused(msgspec.Struct, frozen=True, tag="command_refused"):
    """The agent would not obey a command (an older term, another cluster)."""

    key: ShardKey | None
    reason: str
    highest_term: int | None = None


# ---------------------------------------------------------------- down: control plane to agent


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The stream is accepted. From here the agent obeys commands of this term."""

    cluster_id: str
    term: int
    heartbeat_s: float = 5.0
    port_first: int | None = None
    port_last: int | None = None
    server_version: str | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The stream is not accepted; closed after this. `leader` is where to go instead, if known."""

    reason: str
    leader: str | None = None


class StartShard(msgspec.Struct, frozen=True, tag="start_shard"):
    """Run this shard. Repeating it for a shard that runs changes nothing."""

    term: int
    spec: ShardSpec


class StopShard(msgspec.Struct, frozen=True, tag="stop_shard"):
    """Stop this shard: TERM, `grace_s`, KILL, port free; then a status `gone`."""

    term: int
    key: ShardKey
    grace_s: float = 10.0
    reason: str = ""


class ForgetShard(msgspec.Struct, frozen=True, tag="forget_shard"):
    """The control plane has taken note of a failed or gone shard; the agent may drop its record."""

    term: int
    key: ShardKey


class LogRequest(msgspec.Struct, frozen=True, tag="log_request"):
    """The last lines of a shard's log; `follow` keeps sending until the stream or `LogCancel` ends it."""

    request_id: str
    replica: str
    rank: int = 0
    lines: int = 100
    follow: bool = False


class LogCancel(msgspec.Struct, frozen=True, tag="log_cancel"):
    """Stop following."""

    request_id: str


Up = Register | Heartbeat | NodeChanged | ShardStatus | Progress | LogLines | CommandRefused
Down = Welcome | Refused | StartShard | StopShard | ForgetShard | LogRequest | LogCancel

UP: Final = MessageSet[Up](Register, Heartbeat, NodeChanged, ShardStatus, Progress, LogLines, CommandRefused)
DOWN: Final = MessageSet[Down](Welcome, Refused, StartShard, StopShard, ForgetShard, LogRequest, LogCancel)


def encode(message: Up | Down) -> bytes:
    """The bytes of one message."""
    return msgspec.json.encode(message)


def decode_up(data: bytes) -> Up | Unknown:
    """What an agent sent. Never raises: what cannot be read is `Unknown` with the reason."""
    return UP.decode(data)


def decode_down(data: bytes) -> Down | Unknown:
    """What a control plane sent. Never raises."""
    return DOWN.decode(data)
