"""Decides what an agent does with the shards of its node: whom it obeys, what starts, what makes room.

Laws: an engine is started once an incarnation and never again on the agent's own account (A18); one
incarnation of a shard lives at a time; orders of an older term or generation change nothing (H2); an
order repeated changes nothing; what an earlier agent left is watched, or swept when it is dead (A14).
"""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from llmgw.core.orders import (
    Check,
    Checked,
    Command,
    Commands,
    Drop,
    Event,
    Exited,
    ForgetAsked,
    Found,
    Order,
    PortLooked,
    Probe,
    Probed,
    Recorded,
    Refuse,
    RememberTerm,
    ReportGone,
    Spawned,
    StartAsked,
    StopAll,
    StopAsked,
    Sweep,
    Swept,
    TermSeen,
    Tick,
)
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import ShardId
from llmgw.core.shard_life import (
    CHECK_WITHIN_S,
    ENDED,
    Happening,
    Shard,
    Stage,
    answer,
    ask_stop,
    enter,
    happen,
    look,
    tell,
)

ENDED_KEPT = 256  # ended shards remembered until the control plane has taken note


Stepped = tuple["SupervisorState", Commands]
Slot = tuple[str, int]  # replica and rank: one incarnation lives at a time


class SupervisorState(msgspec.Struct, frozen=True):
    """Every shard of the node, and the highest term a server has shown."""

    shards: Mapping[Slot, Shard] = {}
    highest_term: int = 0

    def find(self, id: ShardId) -> Shard | None:
        """The shard, if this very incarnation is here."""
        shard = self.shards.get((id.replica, id.rank))
        return shard if shard is not None and shard.id == id else None


# ---------------------------------------------------------------- the node


def step(state: SupervisorState, event: Event, now: float) -> Stepped:
    """The state after an event, and what to do."""
    match event:
        case Tick():
            return _tick(state, now)
        case TermSeen():
            return _see_term(state, event.term)
        case Found():
            return _found(state, event, now)
        case StopAll():
            return _stop_all(state, event.grace_s, now)
        case StartAsked() | StopAsked() | ForgetAsked():
            return _obey(state, event, now)
        case Checked() | Recorded() | Spawned() | Probed() | Exited() | Swept() | PortLooked():
            shard = state.find(event.id)
            if shard is None:
                # A spawn that was given up, and whose slot has another by now, came through after all.
                unwanted = isinstance(event, Spawned) and event.failure is None
                return state, (Sweep(event.id),) if unwanted else ()
            return _settle(state, *answer(shard, event, now), now)
        case _:
            assert_never(event)


def next_due(state: SupervisorState) -> float | None:
    """When `Tick` must be sent next; `None` when nothing waits."""
    due = [at for shard in state.shards.values() if (at := _due(shard)) is not None]
    return min(due, default=None)


def live(state: SupervisorState) -> bool:
    """Whether any shard has, or will have, a process."""
    return any(shard.stage not in ENDED for shard in state.shards.values())


def _due(shard: Shard) -> float | None:
    look = None if shard.looking else shard.look_at
    return min((at for at in (shard.deadline, look) if at is not None), default=None)


def _see_term(state: SupervisorState, term: int) -> Stepped:
    if term <= state.highest_term:
        return state, ()
    return msgspec.structs.replace(state, highest_term=term), (RememberTerm(term),)


def _obey(state: SupervisorState, event: StartAsked | StopAsked | ForgetAsked, now: float) -> Stepped:
    id = event.order.id if isinstance(event, StartAsked) else event.id
    if event.term < state.highest_term:
        reason = f"term {event.term} is over: this node has seen term {state.highest_term}"
        return state, (Refuse(id, reason),)
    state, remember = _see_term(state, event.term)
    match event:
        case StartAsked():
            state, commands = _start(state, event.order, now)
        case StopAsked():
            state, commands = _stop(state, event, now)
        case ForgetAsked():
            state, commands = _forget(state, event.id)
        case _:
            assert_never(event)
    return state, remember + commands


def _start(state: SupervisorState, order: Order, now: float) -> Stepped:
    id = order.id
    present = state.shards.get((id.replica, id.rank))
    if present is None:
        return _begin(state, order, now)
    if present.then is not None and id.generation <= present.then.id.generation:
        return state, (tell(present),)
    if id == present.id:
        return state, (tell(present),)  # repeated, or over: an incarnation starts once
    if id.generation < present.id.generation:
        reason = f"generation {id.generation} is over: generation {present.id.generation} is here"
        return state, (Refuse(id, reason),)
    if present.stage in ENDED:
        state, commands = _begin(state, order, now)
        return state, (Drop(present.id), *commands)
    dropped = () if present.then is None else (Drop(present.then.id),)
    waiting = msgspec.structs.replace(present, then=order)
    state, commands = _settle(state, *ask_stop(waiting, order.stop_grace_s, now), now)
    return state, dropped + commands


