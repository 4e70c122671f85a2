"""Decides the phases of a shard and of a replica, and which event may change one into another.

Laws: the tables here are the only place a phase changes; every (phase, event) pair is either in `NEXT`
or in `NEVER`; a replica's phase is derived from its shards and what was decided about it (R2), never
kept. What comes from the network in a `NEVER` pair changes nothing: it is late, or its sender is broken.
"""

from enum import Enum
from typing import Final

import msgspec

from llmgw.core.catalog import Model, Profile
from llmgw.core.claims import Claim
from llmgw.core.reason import Explained, Failure


class ShardPhase(Enum):
    """A shard's phase; the values travel on the agent stream and must not change."""

    ASSIGNED = "assigned"  # decided here, not yet confirmed by the agent
    FETCHING = "fetching"
    STARTING = "starting"  # process runs, not yet healthy
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"  # stopped because asked: process exited, port free
    FAILED = "failed"  # ended unasked, or could not start; process exited, port free
    UNKNOWN = "unknown"  # a word of a newer version, or its node is lost


class ShardEvent(Enum):
    """What can happen to a shard as the control plane sees it; `SAID_*` is its agent's word."""

    SAID_ASSIGNED = "said_assigned"
    SAID_FETCHING = "said_fetching"
    SAID_STARTING = "said_starting"
    SAID_READY = "said_ready"
    SAID_STOPPING = "said_stopping"
    SAID_GONE = "said_gone"
    SAID_FAILED = "said_failed"
    SAID_UNKNOWN = "said_unknown"
    ABSENT = "absent"  # its node's complete report does not contain it
    NODE_LOST = "node_lost"
    STOP_DECIDED = "stop_decided"


SAID: Final = {phase: ShardEvent(f"said_{phase.value}") for phase in ShardPhase}

_P = ShardPhase
_E = ShardEvent

# The common answer to what an agent may say of a shard that is on its way.
_HEARD: Final = {
    _E.SAID_STARTING: _P.STARTING,
    _E.SAID_READY: _P.READY,
    _E.SAID_STOPPING: _P.STOPPING,
    _E.SAID_GONE: _P.GONE,
    _E.SAID_FAILED: _P.FAILED,
    _E.STOP_DECIDED: _P.STOPPING,
    _E.NODE_LOST: _P.UNKNOWN,
}

_ROWS: Final = {
    _P.ASSIGNED: _HEARD
    | {
        _E.SAID_ASSIGNED: _P.ASSIGNED,
        _E.SAID_FETCHING: _P.FETCHING,
        _E.SAID_UNKNOWN: _P.ASSIGNED,
        _E.ABSENT: _P.FAILED,
    },
    _P.FETCHING: _HEARD
    | {
        _E.SAID_ASSIGNED: _P.FETCHING,  # an agent that restarted has not resumed the fetch yet
        _E.SAID_FETCHING: _P.FETCHING,
        _E.SAID_UNKNOWN: _P.FETCHING,
        _E.ABSENT: _P.FAILED,
    },
    _P.STARTING: _HEARD | {_E.SAID_UNKNOWN: _P.STARTING, _E.ABSENT: _P.FAILED},
    _P.READY: _HEARD
    | {
        # An agent that restarted verifies an engine that was serving; it says failed if it is not.
        _E.SAID_STARTING: _P.READY,
        _E.SAID_UNKNOWN: _P.READY,
        _E.ABSENT: _P.FAILED,
    },
    _P.STOPPING: {
        # Reports that crossed the command on its way.
        _E.SAID_ASSIGNED: _P.STOPPING,
        _E.SAID_FETCHING: _P.STOPPING,
        _E.SAID_STARTING: _P.STOPPING,
        _E.SAID_READY: _P.STOPPING,
        _E.SAID_STOPPING: _P.STOPPING,
        _E.SAID_UNKNOWN: _P.STOPPING,
        _E.SAID_GONE: _P.GONE,
        _E.SAID_FAILED: _P.FAILED,
        _E.ABSENT: _P.GONE,
        _E.NODE_LOST: _P.STOPPING,
        _E.STOP_DECIDED: _P.STOPPING,
    },
    _P.GONE: {
        _E.SAID_GONE: _P.GONE,
        _E.SAID_FAILED: _P.GONE,
        _E.SAID_UNKNOWN: _P.GONE,
        _E.ABSENT: _P.GONE,
        _E.NODE_LOST: _P.GONE,
        _E.STOP_DECIDED: _P.GONE,
    },
    _P.FAILED: {
        _E.SAID_GONE: _P.FAILED,
        _E.SAID_FAILED: _P.FAILED,
        _E.SAID_UNKNOWN: _P.FAILED,
        _E.ABSENT: _P.FAILED,
        _E.NODE_LOST: _P.FAILED,
        _E.STOP_DECIDED: _P.FAILED,
    },
    _P.UNKNOWN: _HEARD
    | {
        _E.SAID_ASSIGNED: _P.ASSIGNED,
        _E.SAID_FETCHING: _P.FETCHING,
        _E.SAID_UNKNOWN: _P.UNKNOWN,
        _E.ABSENT: _P.GONE,
    },
}

