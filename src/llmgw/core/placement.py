"""Decides where one replica runs: which profile, which nodes, which cards and ports (P1, P3-P5, P7, P8).

Laws: pure and deterministic, the same view gives the same decision (P8); a pass hands out nothing twice,
each placement sees those before it (P7); weights, spreading and packing order candidates and never
filter them (P5); every refusal names what was needed, what there was and what to change (P1), and the
full list comes from the same judgement as the decision.
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from llmgw.core.candidates import Candidates
from llmgw.core.catalog import Model, Profile
from llmgw.core.claims import Claim, Held, PortRange, free_port
from llmgw.core.fit import Need, Spot, fitting_cards, need_of, rejection, room_unfit
from llmgw.core.inventory import Node, Presence
from llmgw.core.reason import Rejection, Unfit

__all__ = [
    "Explanation",
    "FleetView",
    "Held",
    "NodeVerdict",
    "Placement",
    "PlacementPass",
    "PlacementRequest",
    "PortRange",
    "ProfileExplanation",
    "ProfileRefusal",
    "ReasonCount",
    "ShardPlacement",
    "Unplaceable",
    "explain",
    "place",
]


class FleetView(msgspec.Struct, frozen=True):
    """What placement looks at: a snapshot, built by the caller once per pass.

    `presence` may lack a node (counts as unreachable) and `held` may lack one (nothing claimed).
    """

    nodes: Mapping[str, Node]
    presence: Mapping[str, Presence]
    held: Mapping[str, Sequence[Held]]  # by node id
    ports: PortRange
    foreign_memory_bytes: int


class PlacementRequest(msgspec.Struct, frozen=True):
    """One replica that wants a place. `replica` is its id, already drawn."""

    replica: str
    model: Model


class ShardPlacement(msgspec.Struct, frozen=True):
    """One shard's node and everything it claims there; `claim.ports[0]` is where its engine listens."""

    node: str
    rank: int
    claim: Claim


class Placement(msgspec.Struct, frozen=True):
    """Where a replica goes. `why` says in one line what decided between the nodes that fit."""

    replica: str
    model: str
    profile: str
    shards: tuple[ShardPlacement, ...]  # by rank; rank 0 is the leader
    why: str


class ReasonCount(msgspec.Struct, frozen=True):
    """How many nodes refused for one reason, with the first of them (by node id) in words.

    `node` is empty when the whole profile was refused before any node was looked at.
    """

    code: Unfit
    count: int
    node: str
    example: Rejection


class ProfileRefusal(msgspec.Struct, frozen=True):
    """Why a profile fits nowhere: reasons, most frequent first."""

    profile: str
    reasons: tuple[ReasonCount, ...]


class Unplaceable(msgspec.Struct, frozen=True):
    """No profile fits anywhere, with the reasons per profile, highest priority first."""

    model: str
    profiles: tuple[ProfileRefusal, ...]

    def line(self) -> str:
        """One line for a person: each profile with its reasons, both numbers and the remedy."""
        if not self.profiles:
            return f"{self.model} has no profiles: add one"
        return " / ".join(
            f"{profile.profile}: {'; '.join(_reason(reason) for reason in profile.reasons)}"
            for profile in self.profiles
        )


def _reason(reason: ReasonCount) -> str:
    example = reason.example
    others = f" and {reason.count - 1} more" if reason.count > 1 else ""
    where = f"{reason.node}{others}: " if reason.node else ""
    remedy = f" ({example.remedy})" if example.remedy else ""
    return f"{where}needs {example.needed}, has {example.had}{remedy}"


class NodeVerdict(msgspec.Struct, frozen=True):
    """One node for one profile: `None` as rejection means it fits."""

    node: str
    rejection: Rejection | None
    chosen: bool = False


class ProfileExplanation(msgspec.Struct, frozen=True):
    """Every node considered for a profile, in the order of preference; those refused last, by node id.

    `rejection` is set when the profile as a whole cannot be placed and no node was considered.
    """

    profile: str
    rejection: Rejection | None
    nodes: tuple[NodeVerdict, ...]


class Explanation(msgspec.Struct, frozen=True):
    """The full answer to "where would one more replica of this model go, and why not elsewhere?" (P10)."""

    model: str
    profiles: tuple[ProfileExplanation, ...]
    outcome: Placement | Unplaceable


# ---------------------------------------------------------------- one pass


