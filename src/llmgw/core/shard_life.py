"""Decides the life of one shard on its node, from the order to run it until it is gone or failed.

Laws: an exit nobody asked for is a crash, with status 0 too; `gone` and `failed` are said only when every
process of the shard is dead and its port was seen free (A12), or is held by a stranger; N missed health
questions, never one, mean unhealthy; every stage that waits has a deadline. Every (stage, happening) pair
is in exactly one of `NEXT` and `NEVER`; a pair of `NEVER` is a bug and raises.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, assert_never

import msgspec

from llmgw.core.orders import (
    Answer,
    Checked,
    CheckPort,
    Commands,
    Exited,
    Order,
    PortLooked,
    Probe,
    Probed,
    Recorded,
    RemoveRecord,
    Report,
    Spawn,
    Spawned,
    Sweep,
    Swept,
    Terminate,
    WriteRecord,
)
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import ShardId, ShardPhase

CHECK_WITHIN_S = 30.0  # files on a network disk may be slow to look at; longer is a hung mount
SPAWN_WITHIN_S = 30.0  # the same for the engine's own program
PROBE_FIRST_S = 0.1  # a tiny model is ready in 0.13 s
PROBE_STARTING_S = 0.25
PROBE_SLOW_S = 1.0  # for those that still load after PROBE_FAST_FOR_S
PROBE_FAST_FOR_S = 30.0
PROBE_READY_S = 2.0
MISSES = 5  # 10 s of silence with quick refusals, 20 s with questions that time out
TERM_AGAIN_S = 3.0  # some engines ignore a TERM while they start
SWEEP_AGAIN_S = 0.1
SWEEP_SAID_AFTER_S = 0.5  # past this a crash is told before its last process is dead
SWEEP_SLOW_S = 2.0
PORT_AGAIN_S = 0.1
PORT_WITHIN_S = 10.0  # then the port's holder is not ours: all of ours are dead


class Stage(Enum):
    """Where a shard is in its life on this node."""

    CHECKING = "checking"
    RECORDING = "recording"  # the state file goes before the process (A14)
    SPAWNING = "spawning"
    STARTING = "starting"
    READY = "ready"
    ENDING = "ending"  # TERM was sent, grace runs
    SWEEPING = "sweeping"  # KILL was sent to all of it
    RELEASING = "releasing"  # all dead, the port is not seen free yet
    GONE = "gone"
    FAILED = "failed"


class Happening(Enum):
    """What can happen to a shard."""

    CHECKED = "checked"
    REFUSED = "refused"
    RECORDED = "recorded"
    UNRECORDED = "unrecorded"
    SPAWNED = "spawned"
    UNSPAWNED = "unspawned"
    ANSWERED = "answered"
    MISSED = "missed"
    SILENT = "silent"  # missed too often
    EXITED = "exited"
    STOP = "stop"
    OVERDUE = "overdue"
    SWEPT = "swept"  # nothing of it is alive
    SURVIVED = "survived"
    PORT_FREE = "port_free"
    PORT_BUSY = "port_busy"


_S = Stage
_H = Happening
_LATE_PROBE: Final = {_H.ANSWERED: None, _H.MISSED: None, _H.SILENT: None}

_LATE: Final = dict.fromkeys(
    (_H.CHECKED, _H.REFUSED, _H.SPAWNED, _H.UNSPAWNED, _H.EXITED, _H.SWEPT, _H.SURVIVED, _H.STOP)
)

# `None` in a row: the stage stays.
_ROWS: Final[Mapping[Stage, Mapping[Happening, Stage | None]]] = {
    _S.CHECKING: {
        _H.CHECKED: _S.RECORDING,
        _H.REFUSED: _S.FAILED,
        _H.OVERDUE: _S.FAILED,
        _H.STOP: _S.GONE,
    },
    _S.RECORDING: {_H.RECORDED: _S.SPAWNING, _H.UNRECORDED: _S.FAILED, _H.STOP: _S.GONE},
    _S.SPAWNING: {
        _H.SPAWNED: _S.STARTING,
        _H.UNSPAWNED: _S.FAILED,
        _H.OVERDUE: _S.FAILED,
        _H.STOP: None,  # remembered; there is no process to signal yet
    },
    _S.STARTING: {
        _H.ANSWERED: _S.READY,
        _H.MISSED: None,
        _H.EXITED: _S.SWEEPING,
        _H.OVERDUE: _S.ENDING,
        _H.STOP: _S.ENDING,
        _H.RECORDED: None,
        _H.UNRECORDED: None,  # it cannot be adopted later, but serves
    },
    _S.READY: {
        _H.ANSWERED: None,
        _H.MISSED: None,
        _H.SILENT: _S.ENDING,
        _H.EXITED: _S.SWEEPING,
        _H.STOP: _S.ENDING,
        _H.RECORDED: None,
        _H.UNRECORDED: None,
    },
    _S.ENDING: _LATE_PROBE
    | {
        _H.EXITED: _S.SWEEPING,
        _H.OVERDUE: _S.SWEEPING,
        _H.STOP: None,
        _H.RECORDED: None,
        _H.UNRECORDED: None,
    },
    _S.SWEEPING: _LATE_PROBE
    | {
        _H.EXITED: None,
        _H.SWEPT: _S.RELEASING,
        _H.SURVIVED: None,
        _H.OVERDUE: None,
        _H.STOP: None,
        _H.RECORDED: None,
        _H.UNRECORDED: None,
    },
    _S.RELEASING: _LATE_PROBE
    | {_H.PORT_FREE: _S.GONE, _H.PORT_BUSY: None, _H.OVERDUE: _S.GONE, _H.STOP: None},
    # Answers that were on their way when the shard ended.
    _S.GONE: _LATE_PROBE | _LATE | {_H.RECORDED: None, _H.UNRECORDED: None},
    _S.FAILED: _LATE_PROBE | _LATE,
}

NEXT: Final = {
    (stage, happening): stage if after is None else after
    for stage, row in _ROWS.items()
    for happening, after in row.items()
}
ENDED: Final = frozenset({Stage.GONE, Stage.FAILED})
_LIVE: Final = frozenset(Stage) - ENDED
NEVER: Final = frozenset(
    {
        # Asked once, before the process is there.
        *(
            (s, h)
            for s in (_S.RECORDING, _S.SPAWNING, _S.STARTING, _S.READY)
            for h in (_H.CHECKED, _H.REFUSED)
        ),
        *((s, h) for s in (_S.ENDING, _S.SWEEPING, _S.RELEASING) for h in (_H.CHECKED, _H.REFUSED)),
        *((_S.CHECKING, h) for h in (_H.RECORDED, _H.UNRECORDED)),
        *((s, h) for s in (_S.SPAWNING, _S.RELEASING, _S.FAILED) for h in (_H.RECORDED, _H.UNRECORDED)),
        *((s, h) for s in _LIVE if s is not _S.SPAWNING for h in (_H.SPAWNED, _H.UNSPAWNED)),
        # Only a process that was started answers, misses or exits, once.
        *((s, h) for s in (_S.CHECKING, _S.RECORDING, _S.SPAWNING) for h in (*_LATE_PROBE, _H.EXITED)),
        (_S.RELEASING, _H.EXITED),
        (_S.STARTING, _H.SILENT),  # while it starts, the startup timeout judges
        # No deadline runs there.
        *((s, _H.OVERDUE) for s in (_S.RECORDING, _S.READY, _S.GONE, _S.FAILED)),
        # One sweep, one look at the port at a time, each only in its stage.
        *((s, h) for s in _LIVE if s is not _S.SWEEPING for h in (_H.SWEPT, _H.SURVIVED)),
        *((s, h) for s in _S if s is not _S.RELEASING for h in (_H.PORT_FREE, _H.PORT_BUSY)),
    }
)

_VISIBLE: Final = {
    Stage.CHECKING: ShardPhase.STARTING,
    Stage.RECORDING: ShardPhase.STARTING,
    Stage.SPAWNING: ShardPhase.STARTING,
    Stage.STARTING: ShardPhase.STARTING,
    Stage.READY: ShardPhase.READY,
    Stage.ENDING: ShardPhase.STOPPING,
    Stage.SWEEPING: ShardPhase.STOPPING,
    Stage.RELEASING: ShardPhase.STOPPING,
    Stage.GONE: ShardPhase.GONE,
    Stage.FAILED: ShardPhase.FAILED,
}


class Shard(msgspec.Struct, frozen=True):
    """One shard of this node. Times are the loop's clock, in seconds."""

    order: Order
    stage: Stage
    deadline: float | None = None  # of this stage
    look_at: float | None = None  # when to look again: probe, sweep or port, by stage
    looking: bool = False  # a look is on its way
    since: float = 0.0  # when this stage began
    misses: int = 0
    exited: bool = False
    stop_asked: bool = False
    stop_grace_s: float = 0.0
    failure: Explained | None = None  # why it ends, or ended, unasked
    note: str = ""  # what keeps it, for people
    then: Order | None = None  # a newer incarnation that waits for this one to be gone

    @property
    def id(self) -> ShardId:
        """Which incarnation it is."""
        return self.order.id

    @property
    def phase(self) -> ShardPhase:
        """What the control plane is told."""
        return _VISIBLE[self.stage]


