"""Decides where one replica runs: which profile, which nodes, which cards and ports (P1, P3-P5, P7, P8).

Laws: pure and deterministic, the same view gives the same decision (P8); a pass hands out nothing twice,
each placement sees those before it (P7); weights, spreading and packing order candidates and never
filter them (P5); every refusal names what was needed, what there was and what to change (P1), and the
full list comes from the same judgement as the decision.
"""

from collections.abc import Mapping, Sequence

import msgspec

from llmgw.core.catalog import Model
from llmgw.core.claims import Claim
from llmgw.core.inventory import Node, Presence
from llmgw.core.reason import Rejection, Unfit


class PortRange(msgspec.Struct, frozen=True):
    """Ports the control plane allocates from, both ends included."""

    first: int
    last: int


class Held(msgspec.Struct, frozen=True):
    """One shard's claim on a node, with whose it is."""

    replica: str
    model: str
    claim: Claim


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
        raise NotImplementedError


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


class PlacementPass:
    """Places many replicas in turn on one view; each placement sees the claims of those before it (P7).

    Lives one pass and is thrown away: the index and the memory of refusals are derived, never kept.
    """

    def __init__(self, view: FleetView) -> None:
        self._view = view

    def place(self, request: PlacementRequest) -> Placement | Unplaceable:
        """Choose, and claim on this pass's overlay."""
        raise NotImplementedError


def place(request: PlacementRequest, view: FleetView) -> Placement | Unplaceable:
    """One replica on its own: `PlacementPass(view).place(request)`."""
    return PlacementPass(view).place(request)


def explain(request: PlacementRequest, view: FleetView) -> Explanation:
    """Every node and profile with its verdict, by the same judgement as `place`."""
    raise NotImplementedError