NEXT: Final = {(phase, event): after for phase, row in _ROWS.items() for event, after in row.items()}

# An incarnation does not go back to before its process ran, and nothing comes back once it ended.
NEVER: Final = frozenset(
    {(phase, event) for phase in (_P.STARTING, _P.READY) for event in (_E.SAID_ASSIGNED, _E.SAID_FETCHING)}
    | {
        (phase, event)
        for phase in (_P.GONE, _P.FAILED)
        for event in (
            _E.SAID_ASSIGNED,
            _E.SAID_FETCHING,
            _E.SAID_STARTING,
            _E.SAID_READY,
            _E.SAID_STOPPING,
        )
    }
)

ENDED: Final = frozenset({ShardPhase.GONE, ShardPhase.FAILED})


_BROKEN: Final = ENDED | {ShardPhase.STOPPING}  # a kept replica does not have such shards


class Course(Enum):
    """What was decided about a replica."""

    KEEP = "keep"
    LOST = "lost"  # all of it is on nodes nobody hears; kept, since it may come back
    DRAIN = "drain"  # withdrawn from routers; what is in flight finishes
    STOP = "stop"  # its shards are told to stop
    FAIL = "fail"  # the same, because it broke


class CourseEvent(Enum):
    """What may change a decision about a replica."""

    WITHDRAWN = "withdrawn"
    DRAINED = "drained"  # nothing in flight, or the grace is over
    BROKE = "broke"
    NODES_LOST = "nodes_lost"
    HEARD_AGAIN = "heard_again"


_C = Course
_V = CourseEvent

COURSE_NEXT: Final = {
    (_C.KEEP, _V.WITHDRAWN): _C.DRAIN,
    (_C.KEEP, _V.BROKE): _C.FAIL,
    (_C.KEEP, _V.NODES_LOST): _C.LOST,
    (_C.LOST, _V.WITHDRAWN): _C.STOP,  # it is not published: nothing to drain
    (_C.LOST, _V.BROKE): _C.FAIL,
    (_C.LOST, _V.HEARD_AGAIN): _C.KEEP,
    (_C.DRAIN, _V.DRAINED): _C.STOP,
    (_C.DRAIN, _V.BROKE): _C.STOP,  # it was to end anyway: no failure of its model
    (_C.DRAIN, _V.NODES_LOST): _C.STOP,
}
COURSE_NEVER: Final = frozenset(
    {
        (_C.KEEP, _V.DRAINED),
        (_C.KEEP, _V.HEARD_AGAIN),
        (_C.LOST, _V.DRAINED),
        (_C.LOST, _V.NODES_LOST),
        (_C.DRAIN, _V.WITHDRAWN),
        (_C.DRAIN, _V.HEARD_AGAIN),
    }
    | {(course, event) for course in (_C.STOP, _C.FAIL) for event in CourseEvent}
)


class ReplicaPhase(Enum):
    """A replica's phase, as operators read it."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    FAILED = "failed"
    LOST = "lost"
    GONE = "gone"


# ---------------------------------------------------------------- values


class ShardId(msgspec.Struct, frozen=True, order=True):
    """One incarnation of one shard."""

    replica: str
    rank: int
    generation: int


class Fetched(msgspec.Struct, frozen=True):
    """How far a shard's fetch is; `total` only when the source said it (A20)."""

    done: int
    total: int | None = None
    what: str = "fetching"