# ---------------------------------------------------------------- one shard


def tell(shard: Shard) -> Report:
    """What the control plane is told of it now."""
    return Report(shard.id, shard.phase, shard.failure, shard.note)


def answer(shard: Shard, event: Answer, now: float) -> tuple[Shard, Commands]:
    """The shard after something asked for was done, or its process ended."""
    change = msgspec.structs.replace
    match event:
        case Checked():
            kind = Happening.CHECKED if event.refusal is None else Happening.REFUSED
            return happen(_failing(shard, event.refusal), kind, now)
        case Recorded():
            if event.error and shard.stage is Stage.RECORDING:
                text = f"cannot write the state file: {event.error}"
                shard = _failing(shard, Explained(Failure.SPAWN_FAILED, text))
            return happen(shard, Happening.UNRECORDED if event.error else Happening.RECORDED, now)
        case Spawned():
            kind = Happening.SPAWNED if event.failure is None else Happening.UNSPAWNED
            return happen(_failing(shard, event.failure), kind, now)
        case Probed():
            if shard.stage in (Stage.STARTING, Stage.READY):
                return _probed(change(shard, looking=False), event.miss, now)
            # A late answer is no answer to the look that is on its way by now.
            return happen(shard, Happening.MISSED if event.miss else Happening.ANSWERED, now)
        case Exited():
            return happen(_exited(shard, event.explained), Happening.EXITED, now)
        case Swept():
            clear = shard.exited and not event.left
            note = "" if clear else _survivors(event.left)
            looked = change(shard, looking=False, note=note)
            return happen(looked, Happening.SWEPT if clear else Happening.SURVIVED, now)
        case PortLooked():
            looked = change(shard, looking=False)
            return happen(looked, Happening.PORT_FREE if event.free else Happening.PORT_BUSY, now)
        case _:
            assert_never(event)


