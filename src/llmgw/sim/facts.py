"""Knows what is true outside of the system: engines that really run, what nodes were told, what routers hold.

Laws: nothing in here is asked of the control plane or an agent; it is seen at the machines, at the wire
and in the simulated routers, so that a part that lies or forgets is caught.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from llmgw.core.claims import Claim
from llmgw.core.inventory import NodeReport
from llmgw.sim.machine import SimProcess
from llmgw.wire.agent_v1 import ShardKey, ShardSpec
from llmgw.wire.watch_v1 import EndpointEntry

ShardName: TypeAlias = tuple[str, int]  # replica id and rank


class EngineFact:
    """An engine process: who it is for, and what it did so far."""

    def __init__(self, node: str, key: ShardKey, process: SimProcess, at: float) -> None:
        self.node = node
        self.key = key
        self.process = process
        self.started_at = at
        self.claim: Claim | None = None  # what its node was told it may hold; None: it was never told
        self.port: int | None = None
        self.answered_at: float | None = None  # when it first answered a health probe with 200
        self.signalled_at: float | None = None
        self.answers: Callable[[], bool] = lambda: self.answered_at is not None  # it would, if asked now

    @property
    def shard(self) -> ShardName:
        """Whose engine it is."""
        return self.key.replica, self.key.rank

    def text(self) -> str:
        """For a person."""
        return f"engine of {self.key.replica}/{self.key.rank} (pid {self.process.pid} on {self.node})"


class RouterFact:
    """A router: what it sends requests to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connected_since: float | None = None
        self.endpoints: dict[str, EndpointEntry] = {}
        # When it was told to drop an endpoint, and by which revision.
        self.withdrawn_at: dict[str, tuple[float, int]] = {}


class Books(msgspec.Struct, frozen=True):
    """What the control plane that runs now believes to be held: the only belief a checker is shown."""

    term: int
    held: frozenset[ShardName]


class Facts:
    """All of it, at this moment of virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.engines: dict[str, EngineFact] = {}  # alive, by process name
        self.routers: dict[str, RouterFact] = {}  # alive, by process name
        self.inventory: dict[str, NodeReport] = {}  # by node
        self.specs: dict[ShardKey, ShardSpec] = {}  # as nodes were told to start them
        self.highest_term: dict[str, int] = {}  # by node: of any word of a control plane
        self.told_to_stop: set[ShardKey] = set()
        self.books: Callable[[], Books | None] = _no_books
        self.welcomed: dict[str, int] = {}  # by node: the term of the server that last accepted its report
        self.fine_since: dict[str, float] = {}  # by node: powered, its agent up, its link whole, since then
        self.wanted: list[tuple[float, Mapping[str, int]]] = []  # models by count, from each moment on
        self.settling_s = 0.0
        self.stale: set[ShardKey] = set()  # told to start only under a term older than the node had seen

    def engines_of(self, replica: str) -> list[EngineFact]:
        """Live engines of a replica."""
        return [engine for engine in self.engines.values() if engine.key.replica == replica]

    def steadily_wanted(self, model: str, since: float) -> int | None:
        """How many of a model have been wanted since then; `None` when that changed meanwhile."""
        ends = [*(at for at, _ in self.wanted[1:]), float("inf")]
        counts = {
            wanted.get(model, 0) for (_, wanted), end in zip(self.wanted, ends, strict=True) if end > since
        }
        return counts.pop() if len(counts) == 1 else None

    def routed(self, replica: str) -> bool:
        """Whether a router sends to it and was not told to drop it."""
        return any(
            replica in router.endpoints and replica not in router.withdrawn_at
            for router in self.routers.values()
        )

    def told_term(self, node: str, term: int) -> bool:
        """A node was told a term; whether it is older than one it had seen."""
        highest = self.highest_term.get(node, 0)
        self.highest_term[node] = max(highest, term)
        return term < highest

    def told_to_start(self, node: str, term: int, spec: ShardSpec) -> None:
        """A node was told to start a shard."""
        self.specs[spec.key] = spec
        if self.told_term(node, term):
            self.stale.add(spec.key)
        else:
            self.stale.discard(spec.key)


class Violation(msgspec.Struct, frozen=True):
    """Something that must never be, and was."""

    checker: str
    at: float
    text: str
    subjects: tuple[str, ...] = ()


def _no_books() -> Books | None:
    return None
