"""Decides whether one node can take one shard, and says why not in words (P1, P2, P3).

Laws: one judgement for deciding and for explaining; what a node never reported excludes nothing, except
that cards nobody reported cannot be claimed; a refusal names what was needed, what there was and what to
change.
"""

from collections.abc import Sequence

import msgspec

from llmgw.core.catalog import Profile
from llmgw.core.claims import Card, CardUse, Held, Left, PortRange, cards_on, left_on
from llmgw.core.inventory import Mark, Node, NodeReport, Presence, has_engine, lacks_labels
from llmgw.core.reason import Rejection, Unfit
from llmgw.core.units import format_bytes


class Need(msgspec.Struct, frozen=True):
    """What one shard of a profile asks of a node; equal needs are refused alike, so it is a memo key."""

    engine: str
    install: str | None
    selector: tuple[tuple[str, str], ...]
    gpu_class: str | None
    gpus: int
    gpu_memory_bytes: int | None
    memory_bytes: int | None

    def standing(self) -> tuple[str, str | None, tuple[tuple[str, str], ...]]:
        """The part no claim changes: what `standing_unfit` judges."""
        return (self.engine, self.install, self.selector)


def need_of(profile: Profile) -> Need:
    """What one shard of this profile asks for."""
    return Need(
        profile.engine,
        profile.install,
        profile.node_selector,
        profile.gpu_class,
        profile.gpus_per_node,
        profile.gpu_memory_bytes,
        profile.memory_bytes,
    )


class Spot:
    """One node during one pass: what it reported and the claims on it, those of this pass included."""

    def __init__(
        self, node: Node, presence: Presence, held: Sequence[Held], foreign_memory_bytes: int
    ) -> None:
        self.node = node
        self.presence = presence
        self.held = held
        self._foreign_memory_bytes = foreign_memory_bytes
        self._left: Left | None = None

    def report(self) -> NodeReport:
        """What the node said; one that said nothing is refused before anybody asks."""
        assert self.node.report is not None
        return self.node.report

    def left(self) -> Left:
        """What is left, counted when first asked."""
        if self._left is None:
            claims = [held.claim for held in self.held]
            self._left = left_on(self.report(), claims, self._foreign_memory_bytes)
        return self._left

    def cards(self) -> tuple[Card, ...]:
        """Every card with its use."""
        return cards_on(self.report(), [held.claim for held in self.held], self._foreign_memory_bytes)

    def take(self, held: Held) -> None:
        """Add a claim of this pass."""
        self._left = self.left().less(held.claim)
        self.held = [*self.held, held]


def absent_unfit(node: Node, presence: Presence) -> Unfit | None:
    """Why nothing new may go to a node at all: it is not heard, or the operator said so (P3, I5)."""
    if presence is Presence.LOST:
        return Unfit.NODE_LOST
    if presence is Presence.UNREACHABLE or node.report is None:
        return Unfit.NODE_UNREACHABLE
    if node.mark.mark is Mark.CORDONED:
        return Unfit.NODE_CORDONED
    if node.mark.mark is Mark.DRAINING:
        return Unfit.NODE_DRAINING
    return None


def standing_unfit(report: NodeReport, need: Need) -> Unfit | None:
    """Why a node cannot take it whatever is claimed: engine, labels (P3)."""
    if has_engine(report, need.engine, need.install) is False:
        return Unfit.ENGINE_MISSING
    if lacks_labels(report, need.selector):
        return Unfit.LABELS
    return None


def room_unfit(spot: Spot, need: Need, ports: PortRange) -> Unfit | None:
    """Why what is left on a node is not enough: cards, memory, ports (P3)."""
    if need.gpus and not fitting_cards(spot, need):
        return _cards_unfit(spot, need)
    free = spot.left().memory_free_bytes()
    if need.memory_bytes is not None and free is not None and free < need.memory_bytes:
        return Unfit.MEMORY
    taken = spot.left().ports
    size = ports.last - ports.first + 1
    if len(taken) >= size and all(port in taken for port in range(ports.first, ports.last + 1)):
        return Unfit.PORTS
    return None


def fitting_cards(spot: Spot, need: Need) -> tuple[int, ...]:
    """The cards a shard would get, of its class only (P2); empty when there are not enough."""
    if need.gpu_memory_bytes is None:
        whole = spot.left().whole.get(need.gpu_class, ())
        return whole[: need.gpus] if len(whole) >= need.gpus else ()
    shares = [card for card in spot.cards() if _shareable(card, need)]
    if len(shares) < need.gpus:
        return ()
    fullest = sorted(shares, key=lambda card: (not card.claimed, card.free_bytes or 0, card.index))
    return tuple(sorted(card.index for card in fullest[: need.gpus]))


def _shareable(card: Card, need: Need) -> bool:
    if card.gpu_class != need.gpu_class or (card.free_bytes is None and card.use is CardUse.UNHEALTHY):
        return False
    return card.free_bytes is None or card.free_bytes >= (need.gpu_memory_bytes or 0)