def _probed(shard: Shard, miss: str, now: float) -> tuple[Shard, Commands]:
    if not miss:
        return happen(msgspec.structs.replace(shard, misses=0, note=""), Happening.ANSWERED, now)
    missed = msgspec.structs.replace(shard, misses=shard.misses + 1, note=miss)
    if shard.stage is not Stage.READY or missed.misses < MISSES:
        return happen(missed, Happening.MISSED, now)
    text = f"the engine did not answer {missed.misses} health questions in a row: {miss}"
    return happen(_failing(missed, Explained(Failure.UNHEALTHY, text)), Happening.SILENT, now)


def _exited(shard: Shard, explained: Explained) -> Shard:
    failure = shard.failure
    if failure is not None and not failure.log_tail:
        failure = msgspec.structs.replace(failure, log_tail=explained.log_tail)
    elif failure is None and not shard.stop_asked and shard.stage in (Stage.STARTING, Stage.READY):
        failure = explained
    return msgspec.structs.replace(shard, exited=True, failure=failure)


def _failing(shard: Shard, failure: Explained | None) -> Shard:
    if failure is None or shard.stop_asked or shard.stage in ENDED:
        return shard
    return msgspec.structs.replace(shard, failure=failure)


def _survivors(left: tuple[int, ...]) -> str:
    shown = ", ".join(str(pid) for pid in left[:5])
    return f"still alive after KILL: {shown}" if left else "its process has not ended yet"


