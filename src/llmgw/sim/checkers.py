"""Decides whether what is true in a simulated cluster may be true: the promises, looked at from outside.

Laws: a checker sees facts only (never what the control plane believes about them); each counts how
often it had something to look at, because one that never had proves nothing; times given to a promise
are the promise's own bounds, not whatever the code needs today.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from llmgw.core import defaults
from llmgw.sim.facts import EngineFact, Facts, RouterFact, ShardName, Violation
from llmgw.wire.watch_v1 import EndpointEntry

# What two processes on one machine need to see the same thing, besides a promise's own bound.
_MOMENT_S = 0.25
# How long an agent that is well takes at most to be heard by a server that leads: its longest pause, and
# a dial that gets no answer.
_DIALS_AGAIN_S = defaults.RECONNECT_CAP_S + 15.0
# Half the window must cover one pause, for nodes are given up for late when none came for that long (R10).
ENOUGH_SETTLING_S = 2 * (defaults.RECONNECT_CAP_S + 10.0)


class Checker:
    """One promise. Override what it looks at; yield texts with the subjects of their story."""

    name = ""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.checked = 0

    def look(self) -> Iterator[Violation]:
        """Look at everything, after each step of a run."""
        yield from ()

    def spawned(self, engine: EngineFact) -> Iterator[Violation]:
        """An engine process was started."""
        yield from ()

    def signalled(self, engine: EngineFact) -> Iterator[Violation]:
        """An engine is about to get its first signal from its agent."""
        yield from ()

    def published(self, router: RouterFact, endpoint: EndpointEntry) -> Iterator[Violation]:
        """A router has begun to send requests to an endpoint."""
        yield from ()

    def broken(self, text: str, *subjects: str) -> Violation:
        """A violation of this promise, now."""
        return Violation(self.name, self.facts.now(), text, subjects)


class NothingTwice(Checker):
    """No card, port or memory of a node is in use by two engines or beyond what there is (cluster 2)."""

    name = "nothing_twice"

    def look(self) -> Iterator[Violation]:
        """Add up what live engines were given, node by node."""
        by_node: dict[str, list[EngineFact]] = defaultdict(list)
        for engine in self.facts.engines.values():
            by_node[engine.node].append(engine)
        for node, engines in by_node.items():
            yield from self._node(node, engines)

    def _node(self, node: str, engines: list[EngineFact]) -> Iterator[Violation]:
        report = self.facts.inventory[node]
        card_bytes = {gpu.index: gpu.memory_total_bytes or 0 for gpu in report.gpus or ()}
        ports: dict[int, EngineFact] = {}
        cards: dict[int, list[EngineFact]] = defaultdict(list)
        memory = 0
        for engine in engines:
            claim = engine.claim
            if claim is None:
                yield self.broken(
                    f"{engine.text()} runs, but {node} was never told to start it", *_who(engine)
                )
                continue
            self.checked += 1
            memory += claim.memory_bytes or 0
            for card in claim.gpus:
                cards[card].append(engine)
            for port in claim.ports:
                if port in ports:
                    yield self.broken(
                        f"port {port} of {node} is given to {_both(ports[port], engine)}",
                        *_who(ports[port], engine),
                    )
                ports[port] = engine
        if memory > (report.memory_total_bytes or memory):
            yield self.broken(
                f"engines on {node} were given {memory} bytes of {report.memory_total_bytes}", *_who(*engines)
            )
        for card, users in cards.items():
            yield from self._card(node, card, card_bytes.get(card), users)

    def _card(self, node: str, card: int, total: int | None, users: list[EngineFact]) -> Iterator[Violation]:
        if total is None:
            yield self.broken(f"{users[0].text()} was given card {card}, which {node} has not", *_who(*users))
            return
        shares = [user.claim.gpu_memory_bytes for user in users if user.claim is not None]
        wholes = sum(share is None for share in shares)
        if (wholes and len(users) > 1) or sum(share or 0 for share in shares) > total:
            yield self.broken(f"card {card} of {node} is given to {_both(*users)}", *_who(*users))


class BooksHold(Checker):
    """What an engine uses is released when its process is gone, not before (cluster 17)."""

    name = "books_hold"

    def look(self) -> Iterator[Violation]:
        """Each engine of a node that reported to the present server must be in its books."""
        books = self.facts.books()
        if books is None:
            return
        for engine in self.facts.engines.values():
            if self.facts.welcomed.get(engine.node) != books.term:
                continue
            self.checked += 1
            if engine.shard not in books.held:
                yield self.broken(f"{engine.text()} runs, and its claims are free", *_who(engine))


class OneEngine(Checker):
    """A shard never has two engines, on whatever nodes and of whatever generation (cluster 15)."""

    name = "one_engine"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._seen: dict[ShardName, EngineFact] = {}

    def spawned(self, engine: EngineFact) -> Iterator[Violation]:
        """Another live one must not be there."""
        self.checked += 1
        for other in self.facts.engines_of(engine.key.replica):
            if other is not engine and other.shard == engine.shard:
                yield self.broken(f"two engines: {_both(other, engine)}", *_who(other, engine))


class ReadyFirst(Checker):
    """A router is only ever given an endpoint whose engine answers as itself (R16a, cluster 21)."""

    name = "ready_first"

    def published(self, router: RouterFact, endpoint: EndpointEntry) -> Iterator[Violation]:
        """The replica's leader must have answered a probe before, at this very address."""
        self.checked += 1
        engines = [one for one in self.facts.engines_of(endpoint.id) if one.key.rank == 0]
        ready = [one for one in engines if one.answered_at is not None]
        if engines and not ready:
            yield self.broken(
                f"{router.name} was given {endpoint.id} before its engine answered", *_who(*engines)
            )
        for engine in ready:
            if engine.port is not None and engine.port != endpoint.port:
                yield self.broken(
                    f"{router.name} was given port {endpoint.port} for {engine.text()}, which is on"
                    f" {engine.port}",
                    *_who(engine),
                )


