"""Decides which endpoint of a model takes a request: the one with the least in flight for its weight.

Laws: pure; equals are taken in turn, so that no endpoint is favoured by its place in a list; an
endpoint that failed this request is taken again only when there is no other.
"""

from collections.abc import Collection, Sequence
from typing import Protocol, TypeVar


class Load(Protocol):
    """An endpoint as far as choosing must know it."""

    @property
    def id(self) -> str: ...

    @property
    def weight(self) -> float:
        """Its share of the work, above 0; its measured capacity where there is one."""
        ...

    @property
    def in_flight(self) -> int: ...


L = TypeVar("L", bound=Load)


def least_loaded(loads: Sequence[L], avoid: Collection[str], turn: int) -> L | None:
    """The endpoint, not among `avoid`, with the smallest load; of equals the first from place `turn` on.

    `turn` is any count that goes up by one a request.
    """
    best: L | None = None
    best_load = 0.0
    count = len(loads)
    for step in range(count):
        candidate = loads[(turn + step) % count]
        load = candidate.in_flight / candidate.weight
        if (best is None or load < best_load) and candidate.id not in avoid:
            best, best_load = candidate, load
    return best
