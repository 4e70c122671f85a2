"""Brings a rig into one phase and holds it there long enough for a kill; each way is tried by chance.

Law: a function here returns how the phase was hit, seen a moment before the kill, or `None` when it was
missed; what it holds open is named in the hit, to be let go after the kill.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.e2e.cluster import NODE
from tests.e2e.installation import until
from tests.e2e.kill_rig import SLOW_START_S, Hit, Rig, pause

WITHIN_S = 20.0
JUST_S = 0.25  # so long after it said that it is ready

Reach = Callable[[Rig, str, random.Random], Hit | None]


def _soon(what: str, look: Callable[[], object]) -> bool:
    """Whether something came true in time."""
    try:
        until(what, lambda: look() or None, WITHIN_S)
    except AssertionError:
        return False
    return True


def assigned_or_validating(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """The server decided; the agent has not read it, or is looking at the node."""
    if draw.random() < 0.4:
        rig.rotate(draw)
        agent = rig.cluster.pid(NODE)
        os.kill(agent, signal.SIGSTOP)
        hit = Hit("assigned, the agent does not read", (("resume", agent),))
        if _soon("assigned", lambda: rig.shard(rig.model).get("phase") == "assigned"):
            pause(draw.uniform(0, 0.3))
            if rig.shard(rig.model).get("phase") == "assigned":
                return hit
        rig.undo(hit)
        return None
    rig.shut_gate()
    rig.rotate(draw)
    hit = Hit("validating, a secret's disk hangs", (("open", 0),))
    if _soon("validating", lambda: _validating(rig)):
        pause(draw.uniform(0, 0.5))
        if _validating(rig):
            return hit
    rig.undo(hit)
    return None


def _validating(rig: Rig) -> bool:
    shard = rig.shard(rig.model)
    return shard.get("phase") == "starting" and shard["pid"] is None and not rig.engines(rig.model)


def spawned_and_starting(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """The engine's process is there and loads, or was forked a moment ago."""
    before = rig.children_of_agent()
    rig.rotate(draw, SLOW_START_S)
    if role in ("agent", "engine") and draw.random() < 0.5:
        return _at_its_fork(rig, before)
    if not _soon("an engine process", lambda: rig.engines(rig.model)):
        return None
    pause(draw.uniform(0, 1.5))
    starting = rig.engines(rig.model) and rig.replica(rig.model).get("state") == "starting"
    return Hit("its engine loads") if starting else None


def _at_its_fork(rig: Rig, before: set[int]) -> Hit | None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        born = rig.children_of_agent() - before
        if born:
            return Hit("its engine was just forked", engine=born.pop())
        pause(0.0005)  # the state file follows within milliseconds
    return None


def just_ready(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """The engine answered for the first time a moment ago."""
    rig.rotate(draw, draw.uniform(0.1, 0.6))
    if not _soon("ready", lambda: rig.replica(rig.model).get("state") == "ready"):
        return None
    seen = time.monotonic()
    after = draw.uniform(0, JUST_S)
    pause(after)
    late = time.monotonic() - seen > 2 * JUST_S + 0.5
    return None if late else Hit(f"ready for {time.monotonic() - seen:.2f} s")


def serving(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """Requests are on their way; the clients are those of the caller."""
    pause(draw.uniform(0, 0.7))
    return Hit("clients ask") if rig.replica(rig.model).get("state") == "ready" else None


def draining_or_stopping(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """A replica nobody wants any more finishes a request, or its engine does not end at once."""
    old = rig.model
    if draw.random() < 0.5:
        rig.begin_slow_stream()
        rig.rotate(draw)
        return _seen_ending(rig, old, "draining", Hit("a request is in flight"), draw.uniform(0, 1.2))
    (engine,) = rig.engines(old)
    os.kill(engine.pid, signal.SIGSTOP)
    hit = Hit("the engine does not end", (("resume", engine.pid),))
    rig.rotate(draw)
    return _seen_ending(rig, old, "stopping", hit, draw.uniform(0, 2.0))


def _seen_ending(rig: Rig, old: str, state: str, hit: Hit, after: float) -> Hit | None:
    if _soon(state, lambda: rig.replica(old).get("state") == state):
        pause(after)
        if rig.replica(old).get("state") == state and rig.engines(old):
            return Hit(f"{state}, {hit.how}", hit.undo)
    rig.undo(hit)
    return None


def settling_after_a_restart(rig: Rig, role: str, draw: random.Random) -> Hit | None:
    """A new server waits for its fleet, or a new agent has not reported what it found."""
    if draw.random() < 0.3:
        rig.cluster.kill(NODE)
        rig.cluster.start_agent(NODE)
        began = time.monotonic()
        pause(draw.uniform(0, 0.8))
        heard = rig.cluster.node().get("heard_s")
        silent = heard is not None and heard > time.monotonic() - began
        return Hit("the new agent has not reported") if silent else None
    rig.restart_server(draw)
    if not _soon("settling", lambda: (rig.cluster.status() or {}).get("settling_s")):
        return None
    pause(draw.uniform(0, 0.6))
    settling = (rig.cluster.status() or {}).get("settling_s")
    heard_of = "with" if rig.cluster.hears_node() else "without"
    return Hit(f"the new server settles {heard_of} its node") if settling else None


PHASES: Final[Mapping[str, Reach]] = {
    "validating": assigned_or_validating,
    "starting": spawned_and_starting,
    "just ready": just_ready,
    "serving": serving,
    "stopping": draining_or_stopping,
    "settling": settling_after_a_restart,
}
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    phase: ("agent", "router", "server") if phase == "validating" else ("agent", "engine", "router", "server")
    for phase in PHASES  # no engine is there while a start is validated
}
