"""Decides what each replica holds of a node and what is left (I4).

Laws: a claim is taken whole and released whole; an undeclared requirement claims nothing; nothing is
handed out twice; what is left is computed from the claims when asked, never kept beside them.
"""

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """What one shard holds of its node. Travels with the start command and back in every report."""

    gpus: tuple[int, ...] = ()
    gpu_memory_bytes: int | None = None  # per card; None with cards: the whole card
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    ports: tuple[int, ...] = ()
