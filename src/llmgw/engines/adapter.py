"""Decides what every engine adapter must answer: where it is found, how it is started, how it is read.

Laws: an adapter is pure (it is told what was found, and returns argument lists, never shell strings);
it never runs an engine to learn of it; adding an engine is one file and one line of the registry.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from llmgw.core.catalog import ArgValue, EngineTraits
from llmgw.core.inventory import EngineInstall
from llmgw.core.reason import Explained
from llmgw.core.weights import Weights


class Locate(msgspec.Struct, frozen=True):
    """Where an engine may be, in order of preference; nothing named here is ever run to look (A3)."""

    binaries: tuple[str, ...] = ()  # names on PATH
    archives: tuple[str, ...] = ()  # glob patterns of where release archives are usually unpacked
    modules: tuple[str, ...] = ()  # Python modules of the interpreter it would run in
    built_in: bool = False  # comes with llmgw itself


class Launch(msgspec.Struct, frozen=True):
    """All an adapter needs to start one shard on a node where everything was looked up already."""

    model: str  # served name = catalog name (E8)
    install: EngineInstall
    python: str  # the interpreter llmgw itself runs in
    address: str
    port: int
    model_path: str | None = None  # local file or directory
    rank: int = 0
    shard_count: int = 1
    engine_key: str = ""
    context_length: int | None = None
    gpus: tuple[int, ...] = ()
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    args: Mapping[str, ArgValue] = {}
    env: Mapping[str, str] = {}  # the profile's, secrets resolved


class Command(msgspec.Struct, frozen=True):
    """One process of a shard. `env` is laid over the node's; a secret is only ever here, never in `argv`."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}


class MetricNames(msgspec.Struct, frozen=True):
    """What an engine calls its numbers on `/metrics` (E5). "" = it has no such number.

    A mapping that names its own `running` is complete; the empty mapping means vLLM's names.
    """

    running: str = ""
    waiting: str = ""
    kv_usage: str = ""
    generated_tokens: str = ""
    prompt_tokens: str = ""


VLLM_METRICS = MetricNames(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
    generated_tokens="vllm:generation_tokens_total",
    prompt_tokens="vllm:prompt_tokens_total",
)


class Exit(msgspec.Struct, frozen=True):
    """How an engine ended. `status` is `None` when it is not ours to know, negative for a signal."""

    status: int | None
    log_tail: tuple[str, ...]


class EngineAdapter(Protocol):
    """One engine."""

    @property
    def traits(self) -> EngineTraits:
        """What catalog validation must know."""
        ...

    @property
    def locate(self) -> Locate: ...

    @property
    def metrics(self) -> MetricNames: ...

    @property
    def health_path(self) -> str:
        """Answers 200 without a key once the engine can serve."""
        ...

    @property
    def weights(self) -> Weights:
        """What its source must be."""
        ...

    def serves_http(self, rank: int) -> bool:
        """Whether this rank answers `health_path`; another is judged by staying alive (A13)."""
        ...

    def refuse(self, launch: Launch) -> Explained | None:
        """Why this shard cannot be started as asked, if so; said before anything runs (A16)."""
        ...

    def commands(self, launch: Launch) -> tuple[Command, ...]:
        """The shard's processes in order: sidecars first, the last one's exit is the shard's (A12)."""
        ...

    def explain_exit(self, exit: Exit) -> Explained:
        """The reason an engine ended unasked, recognised from its last lines where possible."""
        ...
