"""Decides what a node is: what it reports, what the operator said of it, and whether it counts as present.

Laws: a value nobody reported is `None` and excludes nothing (rule of judgement 2); the operator's mark
belongs to the operator and no report changes it (I2); presence is computed from the last report and
the time, never stored (I5).
"""

from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec


class ForeignProcess(msgspec.Struct, frozen=True):
    """A process on a GPU that no replica of ours owns; bytes or `None` when the card does not say."""

    pid: int
    memory_bytes: int | None = None
    name: str | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One card. Only `index` is certain; everything else may be unknown on an old driver (A4)."""

    index: int
    uuid: str | None = None
    product: str | None = None
    gpu_class: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilisation: float | None = None  # 0-1
    ecc_uncorrected: int | None = None
    foreign: tuple[ForeignProcess, ...] | None = None
    nvlink_peers: tuple[int, ...] | None = None  # () is "no links", None is "unknown" (P6)


class Fabric(msgspec.Struct, frozen=True):
    """A fabric this node is in."""

    name: str
    adapters: tuple[str, ...] = ()
    rate_gbps: float | None = None
    unusable: str | None = None  # why not, when it is not usable


class Filesystem(msgspec.Struct, frozen=True):
    """One filesystem (not one directory): free and total bytes, shared or local (I7)."""

    path: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    shared: bool | None = None


class WeightFile(msgspec.Struct, frozen=True):
    """A weight file found on the node."""

    path: str
    size_bytes: int
    source: str | None = None


class EngineInstall(msgspec.Struct, frozen=True):
    """An installed engine: how it is run there. `kind` is the adapter's name.

    With a `module`, `path` is the interpreter that has it; without, the engine's own program.
    """

    kind: str
    path: str | None = None
    version: str | None = None
    module: str | None = None


class NodeReport(msgspec.Struct, frozen=True):
    """A node as its agent describes it (I1, A1). `None`: not reported; empty: looked and found nothing."""

    id: str
    address: str
    labels: Mapping[str, str] = {}
    agent_version: str | None = None
    cpus: int | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    gpus: tuple[Gpu, ...] | None = None
    fabrics: tuple[Fabric, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    weights: tuple[WeightFile, ...] | None = None
    engines: Mapping[str, EngineInstall] | None = None
    ports_in_use: tuple[int, ...] | None = None  # within the configured range


class Mark(Enum):
    """The operator's word on a node."""

    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"


class OperatorMark(msgspec.Struct, frozen=True):
    """A mark with who, when and why; kept in the store."""

    mark: Mark = Mark.READY
    reason: str = ""
    actor: str = ""
    at: float | None = None


class Presence(Enum):
    """Whether the control plane hears a node (I5)."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    LOST = "lost"


class PresenceLimits(msgspec.Struct, frozen=True):
    """Seconds without a heartbeat after which a node counts as unreachable, then lost."""

    unreachable_after_s: float
    lost_after_s: float


class Node(msgspec.Struct, frozen=True):
    """A node of the roster. `report` is `None` for one known from the store and not heard since."""

    id: str
    report: NodeReport | None
    mark: OperatorMark
    last_heard: float | None  # control plane's clock
    known_since: float


def presence(node: Node, now: float, limits: PresenceLimits) -> Presence:
    """How a node counts at `now`. One never heard counts from when it became known."""
    silent = now - (node.last_heard if node.last_heard is not None else node.known_since)
    if silent >= limits.lost_after_s:
        return Presence.LOST
    if node.last_heard is None or silent >= limits.unreachable_after_s:
        return Presence.UNREACHABLE
    return Presence.READY


def has_engine(report: NodeReport, engine: str, install: str | None) -> bool | None:
    """Whether an engine is there, in the install named if one is (E7a); `None` when nothing was reported."""
    if report.engines is None:
        return None
    if install is not None:
        found = report.engines.get(install)
        return found is not None and found.kind == engine
    return any(found.kind == engine for found in report.engines.values())


def lacks_labels(report: NodeReport, selector: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The wanted labels a node does not have; all must match (P3)."""
    return tuple((name, value) for name, value in selector if report.labels.get(name) != value)


def source_path(source: str) -> str:
    """What a source is called on a node's disk: a local path without its scheme, else the source itself."""
    return source.removeprefix("file://").removeprefix("file:")
