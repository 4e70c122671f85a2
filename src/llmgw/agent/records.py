"""Decides what an agent keeps of each shard on disk, so that a later agent can take it over (A14).

Laws: a record is written before its process is started and again once the process is known; it is read
tolerantly; its name tells the incarnation apart from every other.
"""

from collections.abc import Mapping

import msgspec

from llmgw.core.replica import ShardId
from llmgw.core.units import slug
from llmgw.ports import ProcessId
from llmgw.wire.agent_v1 import ShardKey, ShardSpec

PREFIX = "shard-"


class Record(msgspec.Struct, frozen=True):
    """A shard as it was ordered, and the process that runs it once there is one."""

    spec: ShardSpec
    term: int
    log: str  # name in `ports.EngineLogs`
    process: ProcessId | None = None
    ready: bool = False  # it had answered as itself
    started_at: float | None = None  # wall clock, for its age


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    return msgspec.json.encode(record)


def decode(data: bytes) -> Record | None:
    """The record, or `None` when it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def shard_id(key: ShardKey) -> ShardId:
    """The incarnation a message's key names."""
    return ShardId(key.replica, key.rank, key.generation)


def shard_key(id: ShardId) -> ShardKey:
    """The key of an incarnation."""
    return ShardKey(id.replica, id.rank, id.generation)


def record_name(id: ShardId) -> str:
    """The name of its state file."""
    return f"{PREFIX}{slug(id.replica)}-{id.rank}-{id.generation}.json"


def log_name(replica: str, rank: int) -> str:
    """The name of its log; incarnations follow each other in one."""
    return f"{slug(replica)}-{rank}"


def agent_marker(agent: str, state_dir: str) -> dict[str, str]:
    """What every process of this agent carries in its environment; two agents may share a host."""
    return {"LLMGW_MARK_AGENT": agent, "LLMGW_MARK_STATE": state_dir}


def shard_marker(agent: Mapping[str, str], id: ShardId) -> dict[str, str]:
    """What every process of one incarnation carries."""
    return {
        **agent,
        "LLMGW_MARK_SHARD": f"{id.replica}/{id.rank}",
        "LLMGW_MARK_GENERATION": str(id.generation),
    }
