"""Ways to break production code that a run must notice: what the simulator is worth is what these say.

Laws: a mutant removes one guard and nothing else; each is killed by a scenario of its own in the tests,
and by the swarm at a rate `llmgw sim --mutant NAME` prints; the code is whole again afterwards.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any
from unittest.mock import patch

import msgspec

from llmgw.agent import agent
from llmgw.agent.driver import Driver
from llmgw.control import translate
from llmgw.core import adoption, fleet, fleet_books, fleet_state, reconcile, shard_life
from llmgw.core.adoption import Adopted
from llmgw.core.fleet_state import Endpoint
from llmgw.core.orders import Swept
from llmgw.core.replica import Course, Replica, ShardId, ShardPhase
from llmgw.core.shard_life import Stage
from llmgw.sim import scenarios
from llmgw.sim.scenarios import Scenario


class Patch(msgspec.Struct, frozen=True):
    """One name of a module or class, and what to put in its place, made from what was there."""

    module: ModuleType | type
    name: str
    change: Callable[[Any], object]


class Mutant(msgspec.Struct, frozen=True):
    """One way, and the scenario that must not survive it."""

    breaks: str
    patches: tuple[Patch, ...]
    scenario: Scenario

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, the code is broken this way."""
        with contextlib.ExitStack() as stack:
            for one in self.patches:
                broken = one.change(getattr(one.module, one.name))
                stack.enter_context(patch.object(one.module, one.name, broken))
            yield


def _only_kept(held_by_node: Any) -> object:
    def forgetful(replicas: Mapping[str, Replica]) -> object:
        kept = {id: one for id, one in replicas.items() if one.course in (Course.KEEP, Course.DRAIN)}
        return held_by_node(kept)

    return forgetful


def _hasty(endpoints: Any) -> object:
    def hasty(replicas: Mapping[str, Replica]) -> dict[str, Endpoint]:
        found = {}
        for one in replicas.values():
            leader = one.leader
            if one.course is Course.KEEP and leader is not None and leader.address and leader.port:
                where = (leader.address, leader.port)
                found[one.id] = Endpoint(one.id, one.model, *where, one.engine, one.engine_key, leader.node)
        return found

    return hasty


def _deaf(hear_report: Any) -> object:
    def deaf(*args: Any) -> Adopted:
        heard: Adopted = hear_report(*args)
        known = tuple(one for one in heard.replicas if one.id not in heard.adopted)
        return Adopted(known, (), heard.unrecognised, heard.forgettable)

    return deaf


async def _take_nothing_over(*args: Any) -> None:
    """In place of taking over what an earlier agent started."""


async def _kill_the_group_only(driver: Any, id: ShardId) -> Swept:
    driver._signal(id, signal.SIGKILL)
    return Swept(id, ())


async def _kill_nothing(driver: Any, id: ShardId) -> Swept:
    return Swept(id, ())


def _always(value: object) -> Callable[[Any], object]:
    return lambda real: lambda *args: value


MUTANTS: Mapping[str, Mutant] = MappingProxyType(
    {
        "claims-released-early": Mutant(
            "a replica that is being stopped holds no claims any more",
            (Patch(fleet_state, "held_by_node", _only_kept),),
            scenarios.SLOW_STOP,
        ),
        "published-unready": Mutant(
            "routers get an endpoint as soon as it is placed",
            (Patch(fleet, "endpoints", _hasty), Patch(translate, "endpoints", _hasty)),
            scenarios.SLOW_LOAD,
        ),
        "adoption-ignored": Mutant(
            "what a node runs unknown to the server is not adopted",
            (Patch(fleet, "hear_report", _deaf),),
            scenarios.SERVER_KILLED,
        ),
        "settling-skipped": Mutant(
            "a new server places at once, before nodes have reported",
            (Patch(fleet_books, "remaining", _always(0.0)),),
            scenarios.SERVER_KILLED,
        ),
        "withdrawal-not-awaited": Mutant(
            "an engine is stopped without waiting for routers to drop it",
            (Patch(reconcile, "acknowledged", _always(True)), Patch(reconcile, "in_flight", _always(0))),
            scenarios.SCALED_DOWN,
        ),
        "gone-when-told": Mutant(
            "an agent calls a shard gone when its engine was sent TERM",
            (Patch(shard_life, "_VISIBLE", lambda real: {**real, Stage.ENDING: ShardPhase.GONE}),),
            scenarios.SLOW_STOP,
        ),
        "takeover-ignored": Mutant(
            "a new agent does not take over what an earlier one started",
            (Patch(agent, "take_over", lambda real: _take_nothing_over),),
            scenarios.AGENTS_KILLED,
        ),
        "absence-ignored": Mutant(
            "what a node's complete report does not contain is still believed in",
            (Patch(adoption, "_note_absent", _always(None)),),
            scenarios.EMPTY_DISK,
        ),
        "children-not-swept": Mutant(
            "an engine's end leaves its children in other process groups alive",
            (Patch(Driver, "_sweep", lambda real: _kill_the_group_only),),
            scenarios.BUSY_PORT,
        ),
        "kill-skipped": Mutant(
            "an engine that ignores TERM is not killed",
            (Patch(Driver, "_sweep", lambda real: _kill_nothing),),
            scenarios.HANGING_ENGINE,
        ),
        "lost-nodes-kept": Mutant(
            "a node nobody hears is never given up",
            (Patch(reconcile, "lost_nodes", _always(frozenset())),),
            scenarios.NODE_LOST,
        ),
        "surplus-kept": Mutant(
            "replicas beyond what is wanted are not drained",
            (Patch(reconcile, "_surplus", _always([])),),
            scenarios.NODE_LOST,
        ),
    }
)
