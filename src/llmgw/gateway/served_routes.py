"""Decides which requests are relayed to engines, and what each of them is: the one list of them (G1).

Laws: a route that is not here is not relayed; what a route generates is what its usage counts, on every
route by the same rules.
"""

from enum import Enum

import msgspec


class Counts(Enum):
    """What a request of a route uses."""

    BOTH = "both"  # it reads a prompt and generates
    PROMPT = "prompt"  # it reads only
    NOTHING = "nothing"  # no model runs


class Relayed(msgspec.Struct, frozen=True):
    """One route that is answered by an engine, at the same path there."""

    path: str
    counts: Counts
    param: str  # which parameter holds what the model reads
    capability: str | None = None  # what a model that lists its capabilities must have for it
    streams: bool = False  # `"stream": true` means something
    everywhere: bool = False  # every engine has it: a 404 says that the engine is not what we think


CHAT = Relayed("/v1/chat/completions", Counts.BOTH, "messages", "chat", streams=True, everywhere=True)

RELAYED: tuple[Relayed, ...] = (
    CHAT,
    Relayed("/v1/completions", Counts.BOTH, "prompt", "completions", streams=True, everywhere=True),
    Relayed("/v1/embeddings", Counts.PROMPT, "input", "embeddings"),
    Relayed("/tokenize", Counts.NOTHING, "content"),
    Relayed("/detokenize", Counts.NOTHING, "tokens"),
)
