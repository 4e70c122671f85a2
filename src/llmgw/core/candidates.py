"""Decides in which order nodes are tried for one shard (P4, P5); it never decides whether one fits.

Laws: weights, spreading and packing only order; the index is made from one view, each part when first
needed, follows the claims of the pass and dies with it (P7); equal nodes are ordered by id (P8).
"""

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from llmgw.core.catalog import Model
from llmgw.core.claims import Held
from llmgw.core.fit import Need, Spot, absent_unfit, fitting_cards, standing_unfit
from llmgw.core.inventory import source_path
from llmgw.core.reason import Unfit

_Order = list[tuple[int, str]]  # how full a node is, and its id: the order of preference among equals


class Candidates:
    """The nodes of one pass, found by what a need asks for."""

    def __init__(self, spots: Mapping[str, Spot]) -> None:
        self.spots = spots
        self._closed: dict[str, Unfit] | None = None
        self._standing: dict[object, tuple[frozenset[str], dict[str, Unfit]]] = {}
        self._orders: dict[str | None, _Order] = {}
        self._holding: dict[str, set[str]] | None = None
        self._of_model: dict[str, Counter[str]] | None = None

    def closed(self) -> Mapping[str, Unfit]:
        """Nodes nothing new may go to, with why."""
        if self._closed is None:
            judged = ((id, absent_unfit(spot.node, spot.presence)) for id, spot in self.spots.items())
            self._closed = {id: code for id, code in judged if code is not None}
        return self._closed

    def eligible(self, need: Need) -> tuple[frozenset[str], Mapping[str, Unfit]]:
        """Open nodes whose engine and labels suit, and the open ones where they do not, with why."""
        key = need.standing()
        if key not in self._standing:
            closed = self.closed()
            suitable: set[str] = set()
            unsuitable: dict[str, Unfit] = {}
            for id, spot in self.spots.items():
                if id in closed:
                    continue
                code = standing_unfit(spot.report(), need)
                if code is None:
                    suitable.add(id)
                else:
                    unsuitable[id] = code
            self._standing[key] = (frozenset(suitable), unsuitable)
        return self._standing[key]

    def preferred(self, model: Model, need: Need) -> Iterator[str]:
        """Eligible nodes, best first; those that plainly have too few cards may be left out.

        CPU: fewest replicas of this model, then weights, then fewest claims. Cards: weights, then fullest.
        """
        suitable = self.eligible(need)[0]
        holders = self._holders(model)
        here: Mapping[str, int] = {} if need.gpu_class is not None else self._replicas_of(model.name)
        ranked = self._ranked(need)
        if len(holders) * 16 < len(ranked):  # few: sorting them beats walking past everybody else
            first = sorted((self._fullness(id, need.gpu_class), id) for id in holders if id in suitable)
        else:
            first = [entry for entry in ranked if entry[1] in holders and entry[1] in suitable]
        yield from self._sparing((id for _, id in first if id not in here), need)
        rest = (id for _, id in ranked if id not in holders and id in suitable and id not in here)
        yield from self._sparing(rest, need)
        yield from sorted(
            (id for id in here if id in suitable),
            key=lambda id: (here[id], id not in holders, self._fullness(id, None), id),
        )

    def take(self, node: str, held: Held) -> None:
        """Put a claim of this pass on a node."""
        before = {name: self._fullness(node, name) for name in self._orders}
        count = self._replicas_of(held.model)  # counted on first use: before this claim is among the rest
        self.spots[node].take(held)
        count[node] += 1
        for name, order in self._orders.items():
            _move(order, node, before[name], self._fullness(node, name))

    def why(self, model: Model, need: Need, node: str) -> str:
        """What spoke for a node, before anything is claimed there."""
        weights = "has the weights" if node in self._holders(model) else "weights not seen there"
        if model.source is None:
            weights = "needs no weights"
        if need.gpu_class is not None:
            free = self._fullness(node, need.gpu_class)
            return f"{weights}; fullest that fits, with {free} free {need.gpu_class}"
        count = self._replicas_of(model.name)[node]
        return f"{weights}; has {count} of this model and {self._fullness(node, None)} claims"

    # ---------------------------------------------------------------- the index

    def _fullness(self, node: str, gpu_class: str | None) -> int:
        """Smaller is preferred: fewest claims on a CPU, fewest free cards of the class (P4)."""
        spot = self.spots[node]
        return len(spot.held) if gpu_class is None else len(spot.left().whole.get(gpu_class, ()))

    def _order(self, gpu_class: str | None) -> _Order:
        """Open nodes by fullness then id; for cards, those that have any of the class."""
        if gpu_class not in self._orders:
            closed = self.closed()
            self._orders[gpu_class] = sorted(
                (self._fullness(id, gpu_class), id)
                for id, spot in self.spots.items()
                if id not in closed and (gpu_class is None or _has_class(spot, gpu_class))
            )
        return self._orders[gpu_class]

    def _holders(self, model: Model) -> set[str]:
        """Nodes that hold the model's weights; one never asked ranks with one that has nothing (P5)."""
        if self._holding is None:
            self._holding = {}
            for id, spot in self.spots.items():
                for file in (spot.node.report.weights if spot.node.report else None) or ():
                    self._holding.setdefault(file.path, set()).add(id)
                    if file.source is not None:
                        self._holding.setdefault(file.source, set()).add(id)
        if model.source is None:
            return set()
        path = source_path(model.source)
        return self._holding.get(model.source, set()) | self._holding.get(path, set())

    def _replicas_of(self, model: str) -> Counter[str]:
        """How many shards of a model each node has."""
        if self._of_model is None:
            self._of_model = {}
            for id, spot in self.spots.items():
                for held in spot.held:
                    self._of_model.setdefault(held.model, Counter())[id] += 1
        return self._of_model.setdefault(model, Counter())

    # ---------------------------------------------------------------- the order

    def _ranked(self, need: Need) -> _Order:
        """Nodes by fullness; those with fewer free cards than whole-card needs ask for are left out."""
        order = self._order(need.gpu_class)
        if need.gpu_class is None or need.gpu_memory_bytes is not None:
            return order
        return order[bisect.bisect_left(order, (need.gpus, "")) :]

    def _sparing(self, nodes: Iterable[str], need: Need) -> Iterator[str]:
        """The same nodes; for a share, first those where it opens no new card: whole ones stay free (P4)."""
        later = []
        for id in nodes:
            if need.gpu_memory_bytes is None or self._opens_no_card(id, need):
                yield id
            else:
                later.append(id)
        yield from later

    def _opens_no_card(self, node: str, need: Need) -> bool:
        whole = self.spots[node].left().whole.get(need.gpu_class, ())
        return not set(fitting_cards(self.spots[node], need)).intersection(whole)


def _move(order: _Order, node: str, before: int, after: int) -> None:
    at = bisect.bisect_left(order, (before, node))
    if before != after and at < len(order) and order[at] == (before, node):
        del order[at]
        bisect.insort(order, (after, node))


def _has_class(spot: Spot, gpu_class: str) -> bool:
    return any(gpu.gpu_class == gpu_class for gpu in spot.report().gpus or ())
