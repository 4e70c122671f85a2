"""Decides the closed list of reasons for every "no" the cluster can say, below the HTTP surface.

Laws: a reason is an enum member with facts beside it (what was needed, what there was, what to do),
never a string built at the edge; the same value feeds log, `ctl`, metric label and page.
"""

from enum import Enum

import msgspec


class Unfit(Enum):
    """Why one node (or a whole profile) cannot take a replica (P1)."""

    NODE_UNREACHABLE = "node_unreachable"
    NODE_LOST = "node_lost"
    NODE_CORDONED = "node_cordoned"
    NODE_DRAINING = "node_draining"
    ENGINE_MISSING = "engine_missing"
    LABELS = "labels"
    GPU_CLASS = "gpu_class"
    GPU_COUNT = "gpu_count"
    GPU_MEMORY = "gpu_memory"
    MEMORY = "memory"
    PORTS = "ports"
    NO_NODES = "no_nodes"
    UNSUPPORTED_SHAPE = "unsupported_shape"


class Rejection(msgspec.Struct, frozen=True):
    """One node refused for one profile, with both numbers and the thing to change (rule of judgement 4)."""

    code: Unfit
    needed: str
    had: str
    remedy: str = ""

    def line(self) -> str:
        """One line for a person: `needs 24 GB memory, has 16 GB free of 31 GB: stop qwen-1a2b3c4d`."""
        text = f"needs {self.needed}, has {self.had}"
        return f"{text}: {self.remedy}" if self.remedy else text


class Failure(Enum):
    """Why a shard, and so its replica, failed."""

    ENGINE_NOT_INSTALLED = "engine_not_installed"
    WEIGHTS_MISSING = "weights_missing"
    WEIGHTS_BAD = "weights_bad"
    PORT_BUSY = "port_busy"
    GPU_MISSING = "gpu_missing"
    BAD_PROFILE = "bad_profile"
    SPAWN_FAILED = "spawn_failed"
    ENGINE_EXITED = "engine_exited"
    OUT_OF_MEMORY = "out_of_memory"
    START_TIMEOUT = "start_timeout"
    UNHEALTHY = "unhealthy"
    LOST_WITH_NODE = "lost_with_node"
    SHARD_MISSING = "shard_missing"
    STATE_LOST = "state_lost"
    STALE_TERM = "stale_term"
    UNKNOWN = "unknown"


class Explained(msgspec.Struct, frozen=True):
    """A failure with the sentence a person reads and the last lines of the engine's log."""

    code: Failure
    text: str
    log_tail: tuple[str, ...] = ()