def _cards_unfit(spot: Spot, need: Need) -> Unfit:
    of_class = [gpu for gpu in spot.report().gpus or () if gpu.gpu_class == need.gpu_class]
    if not of_class:
        return Unfit.GPU_CLASS
    if need.gpu_memory_bytes is not None and len(of_class) >= need.gpus:
        return Unfit.GPU_MEMORY
    return Unfit.GPU_COUNT


# ---------------------------------------------------------------- in words


def rejection(spot: Spot, need: Need, ports: PortRange, code: Unfit) -> Rejection:
    """The words for a refusal `absent_unfit`, `standing_unfit` or `room_unfit` gave."""
    node = spot.node
    match code:
        case Unfit.NODE_LOST | Unfit.NODE_UNREACHABLE:
            words = "is lost" if code is Unfit.NODE_LOST else "is not heard"
            return Rejection(
                code, "a node that is heard", f"one that {words}", f"start the agent on {node.id}"
            )
        case Unfit.NODE_CORDONED | Unfit.NODE_DRAINING:
            because = f" ({node.mark.reason})" if node.mark.reason else ""
            remedy = f"llmgw ctl uncordon {node.id}"
            return Rejection(
                code, "a node open to work", f"one that is {node.mark.mark.value}{because}", remedy
            )
        case Unfit.ENGINE_MISSING:
            return _engine_words(spot.report(), need)
        case Unfit.LABELS:
            return _label_words(spot.report(), need)
        case Unfit.GPU_CLASS | Unfit.GPU_COUNT | Unfit.GPU_MEMORY:
            return _card_words(spot, need, code)
        case Unfit.MEMORY:
            return _memory_words(spot, need)
        case Unfit.PORTS:
            had = f"none of {ports.first}-{ports.last}"
            return Rejection(code, "1 free port", had, "widen control.ports")
        case _:
            raise AssertionError(f"{code} is not about a node")


def _engine_words(report: NodeReport, need: Need) -> Rejection:
    wanted = need.engine if need.install is None else f"{need.engine} as {need.install}"
    there = ", ".join(sorted(report.engines or {})) or "no engine"
    return Rejection(Unfit.ENGINE_MISSING, wanted, there, f"install {need.engine} on {report.id}")


def _label_words(report: NodeReport, need: Need) -> Rejection:
    lacking = lacks_labels(report, need.selector)
    needed = ", ".join(f"{name}={value}" for name, value in lacking)
    had = ", ".join(
        f"{name}={report.labels[name]}" if name in report.labels else f"no {name}" for name, _ in lacking
    )
    remedy = f"change labels on {report.id} or the profile's node_selector"
    return Rejection(Unfit.LABELS, f"label {needed}", had, remedy)


def _card_words(spot: Spot, need: Need, code: Unfit) -> Rejection:
    share = "" if need.gpu_memory_bytes is None else f" with {format_bytes(need.gpu_memory_bytes)} each"
    needed = f"{_cards(need.gpus)} {need.gpu_class}{share}"
    if spot.report().gpus is None:
        return Rejection(code, needed, "cards it did not report", f"llmgw agent --describe on {spot.node.id}")
    cards = spot.cards()
    mine = [card for card in cards if card.gpu_class == need.gpu_class]
    if not mine:
        classes = sorted({card.gpu_class or "unknown class" for card in cards})
        return Rejection(code, needed, ", ".join(classes) or "no cards", "use a profile for the cards it has")
    free = [card for card in mine if card.use is CardUse.FREE]
    used = sum(card.use is CardUse.USED for card in mine)
    parts = [f"{used} used"] if used else []
    parts += [f"card {card.index}: {card.why}" for card in mine if card.use is CardUse.UNHEALTHY]
    if code is Unfit.GPU_MEMORY:
        most = [format_bytes(card.free_bytes) for card in mine if card.free_bytes]
        parts.append(f"free per card {', '.join(most) or 'nothing'}")
    had = f"{len(free)} free of {len(mine)}" + (f" ({'; '.join(parts)})" if parts else "")
    return Rejection(code, needed, had, _release([held for held in spot.held if held.claim.gpus], "cards"))


def _memory_words(spot: Spot, need: Need) -> Rejection:
    left = spot.left()
    total, claimed = format_bytes(left.memory_total_bytes), format_bytes(left.memory_claimed_bytes)
    had = f"{total}, {claimed} claimed" if left.memory_claimed_bytes else total
    holders = [held for held in spot.held if held.claim.memory_bytes]
    return Rejection(
        Unfit.MEMORY, f"{format_bytes(need.memory_bytes)} memory", had, _release(holders, "memory")
    )


def _release(holders: Sequence[Held], what: str) -> str:
    """Who could make room: the replica that claims most, by name."""
    if not holders:
        return f"add {what}, or lower what the profile asks for"
    by_cards = what == "cards"
    largest = max(
        holders,
        key=lambda held: (len(held.claim.gpus) if by_cards else held.claim.memory_bytes or 0, held.replica),
    )
    return f"stop {largest.replica}, add {what}, or lower what the profile asks for"


def _cards(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"