class ReportedShard(msgspec.Struct, frozen=True):
    """A shard as its agent describes it; `None` and empty are unknown (R9)."""

    id: ShardId
    phase: ShardPhase
    model: str = ""
    profile: str = ""
    fingerprint: str = ""
    engine: str = ""
    shard_count: int | None = None
    fabric: str | None = None
    address: str | None = None
    port: int | None = None
    claim: Claim | None = None
    engine_key: str | None = None
    pid: int | None = None
    start_time: int | None = None
    running_s: float | None = None
    failure: Explained | None = None


class Shard(msgspec.Struct, frozen=True):
    """A replica's part on one node. Times are the control plane's clock, in seconds."""

    rank: int
    node: str
    claim: Claim
    phase: ShardPhase
    generation: int = 1
    address: str | None = None
    port: int | None = None
    pid: int | None = None
    start_time: int | None = None
    failure: Explained | None = None
    fetched: Fetched | None = None

    @property
    def ended(self) -> bool:
        """Its process is gone and its port free."""
        return self.phase in ENDED


class Recipe(msgspec.Struct, frozen=True):
    """What a replica was started from; an adopted one has none."""

    model: Model
    profile: Profile


class Ending(msgspec.Struct, frozen=True):
    """Why a replica ends, and since when; `failure` when it broke."""

    why: str
    since: float
    failure: Explained | None = None


class Replica(msgspec.Struct, frozen=True):
    """One running instance of a model under one profile. An empty fingerprint is unknown (R14)."""

    id: str
    model: str
    profile: str
    fingerprint: str
    engine: str
    engine_key: str
    shard_count: int
    shards: tuple[Shard, ...]
    created_at: float  # for an adopted one: when it was adopted
    startup_timeout_s: float
    fabric: str | None = None
    adopted: bool = False
    recipe: Recipe | None = None
    course: Course = Course.KEEP
    ending: Ending | None = None
    fetch_ended_at: float | None = None
    ready_at: float | None = None  # when it first was whole and ready
    withdrawn_by: int | None = None  # the revision that took its endpoint from the routers
    serving_s: float | None = None  # for an adopted one: how long its engine had run by then

    @property
    def whole(self) -> bool:
        """It has as many shards as it should."""
        return len(self.shards) >= self.shard_count

    @property
    def leader(self) -> Shard | None:
        """Rank 0, whose address is the endpoint; `None` while adoption has not met it."""
        return next((shard for shard in self.shards if shard.rank == 0), None)

    @property
    def over(self) -> bool:
        """Decided to end, and no process of it is left."""
        return self.course in (Course.STOP, Course.FAIL) and all(shard.ended for shard in self.shards)

    def shard(self, rank: int) -> Shard | None:
        """The shard of a rank, if it is here."""
        return next((shard for shard in self.shards if shard.rank == rank), None)

    def shard_id(self, shard: Shard) -> ShardId:
        """The full name of one of its shards."""
        return ShardId(self.id, shard.rank, shard.generation)


# ---------------------------------------------------------------- steps


def phase_of(replica: Replica) -> ReplicaPhase:
    """A replica's phase: Ready only when all shards it should have are (R2)."""
    match replica.course:
        case Course.KEEP:
            return _kept_phase(replica)
        case Course.LOST:
            return ReplicaPhase.LOST
        case Course.DRAIN:
            return ReplicaPhase.DRAINING
        case Course.STOP:
            return ReplicaPhase.GONE if replica.over else ReplicaPhase.STOPPING
        case Course.FAIL:
            return ReplicaPhase.FAILED


def _kept_phase(replica: Replica) -> ReplicaPhase:
    # Asked of every replica in every pass: a loop, since sets of enum members cost six times as much.
    ready = True
    for shard in replica.shards:
        if shard.phase is ShardPhase.READY:
            continue
        if shard.phase in _BROKEN:
            return ReplicaPhase.FAILED
        ready = False
    if len(replica.shards) < replica.shard_count:
        return ReplicaPhase.STARTING if replica.adopted else ReplicaPhase.FAILED
    return ReplicaPhase.READY if ready else ReplicaPhase.STARTING


