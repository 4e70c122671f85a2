"""Replicas the core tests start from, in any phase, by the steps production takes."""

import msgspec

from llmgw.core.claims import Claim
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import (
    SAID,
    Course,
    CourseEvent,
    Ending,
    Recipe,
    Replica,
    ReportedShard,
    Shard,
    ShardId,
    ShardPhase,
    step_course,
    step_shard,
)
from tests.core.makers import model

OOM = Explained(Failure.OUT_OF_MEMORY, "killed while loading, 12 GB asked")


def shard(rank: int = 0, phase: ShardPhase = ShardPhase.ASSIGNED, node: str = "n1") -> Shard:
    port = 20000 + rank
    return Shard(rank, node, Claim(memory_bytes=100, ports=(port,)), phase, 1, f"{node}.example", port)


def replica(
    *phases: ShardPhase,
    id: str = "m-00000001",
    course: Course = Course.KEEP,
    count: int | None = None,
    adopted: bool = False,
    nodes: tuple[str, ...] = ("n1", "n2", "n3"),
) -> Replica:
    """A replica of `m` with a shard a phase, each on its own node, created at 0."""
    placed = model("m")
    shards = tuple(shard(rank, phase, nodes[rank]) for rank, phase in enumerate(phases))
    made = Replica(
        id=id,
        model="m",
        profile="p0",
        fingerprint=placed.profiles[0].fingerprint,
        engine="sim",
        engine_key="key",
        shard_count=len(phases) if count is None else count,
        shards=shards,
        created_at=0.0,
        startup_timeout_s=600.0,
        adopted=adopted,
        recipe=None if adopted else Recipe(placed, placed.profiles[0]),
    )
    return on(made, course)


def on(kept: Replica, course: Course) -> Replica:
    """The replica on a course, decided as it is decided in production."""
    ending = Ending("a reason", 0.0)
    match course:
        case Course.KEEP:
            return kept
        case Course.LOST:
            return step_course(kept, CourseEvent.NODES_LOST, 0.0)
        case Course.DRAIN:
            return step_course(kept, CourseEvent.WITHDRAWN, 0.0, ending)
        case Course.STOP:
            return step_course(on(kept, Course.DRAIN), CourseEvent.DRAINED, 0.0)
        case Course.FAIL:
            return step_course(kept, CourseEvent.BROKE, 0.0, ending)


def ready(*, id: str = "m-00000001", node: str = "n1", at: float = 0.0) -> Replica:
    """A replica of one shard that became ready at `at`."""
    starting = replica(ShardPhase.STARTING, id=id, nodes=(node,))
    return step_shard(starting, 0, SAID[ShardPhase.READY], at)


def told(of: Replica, phase: ShardPhase, rank: int = 0, failure: Explained | None = None) -> ReportedShard:
    """What an agent says of a shard of this replica, with all it knows."""
    part = of.shard(rank)
    assert part is not None
    return ReportedShard(
        id=of.shard_id(part),
        phase=phase,
        model=of.model,
        profile=of.profile,
        fingerprint=of.fingerprint,
        engine=of.engine,
        shard_count=of.shard_count,
        address=part.address,
        port=part.port,
        claim=part.claim,
        engine_key=of.engine_key,
        pid=4711,
        start_time=99,
        failure=failure,
    )


def stranger(
    phase: ShardPhase = ShardPhase.READY, replica: str = "m-ffffffff", **fields: object
) -> ReportedShard:
    """A report of a shard nobody here knows; fields as an agent sends them."""
    plain = ReportedShard(
        ShardId(replica, 0, 1), phase, "m", "p0", "fp", "sim", 1, address="n1.example", port=20000
    )
    return msgspec.structs.replace(plain, **fields)