def ask_stop(shard: Shard, grace_s: float, now: float) -> tuple[Shard, Commands]:
    """The shard after it was asked to go; asked again, it may only hurry."""
    if shard.stop_asked:
        grace_s = min(grace_s, shard.stop_grace_s)
    asked = msgspec.structs.replace(shard, stop_asked=True, stop_grace_s=grace_s)
    return happen(asked, Happening.STOP, now)


def happen(shard: Shard, kind: Happening, now: float) -> tuple[Shard, Commands]:
    """Take the table's way, and say what has to be done on it."""
    after = NEXT.get((shard.stage, kind))
    assert after is not None, f"{kind} cannot happen to {shard.id} while {shard.stage}"
    before = shard.stage
    if before in ENDED:
        return _after_end(shard, kind)
    if kind is Happening.OVERDUE:
        shard = _overdue(shard)
    if after is before:
        return _stay(shard, kind, now)
    if after in ENDED:
        after = Stage.FAILED if shard.failure is not None else Stage.GONE
    entered = enter(shard, after, now)
    return _entering(entered, before, now)


def _entering(shard: Shard, before: Stage, now: float) -> tuple[Shard, Commands]:
    id = shard.id
    match shard.stage:
        case Stage.CHECKING:
            raise AssertionError("a shard begins there")
        case Stage.RECORDING:
            return shard, (WriteRecord(id, ready=False),)
        case Stage.SPAWNING:
            return shard, (Spawn(id),)
        case Stage.STARTING if shard.stop_asked:  # asked while it was being spawned
            ending = enter(shard, Stage.ENDING, now)
            return ending, (WriteRecord(id, ready=False), Terminate(id), tell(ending))
        case Stage.STARTING if not shard.order.has_port:  # judged by staying alive (A13)
            ready = enter(shard, Stage.READY, now)
            return ready, (WriteRecord(id, ready=True), tell(ready))
        case Stage.STARTING:
            return shard, (WriteRecord(id, ready=False), tell(shard))
        case Stage.READY:
            return shard, (WriteRecord(id, ready=True), tell(shard))
        case Stage.ENDING:
            return shard, (Terminate(id), tell(shard))
        case Stage.SWEEPING:
            return msgspec.structs.replace(shard, looking=True), (Sweep(id),)
        case Stage.RELEASING if shard.order.has_port:
            return msgspec.structs.replace(shard, looking=True), (CheckPort(id),)
        case Stage.RELEASING:
            ended = Stage.GONE if shard.failure is None else Stage.FAILED
            over = enter(shard, ended, now)
            return over, (tell(over), RemoveRecord(id))
        case Stage.GONE | Stage.FAILED:
            removed: Commands = () if before is Stage.CHECKING else (RemoveRecord(id),)
            return shard, (tell(shard), *removed)
        case _:
            assert_never(shard.stage)


def enter(shard: Shard, stage: Stage, now: float) -> Shard:
    """The shard in a stage it was not in, with that stage's clocks."""
    deadline, look_at = _clocks(shard, stage, now)
    return msgspec.structs.replace(
        shard, stage=stage, since=now, deadline=deadline, look_at=look_at, looking=False, misses=0
    )