def breakage(replica: Replica) -> Explained | None:
    """Why a kept replica has failed: the first shard that ended, in its agent's words."""
    if replica.course is not Course.KEEP or _kept_phase(replica) is not ReplicaPhase.FAILED:
        return None
    for shard in replica.shards:
        if shard.ended or shard.phase is ShardPhase.STOPPING:
            told = shard.failure or Explained(Failure.UNKNOWN, f"ended on {shard.node} without being asked")
            return told
    missing = replica.shard_count - len(replica.shards)
    return Explained(Failure.SHARD_MISSING, f"{missing} of {replica.shard_count} shards are missing")


def startup_overdue(replica: Replica, now: float) -> bool:
    """Whether a starting replica's startup clock ran out; it starts when the last fetch ended (R5)."""
    if any(shard.phase is ShardPhase.FETCHING for shard in replica.shards):
        return False
    began = replica.created_at if replica.fetch_ended_at is None else replica.fetch_ended_at
    return _kept_phase(replica) is ReplicaPhase.STARTING and now - began >= replica.startup_timeout_s


def next_phase(phase: ShardPhase, event: ShardEvent) -> ShardPhase | None:
    """The phase after an event; `None` when the pair is in `NEVER`."""
    after = NEXT.get((phase, event))
    assert (after is None) == ((phase, event) in NEVER), f"{phase} and {event} are in no table"
    return after


def step_shard(replica: Replica, rank: int, event: ShardEvent, now: float) -> Replica:
    """The replica after something happened to one of its shards; itself when that changes nothing."""
    shard = replica.shard(rank)
    after = None if shard is None else next_phase(shard.phase, event)
    if shard is None or after is None or after is shard.phase:
        return replica
    changed = msgspec.structs.replace(shard, phase=after, fetched=None)
    if event is ShardEvent.ABSENT and after is ShardPhase.FAILED:
        text = f"{shard.node} reports everything it runs, and this is not among it"
        changed = msgspec.structs.replace(changed, failure=Explained(Failure.SHARD_MISSING, text))
    return _with_shard(replica, shard, changed, now)


def hear_shard(replica: Replica, report: ReportedShard, now: float) -> Replica:
    """The replica after its agent spoke of one of its shards: the phase by the table, then the facts."""
    shard = replica.shard(report.id.rank)
    if shard is None or next_phase(shard.phase, SAID[report.phase]) is None:
        return replica
    stepped = step_shard(replica, shard.rank, SAID[report.phase], now)
    current = stepped.shard(shard.rank)
    assert current is not None
    told = msgspec.structs.replace(
        current,
        address=current.address or report.address,
        port=current.port or report.port,
        pid=report.pid if report.pid is not None else current.pid,
        start_time=report.start_time if report.start_time is not None else current.start_time,
        failure=report.failure or current.failure,
    )
    return stepped if told == current else _with_shard(stepped, current, told, now)


def note_fetch(replica: Replica, rank: int, fetched: Fetched) -> Replica:
    """The replica with the progress of a fetch; progress is never a status (A20)."""
    shard = replica.shard(rank)
    if shard is None or shard.phase is not ShardPhase.FETCHING:
        return replica
    changed = msgspec.structs.replace(shard, fetched=fetched)
    shards = tuple(changed if other is shard else other for other in replica.shards)
    return msgspec.structs.replace(replica, shards=shards)


def step_course(replica: Replica, event: CourseEvent, now: float, ending: Ending | None = None) -> Replica:
    """The replica after a decision of ours; a pair in `COURSE_NEVER` is a bug and raises.

    With `STOP` and `FAIL` every shard that has not ended is to stop.
    """
    course = COURSE_NEXT[replica.course, event]
    stepped = msgspec.structs.replace(replica, course=course, ending=ending or replica.ending)
    if course in (Course.STOP, Course.FAIL):
        for shard in stepped.shards:
            stepped = step_shard(stepped, shard.rank, ShardEvent.STOP_DECIDED, now)
    return stepped


def _with_shard(replica: Replica, old: Shard, new: Shard, now: float) -> Replica:
    shards = tuple(new if shard is old else shard for shard in replica.shards)
    fetching = any(shard.phase is ShardPhase.FETCHING for shard in shards)
    ended_at = replica.fetch_ended_at
    if old.phase is ShardPhase.FETCHING and not fetching and ended_at is None:
        ended_at = now
    changed = msgspec.structs.replace(replica, shards=shards, fetch_ended_at=ended_at)
    if changed.ready_at is None and phase_of(changed) is ReplicaPhase.READY:
        changed = msgspec.structs.replace(changed, ready_at=now)
    return changed