def _begin(state: SupervisorState, order: Order, now: float) -> Stepped:
    shard = Shard(order, Stage.CHECKING, deadline=now + CHECK_WITHIN_S, since=now)
    state, dropped = _bounded(_with(state, shard))
    return state, (*dropped, Check(order.id), tell(shard))


def _stop(state: SupervisorState, event: StopAsked, now: float) -> Stepped:
    id = event.id
    present = state.shards.get((id.replica, id.rank))
    if present is None or present.id.generation > id.generation:
        return state, (ReportGone(id),)
    dropped: Commands = ()
    if present.then is not None and present.then.id.generation <= id.generation:
        dropped = (Drop(present.then.id), ReportGone(present.then.id))
        present = msgspec.structs.replace(present, then=None)
    if present.id.generation < id.generation:
        dropped = (*dropped, ReportGone(id))
    if present.stage in ENDED:
        return _with(state, present), (*dropped, tell(present))
    state, commands = _settle(state, *ask_stop(present, event.grace_s, now), now)
    return state, dropped + commands


def _forget(state: SupervisorState, id: ShardId) -> Stepped:
    shard = state.find(id)
    if shard is None:
        return state, ()
    if shard.stage not in ENDED:
        return state, (Refuse(id, "it is not over yet: stop it first"), tell(shard))
    return _without(state, shard), (Drop(id),)


def _stop_all(state: SupervisorState, grace_s: float, now: float) -> Stepped:
    commands: list[Command] = []
    for shard in tuple(state.shards.values()):
        if shard.then is not None:
            commands.append(Drop(shard.then.id))
        if shard.stage not in ENDED:
            alone = msgspec.structs.replace(shard, then=None)
            state, more = _settle(state, *ask_stop(alone, grace_s, now), now)
            commands.extend(more)
    return state, tuple(commands)


def _found(state: SupervisorState, found: Found, now: float) -> Stepped:
    order = found.order
    if not found.alive:
        failure = found.failure or Explained(
            Failure.ENGINE_EXITED, "the engine ended while no agent was watching it"
        )
        # Dead, but children of it may live: swept like after any crash.
        dead = enter(Shard(order, Stage.SWEEPING, exited=True, failure=failure), Stage.SWEEPING, now)
        return _with(state, msgspec.structs.replace(dead, looking=True)), (Sweep(order.id),)
    stage = Stage.READY if found.ready else Stage.STARTING
    shard = msgspec.structs.replace(enter(Shard(order, stage), stage, now), looking=order.has_port)
    commands: Commands = (Probe(order.id, identify=True),) if order.has_port else ()
    return _with(state, shard), commands


def _tick(state: SupervisorState, now: float) -> Stepped:
    commands: list[Command] = []
    for shard in tuple(state.shards.values()):
        if shard.deadline is not None and now >= shard.deadline:
            state, more = _settle(state, *happen(shard, Happening.OVERDUE, now), now)
        elif shard.look_at is not None and not shard.looking and now >= shard.look_at:
            looked, more = look(shard, now)
            state = _with(state, looked)
        else:
            continue
        commands.extend(more)
    return state, tuple(commands)


def _settle(state: SupervisorState, shard: Shard, commands: Commands, now: float) -> Stepped:
    """Put a shard back; one that ended makes room for the incarnation that waited for it."""
    state = _with(state, shard)
    if shard.stage not in ENDED or shard.then is None:
        return state, commands
    state, more = _begin(state, shard.then, now)
    return state, (*commands, Drop(shard.id), *more)


def _with(state: SupervisorState, shard: Shard) -> SupervisorState:
    slot = (shard.id.replica, shard.id.rank)
    return msgspec.structs.replace(state, shards={**state.shards, slot: shard})


def _without(state: SupervisorState, shard: Shard) -> SupervisorState:
    slot = (shard.id.replica, shard.id.rank)
    rest = {other: kept for other, kept in state.shards.items() if other != slot}
    return msgspec.structs.replace(state, shards=rest)


def _bounded(state: SupervisorState) -> Stepped:
    ended = [shard for shard in state.shards.values() if shard.stage in ENDED]
    surplus = ended[: max(0, len(ended) - ENDED_KEPT)]
    for shard in surplus:
        state = _without(state, shard)
    return state, tuple(Drop(shard.id) for shard in surplus)