def _clocks(shard: Shard, stage: Stage, now: float) -> tuple[float | None, float | None]:
    probed = shard.order.has_port
    match stage:
        case Stage.CHECKING:
            return now + CHECK_WITHIN_S, None
        case Stage.SPAWNING:
            return now + SPAWN_WITHIN_S, None
        case Stage.STARTING:
            return now + shard.order.startup_timeout_s, now + PROBE_FIRST_S if probed else None
        case Stage.READY:
            return None, now + PROBE_READY_S if probed else None
        case Stage.ENDING:
            grace = shard.stop_grace_s if shard.stop_asked else shard.order.stop_grace_s
            return now + grace, now + TERM_AGAIN_S
        case Stage.SWEEPING:
            return now + SWEEP_SAID_AFTER_S, now + SWEEP_AGAIN_S
        case Stage.RELEASING:
            return now + PORT_WITHIN_S, now + PORT_AGAIN_S
        case Stage.RECORDING | Stage.GONE | Stage.FAILED:
            return None, None
        case _:
            assert_never(stage)


def _overdue(shard: Shard) -> Shard:
    change = msgspec.structs.replace
    match shard.stage:
        case Stage.CHECKING:
            text = f"checking the node did not end within {CHECK_WITHIN_S:g} s: a disk or tool there hangs"
            return _failing(shard, Explained(Failure.SPAWN_FAILED, text))
        case Stage.SPAWNING:
            text = f"the engine's program did not start within {SPAWN_WITHIN_S:g} s: its disk hangs"
            return _failing(shard, Explained(Failure.SPAWN_FAILED, text))
        case Stage.STARTING:
            waited = f"{shard.order.startup_timeout_s:g} s (startup_timeout)"
            why = f": {shard.note}" if shard.note else ""
            text = f"the engine was not ready within {waited}{why}"
            return _failing(shard, Explained(Failure.START_TIMEOUT, text))
        case Stage.RELEASING:
            return change(shard, note="its port is still held by a process that is not ours")
        case _:
            return shard


def _stay(shard: Shard, kind: Happening, now: float) -> tuple[Shard, Commands]:
    """What changes within a stage."""
    change = msgspec.structs.replace
    match shard.stage, kind:
        case Stage.STARTING, Happening.MISSED:
            fast = now - shard.since < PROBE_FAST_FOR_S
            return change(shard, look_at=now + (PROBE_STARTING_S if fast else PROBE_SLOW_S)), ()
        case Stage.READY, (Happening.ANSWERED | Happening.MISSED):
            return change(shard, look_at=now + PROBE_READY_S), ()
        case Stage.ENDING, Happening.STOP:
            hurried = now + shard.stop_grace_s
            return change(shard, deadline=min(shard.deadline or hurried, hurried)), ()
        case Stage.SWEEPING, Happening.EXITED:
            return change(shard, look_at=now), ()
        case Stage.SWEEPING, Happening.SURVIVED:
            again = SWEEP_AGAIN_S if now - shard.since < PROBE_FAST_FOR_S else SWEEP_SLOW_S
            return change(shard, look_at=now + again), ()
        case Stage.SWEEPING, Happening.OVERDUE:
            # Said now, so that nothing is routed to it while its last process is slow to die.
            return change(shard, deadline=None), (tell(shard),)
        case Stage.RELEASING, Happening.PORT_BUSY:
            return change(shard, look_at=now + PORT_AGAIN_S), ()
        case _:
            return shard, ()


def _after_end(shard: Shard, kind: Happening) -> tuple[Shard, Commands]:
    match kind:
        case Happening.SPAWNED:  # a spawn that was given up came through after all
            return shard, (Sweep(shard.id),)
        case Happening.STOP:
            return shard, (tell(shard),)
        case _:
            return shard, ()


def look(shard: Shard, now: float) -> tuple[Shard, Commands]:
    """Look again, as its stage asks for; called when `look_at` has come and no look is on its way."""
    looking = msgspec.structs.replace(shard, looking=True)
    match shard.stage:
        case Stage.STARTING:
            return looking, (Probe(shard.id, identify=True),)
        case Stage.READY:
            return looking, (Probe(shard.id, identify=False),)
        case Stage.ENDING:
            return msgspec.structs.replace(shard, look_at=now + TERM_AGAIN_S), (Terminate(shard.id),)
        case Stage.SWEEPING:
            return looking, (Sweep(shard.id),)
        case Stage.RELEASING:
            return looking, (CheckPort(shard.id),)
        case _:
            raise AssertionError(f"nothing to look at while {shard.stage}")
