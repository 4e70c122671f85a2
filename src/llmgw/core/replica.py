"""Decides the phases of a shard and of a replica, and which event may change one into another.

Laws: the tables here are the only place a phase changes; every (phase, event) pair is either in `NEXT`
or in `NEVER`; a replica's phase is derived from its shards and what was decided about it (R2).
"""

from enum import Enum


class ShardPhase(Enum):
    """A shard's phase; the values travel on the agent stream and must not change."""

    ASSIGNED = "assigned"  # decided here, not yet confirmed by the agent
    FETCHING = "fetching"
    STARTING = "starting"  # process runs, not yet healthy
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"  # stopped because asked: process exited, port free
    FAILED = "failed"  # ended unasked, or could not start; process exited, port free
    UNKNOWN = "unknown"  # a word of a newer version