class PlacementPass:
    """Places many replicas in turn on one view; each placement sees the claims of those before it (P7).

    Lives one pass and is thrown away: the index and the memory of refusals are derived, never kept.
    A need refused once stays refused for the pass, because a pass only ever adds claims.
    """

    def __init__(self, view: FleetView) -> None:
        self._ports = view.ports
        self._candidates = Candidates(
            {
                id: Spot(
                    node,
                    view.presence.get(id, Presence.UNREACHABLE),
                    view.held.get(id, ()),
                    view.foreign_memory_bytes,
                )
                for id, node in view.nodes.items()
            }
        )
        self._refused: dict[Need, tuple[ReasonCount, ...]] = {}

    def place(self, request: PlacementRequest) -> Placement | Unplaceable:
        """Choose, and claim on this pass's overlay."""
        refusals = []
        for profile in request.model.profiles:
            shape = _shape_rejection(profile)
            if shape is not None:
                refusals.append(ProfileRefusal(profile.name, (ReasonCount(shape.code, 1, "", shape),)))
                continue
            need = need_of(profile)
            if need not in self._refused:
                node = next(self._fitting(request.model, need), None)
                if node is not None:
                    return self._take(request, profile, need, node)
                self._refused[need] = self._count_refusals(need)
            refusals.append(ProfileRefusal(profile.name, self._refused[need]))
        return Unplaceable(request.model.name, tuple(refusals))

    def verdicts(self, request: PlacementRequest) -> tuple[ProfileExplanation, ...]:
        """Every node for every profile, by the judgement `place` uses, on the overlay as it is now."""
        explained = []
        for profile in request.model.profiles:
            shape = _shape_rejection(profile)
            if shape is not None:
                explained.append(ProfileExplanation(profile.name, shape, ()))
                continue
            need = need_of(profile)
            fits = [NodeVerdict(node, None) for node in self._fitting(request.model, need)]
            refused = [
                NodeVerdict(node, self._rejection(node, need, code))
                for node, code in sorted(self._refusals(need), key=lambda pair: pair[0])
            ]
            explained.append(ProfileExplanation(profile.name, None, (*fits, *refused)))
        return tuple(explained)

    def _unfit(self, node: str, need: Need) -> Unfit | None:
        return room_unfit(self._candidates.spots[node], need, self._ports)

    def _rejection(self, node: str, need: Need, code: Unfit) -> Rejection:
        return rejection(self._candidates.spots[node], need, self._ports, code)

    def _fitting(self, model: Model, need: Need) -> Iterator[str]:
        """Nodes that fit, best first (P5)."""
        preferred = self._candidates.preferred(model, need)
        return (node for node in preferred if self._unfit(node, need) is None)

    def _refusals(self, need: Need) -> Iterator[tuple[str, Unfit]]:
        suitable, unsuitable = self._candidates.eligible(need)
        yield from self._candidates.closed().items()
        yield from unsuitable.items()
        for node in suitable:
            code = self._unfit(node, need)
            if code is not None:
                yield node, code

    def _count_refusals(self, need: Need) -> tuple[ReasonCount, ...]:
        counts: Counter[Unfit] = Counter()
        first: dict[Unfit, str] = {}
        for node, code in self._refusals(need):
            counts[code] += 1
            first[code] = min(node, first.get(code, node))
        if not counts:
            nothing = Rejection(Unfit.NO_NODES, "a node", "none", "start llmgw agent on a machine")
            return (ReasonCount(Unfit.NO_NODES, 0, "", nothing),)
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].value))
        return tuple(
            ReasonCount(code, count, first[code], self._rejection(first[code], need, code))
            for code, count in ranked
        )

    def _take(self, request: PlacementRequest, profile: Profile, need: Need, node: str) -> Placement:
        spot = self._candidates.spots[node]
        start = zlib.crc32(request.replica.encode())  # a port just released is not the next one handed out
        port = free_port(self._ports, spot.left().ports, start)
        assert port is not None, "room_unfit saw a free port"
        claim = Claim(
            gpus=fitting_cards(spot, need),
            gpu_memory_bytes=profile.gpu_memory_bytes,
            memory_bytes=profile.memory_bytes,
            disk_bytes=profile.disk_bytes,
            ports=(port,),
        )
        why = self._candidates.why(request.model, need, node)
        self._candidates.take(node, Held(request.replica, request.model.name, claim))
        shard = ShardPlacement(node, 0, claim)
        return Placement(request.replica, request.model.name, profile.name, (shard,), why)


def _shape_rejection(profile: Profile) -> Rejection | None:
    if profile.nodes == 1:
        return None
    return Rejection(
        Unfit.UNSUPPORTED_SHAPE,
        f"{profile.nodes} nodes",
        "1 node, more are not supported by this version",
        "use a profile with nodes: 1",
    )


# ---------------------------------------------------------------- one replica on its own


def place(request: PlacementRequest, view: FleetView) -> Placement | Unplaceable:
    """One replica on its own: `PlacementPass(view).place(request)`."""
    return PlacementPass(view).place(request)


def explain(request: PlacementRequest, view: FleetView) -> Explanation:
    """Every node and profile with its verdict, by the same judgement as `place`."""
    looked = PlacementPass(view)
    profiles = looked.verdicts(request)
    outcome = looked.place(request)
    if isinstance(outcome, Placement):
        profiles = tuple(_mark_chosen(profile, outcome) for profile in profiles)
    return Explanation(request.model.name, profiles, outcome)


def _mark_chosen(profile: ProfileExplanation, placement: Placement) -> ProfileExplanation:
    if profile.profile != placement.profile:
        return profile
    chosen = {shard.node for shard in placement.shards}
    nodes = tuple(
        NodeVerdict(verdict.node, verdict.rejection, verdict.node in chosen) for verdict in profile.nodes
    )
    return ProfileExplanation(profile.profile, profile.rejection, nodes)