class WithdrawnFirst(Checker):
    """An engine that serves is told to stop only when routers dropped it, or were given their time (R16a)."""

    name = "withdrawn_first"

    def signalled(self, engine: EngineFact) -> Iterator[Violation]:
        """No connected router may still send requests to it; what an agent ends on its own has failed."""
        if engine.answered_at is None or engine.key.rank != 0 or engine.key not in self.facts.told_to_stop:
            return
        self.checked += 1
        now = self.facts.now()
        for router in self.facts.routers.values():
            if engine.key.replica not in router.endpoints or router.connected_since is None:
                continue
            told, _ = router.withdrawn_at.get(engine.key.replica, (None, 0))
            patience = defaults.WITHDRAWAL_ACK_S
            if told is None and now - router.connected_since > patience + _MOMENT_S:
                yield self.broken(
                    f"{engine.text()} is told to stop while {router.name} was not told to drop it",
                    *_who(engine),
                )
            elif told is not None and now - told < patience - _MOMENT_S:
                yield self.broken(
                    f"{engine.text()} is told to stop {now - told:.3f} s after {router.name} was told to"
                    " drop it, and it has not",
                    *_who(engine),
                )


class NoNeedlessStart(Checker):
    """Nothing is started for a model of which enough serves, also by a server that just began (R9, R10).

    Promised only to nodes that had the time to dial again, and by servers that settle longer than that.
    """

    name = "no_needless_start"

    def spawned(self, engine: EngineFact) -> Iterator[Violation]:
        """Count what serves of its model on nodes that have been well for long."""
        facts, now = self.facts, self.facts.now()
        spec = facts.specs.get(engine.key)
        if spec is None or facts.settling_s < ENOUGH_SETTLING_S or not self._long_fine(engine.node):
            return
        enough = facts.steadily_wanted(spec.model, now - _DIALS_AGAIN_S)
        if enough is None:
            return
        self.checked += 1
        serving = [other for other in facts.engines.values() if self._serves(other, spec.model)]
        if len(serving) >= enough:
            yield self.broken(
                f"{engine.text()} is started while {enough} of {spec.model} are wanted and there is"
                f" {_both(*serving)}",
                *_who(engine, *serving),
            )

    def _serves(self, engine: EngineFact, model: str) -> bool:
        spec = self.facts.specs.get(engine.key)
        known = spec is not None and spec.model == model and self._long_fine(engine.node)
        well = engine.answers() and engine.signalled_at is None
        return known and well and self.facts.routed(engine.key.replica)

    def _long_fine(self, node: str) -> bool:
        since = self.facts.fine_since.get(node)
        return since is not None and self.facts.now() - since >= _DIALS_AGAIN_S


class NoOlderTerm(Checker):
    """No node obeys a term older than one it has seen (H2)."""

    name = "no_older_term"

    def spawned(self, engine: EngineFact) -> Iterator[Violation]:
        """It must have been told to start under the newest term its node knew."""
        self.checked += 1
        if engine.key in self.facts.stale:
            yield self.broken(f"{engine.text()} was started by an older term's command", *_who(engine))


ALL: tuple[type[Checker], ...] = (
    NothingTwice,
    BooksHold,
    OneEngine,
    ReadyFirst,
    WithdrawnFirst,
    NoOlderTerm,
    NoNeedlessStart,
)


def all_checkers(facts: Facts) -> tuple[Checker, ...]:
    """One of each kind, on these facts."""
    return tuple(kind(facts) for kind in ALL)


def _who(*engines: EngineFact) -> Iterable[str]:
    for engine in engines:
        yield engine.key.replica
        yield engine.node


def _both(*engines: EngineFact) -> str:
    return " and ".join(engine.text() for engine in engines)
