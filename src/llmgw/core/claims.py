"""Decides what each replica holds of a node and what is left (I3, I4).

Laws: a claim is taken whole and released whole; an undeclared requirement claims nothing; nothing is
handed out twice; what is left is computed from the claims when asked, never kept beside them; host
memory counts by declared figures only, card memory by the smaller of claims and what the card says.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from llmgw.core.inventory import Gpu, NodeReport
from llmgw.core.units import GB, format_bytes

# A driver and its firmware hold several hundred MB of an idle card; below this a card counts as empty.
_IDLE_CARD_BYTES = GB


class Claim(msgspec.Struct, frozen=True):
    """What one shard holds of its node. Travels with the start command and back in every report."""

    gpus: tuple[int, ...] = ()
    gpu_memory_bytes: int | None = None  # per card; None with cards: the whole card
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    ports: tuple[int, ...] = ()


class Held(msgspec.Struct, frozen=True):
    """One shard's claim on a node, with whose it is."""

    replica: str
    model: str
    claim: Claim


class PortRange(msgspec.Struct, frozen=True):
    """Ports the control plane allocates from, both ends included."""

    first: int
    last: int


class CardUse(Enum):
    """How one card counts. `UNHEALTHY` is neither used nor free (I3)."""

    FREE = "free"
    USED = "used"
    UNHEALTHY = "unhealthy"


class Card(msgspec.Struct, frozen=True):
    """One card with what is left of it. `why` says what keeps it from being free besides our claims."""

    index: int
    gpu_class: str | None
    use: CardUse
    claimed: bool
    free_bytes: int | None  # for sharing; None: unknown, and nothing of ours is on it
    why: str | None


class Left(msgspec.Struct, frozen=True):
    """What is left on one node; `less` takes one more claim from it.

    `whole` has the indices of cards a whole-card claim may take, by class, lowest first.
    """

    memory_total_bytes: int | None
    memory_claimed_bytes: int
    whole: Mapping[str | None, tuple[int, ...]]
    ports: frozenset[int]  # taken: claimed, or bound by something

    def memory_free_bytes(self) -> int | None:
        """Total minus claimed; `None` when the node did not report its memory. May be negative."""
        if self.memory_total_bytes is None:
            return None
        return self.memory_total_bytes - self.memory_claimed_bytes

    def less(self, claim: Claim) -> "Left":
        """The same as counting again with `claim` among the claims."""
        taken = set(claim.gpus)
        whole = self.whole
        if taken:
            kept = {name: tuple(card for card in cards if card not in taken) for name, cards in whole.items()}
            whole = {name: cards for name, cards in kept.items() if cards}
        return Left(
            self.memory_total_bytes,
            self.memory_claimed_bytes + (claim.memory_bytes or 0),
            whole,
            self.ports.union(claim.ports),
        )


def left_on(report: NodeReport, claims: Iterable[Claim], foreign_memory_bytes: int) -> Left:
    """What is left on a node. Strangers' use of a card below `foreign_memory_bytes` is only subtracted."""
    memory = 0
    taken: set[int] = set()
    ports: set[int] = set(report.ports_in_use or ())
    for claim in claims:
        memory += claim.memory_bytes or 0
        taken.update(claim.gpus)
        ports.update(claim.ports)
    whole: dict[str | None, list[int]] = {}
    for gpu in report.gpus or ():
        if gpu.index not in taken and _trouble(gpu, False, foreign_memory_bytes) is None:
            whole.setdefault(gpu.gpu_class, []).append(gpu.index)
    return Left(
        report.memory_total_bytes,
        memory,
        {name: tuple(sorted(set(cards))) for name, cards in whole.items()},
        frozenset(ports),
    )


def cards_on(report: NodeReport, claims: Sequence[Claim], foreign_memory_bytes: int) -> tuple[Card, ...]:
    """Every reported card with how it counts and what a share could still take of it, by index."""
    return tuple(
        _card(gpu, [claim for claim in claims if gpu.index in claim.gpus], foreign_memory_bytes)
        for gpu in sorted(report.gpus or (), key=lambda gpu: gpu.index)
    )


def _card(gpu: Gpu, claims: Sequence[Claim], foreign_memory_bytes: int) -> Card:
    fault = _fault(gpu, bool(claims), foreign_memory_bytes)
    why = _trouble(gpu, bool(claims), foreign_memory_bytes)
    unclaimed = CardUse.FREE if why is None else CardUse.UNHEALTHY
    use = CardUse.USED if claims else unclaimed
    free = 0 if fault is not None else _free_bytes(gpu, claims)
    return Card(gpu.index, gpu.gpu_class, use, bool(claims), free, why)


def _free_bytes(gpu: Gpu, claims: Sequence[Claim]) -> int | None:
    """The smaller of claims and live reading (I4); whole-card claims leave nothing."""
    shares = [claim.gpu_memory_bytes for claim in claims]
    total = gpu.memory_total_bytes
    if None in shares or (shares and total is None):
        return 0
    if total is None:
        return None
    strangers = sum(process.memory_bytes or 0 for process in gpu.foreign or ())
    ledger = total - sum(share or 0 for share in shares) - strangers
    live = ledger if gpu.memory_used_bytes is None else total - gpu.memory_used_bytes
    return max(0, min(ledger, live))


def _trouble(gpu: Gpu, claimed: bool, foreign_memory_bytes: int) -> str | None:
    """Why a card cannot be taken whole although no claim of ours is on it."""
    fault = _fault(gpu, claimed, foreign_memory_bytes)
    if fault is not None or claimed or gpu.memory_used_bytes is None:
        return fault
    # An engine that was stopped may still be giving memory back, or its process could not be told.
    if gpu.memory_used_bytes >= max(foreign_memory_bytes, _IDLE_CARD_BYTES):
        return f"{format_bytes(gpu.memory_used_bytes)} in use by an unknown process"
    return None


def _fault(gpu: Gpu, claimed: bool, foreign_memory_bytes: int) -> str | None:
    """What makes a card neither used nor free (I3)."""
    if gpu.ecc_uncorrected:
        return f"{gpu.ecc_uncorrected} uncorrectable memory errors"
    if not gpu.foreign:
        return None
    sizes = [process.memory_bytes for process in gpu.foreign]
    known = sum(size or 0 for size in sizes)
    # A process that does not say how much it uses cannot use more than the whole card has in use.
    bound = (None if claimed else gpu.memory_used_bytes) if None in sizes else known
    if bound is not None and bound < foreign_memory_bytes:
        return None
    largest = max(gpu.foreign, key=lambda process: process.memory_bytes or 0)
    name = f" ({largest.name})" if largest.name else ""
    return f"process {largest.pid}{name} of someone else uses {format_bytes(bound)}"


def free_port(ports: PortRange, taken: frozenset[int], start: int) -> int | None:
    """The first free port at or after `first + start`, wrapping around; `None` when all are taken."""
    size = ports.last - ports.first + 1
    for step in range(size):
        port = ports.first + (start + step) % size
        if port not in taken:
            return port
    return None
