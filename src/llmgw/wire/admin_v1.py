"""Decides the JSON of the admin API: what `ctl`, the dashboard and scripts read.

Laws: unknown is `null`, never 0 (rule of judgement 2); states are the words of the glossary; fields
are added, never renamed.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec


class ShardRow(msgspec.Struct, frozen=True):
    """A shard under its replica. `progress` is a short line (`12.4 GB so far`) or null."""

    rank: int
    node: str
    pid: int | None
    phase: str
    progress: str | None = None
    error: str | None = None
    log_tail: tuple[str, ...] = ()


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica. `stale` is null when the fingerprint is unknown."""

    id: str
    model: str
    profile: str
    state: str
    reason: str | None
    url: str | None
    stale: bool | None
    shards: tuple[ShardRow, ...]
    age_s: float | None = None
    in_flight: int | None = None
    idle_s: float | None = None
    adopted: bool = False


class GpuRow(msgspec.Struct, frozen=True):
    """A card as `ctl nodes` shows it; `use` is free, used or unhealthy."""

    index: int
    gpu_class: str | None
    use: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    why: str | None = None


class NodeRow(msgspec.Struct, frozen=True):
    """A node. `reasons` are lines that say what keeps it from taking work."""

    id: str
    state: str  # ready, unreachable, lost
    mark: str  # ready, cordoned, draining
    address: str | None
    agent_version: str | None = None
    memory_total_bytes: int | None = None
    memory_claimed_bytes: int = 0
    disk_free_bytes: int | None = None
    disk_total_bytes: int | None = None
    gpus: tuple[GpuRow, ...] | None = None
    engines: tuple[str, ...] | None = None
    labels: Mapping[str, str] = {}
    heard_s: float | None = None  # seconds since its last heartbeat
    replicas: int = 0
    reasons: tuple[str, ...] = ()


class ModelRow(msgspec.Struct, frozen=True):
    """A model with what runs of it and why not more. `origin` is declared or stored."""

    name: str
    mode: str
    state: str  # ready, loading, failed, on-demand, off, waiting
    origin: str
    wanted: int
    ready: int
    starting: int
    simulated: bool
    description: str | None = None
    reason: str | None = None  # why a wanted replica is not placed, or the last failure
    retry_s: float | None = None  # until the next attempt, when backing off
    profiles: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class RouterRow(msgspec.Struct, frozen=True):
    """A connected router."""

    id: str
    pid: int | None
    version: str
    revision: int | None  # last revision acknowledged
    address: str | None


class Status(msgspec.Struct, frozen=True):
    """The fleet in one screen."""

    version: str
    cluster_id: str
    term: int
    leading: bool
    settling_s: float | None  # seconds of settling left, null when over
    revision: int
    nodes: Mapping[str, int]  # by state
    replicas: Mapping[str, int]  # by state
    models: tuple[ModelRow, ...]
    routers: tuple[RouterRow, ...]
    gpus: Mapping[str, Mapping[str, int]]  # class -> free, used, unhealthy
    store: str  # ok, or what is wrong with it
    problems: tuple[str, ...] = ()


class NodeVerdict(msgspec.Struct, frozen=True):
    """One profile on one node: chosen, fits, or why not."""

    node: str
    verdict: str  # chosen, fits, rejected
    code: str | None = None
    text: str | None = None


class ProfileExplanation(msgspec.Struct, frozen=True):
    """A profile over all nodes, with counts by reason for large fleets."""

    profile: str
    fits: bool
    nodes: tuple[NodeVerdict, ...]
    counts: Mapping[str, int] = {}


class Explanation(msgspec.Struct, frozen=True):
    """Why a model is where it is, or nowhere."""

    model: str
    outcome: str  # one line
    profiles: tuple[ProfileExplanation, ...]


class EventRow(msgspec.Struct, frozen=True):
    """A decision with its reason (R17)."""

    at: float
    kind: str
    text: str
    model: str | None = None
    replica: str | None = None
    node: str | None = None


class NodeStateChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `PUT /api/v1/nodes/{id}/state`: the operator's word on a node, with why."""

    state: Literal["ready", "cordoned", "draining"]
    reason: str = ""


class Problem(msgspec.Struct, frozen=True):
    """An admin error: `{"error": {"code", "message"}}`."""

    code: str
    message: str


class ProblemBody(msgspec.Struct, frozen=True):
    """The body every refusal of the admin API has."""

    error: Problem
