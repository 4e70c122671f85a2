"""Decides what a valid set of models is and what each one means once resolved (C1-C6, C15).

Laws: an invalid catalog cannot be constructed; a catalog is immutable, and changing it swaps which one
is current; the *definition* (what people write, and what is stored) and the *resolved* model are two
types, because they change for different reasons.
"""

import difflib
import random
from collections.abc import Mapping
from enum import Enum

import msgspec

from llmgw.core.shape import Duration, Problem

CAPABILITIES = (
    "chat",
    "completions",
    "embeddings",
    "rerank",
    "tools",
    "vision",
    "audio",
    "reasoning",
    "json_schema",
)
FALLBACK_CASES = ("unavailable", "context")
RESCUE = ("off", "on")

ArgValue = str | int | float | bool | None | list[str | int | float]


# ---------------------------------------------------------------- definitions: what people write


class SecretRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A secret named, not written: resolved where it is used, never stored or printed (C16)."""

    from_env: str | None = None
    from_file: str | None = None


class TargetDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What load `scaling` follows; absent means a fixed count."""

    waiting: float | None = None
    concurrency: float | None = None


class ScalingDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How many replicas (C3); durations as text."""

    min: int = 0
    max: int | None = None
    idle_timeout: Duration | None = None
    target: TargetDefinition | None = None
    up_after: Duration | None = None
    down_after: Duration | None = None


class PricesDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Cost per million tokens, in the installation's currency."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None


class TimeoutsDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Per-model overrides of the router's timeouts; durations as text."""

    connect: Duration | None = None
    first_byte: Duration | None = None
    idle: Duration | None = None
    total: Duration | None = None


class FallbackDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fallback with the cases it is for (`unavailable`, `context`)."""

    model: str
    on: tuple[str, ...] = ("unavailable",)


class ProfileDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One way to run a model (engine, hardware, shape)."""

    name: str
    engine: str
    priority: int = 0
    gpu_class: str | None = None
    nodes: int = 1
    gpus_per_node: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    launch_mode: str | None = None
    rdma: bool = False
    gpu_memory_gb: float | None = None
    min_memory_gb: float | None = None
    disk_gb: float | None = None
    node_selector: dict[str, str] = {}
    args: dict[str, ArgValue] = {}
    env: dict[str, str | SecretRef] = {}
    startup_timeout: Duration | None = None
    fetch_timeout: Duration | None = None
    stall_timeout: Duration | None = None
    install: str | None = None
    container: str | None = None


class ModelDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry of `models:`; the same shape in YAML, the admin API and the store."""

    name: str
    source: str | None = None
    description: str | None = None
    context_length: int | None = None
    capabilities: tuple[str, ...] | None = None
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str | FallbackDefinition, ...] = ()
    rescue: str | None = None
    scaling: ScalingDefinition | None = None
    pin: bool = False
    priority: int = 0
    prices: PricesDefinition | None = None
    timeouts: TimeoutsDefinition | None = None
    profiles: tuple[ProfileDefinition, ...] = ()


# ---------------------------------------------------------------- resolved: what the system uses


class EngineTraits(msgspec.Struct, frozen=True):
    """What validation must know of an engine; each adapter in `engines` publishes its own."""

    name: str
    needs_gpu: bool
    multi_node: bool
    tensor_parallel: bool
    launch_modes: tuple[str, ...] = ("native",)
    owned_args: frozenset[str] = frozenset()  # arguments the adapter writes itself (E7)


class Mode(Enum):
    """What a model's scaling says of placement (C3)."""

    OFF = "off"
    ON_DEMAND = "on-demand"
    ALWAYS = "always"


class Profile(msgspec.Struct, frozen=True):
    """A validated profile. Sizes in bytes, durations in seconds; `None` claims nothing."""

    name: str
    priority: int
    engine: str
    gpu_class: str | None  # None: runs on the CPU
    nodes: int
    gpus_per_node: int
    tensor_parallel: int
    pipeline_parallel: int
    launch_mode: str
    rdma: bool
    gpu_memory_bytes: int | None  # per card; None takes the whole card
    memory_bytes: int | None
    disk_bytes: int | None
    node_selector: tuple[tuple[str, str], ...]
    args: Mapping[str, ArgValue]
    env: Mapping[str, str | SecretRef]
    startup_timeout_s: float
    fetch_timeout_s: float | None
    stall_timeout_s: float
    install: str | None
    container: str | None
    fingerprint: str  # hash of all that changes what runs (C6)


class Fallback(msgspec.Struct, frozen=True):
    """A model to try instead, and the cases it is for (C2)."""

    model: str
    on: tuple[str, ...]


class Model(msgspec.Struct, frozen=True):
    """A resolved model."""

    name: str
    slug: str
    source: str | None
    description: str | None
    context_length: int | None
    capabilities: tuple[str, ...] | None
    mode: Mode
    min_replicas: int
    max_replicas: int
    idle_timeout_s: float
    simulated: bool  # every profile's engine is `sim` (C4)
    profiles: tuple[Profile, ...]  # highest priority first
    definition: ModelDefinition
    aliases: tuple[str, ...] = ()  # every alias that may draw this model, sorted
    fallbacks: tuple[Fallback, ...] = ()
    priority: int = 0
    timeouts: Mapping[str, float] = {}  # seconds, by the names of `TimeoutsDefinition`; only those written


class Catalog(msgspec.Struct, frozen=True):
    """A validated set of models; build it with `core.catalog_build.build_catalog`."""

    models: Mapping[str, Model]
    aliases: Mapping[str, tuple[tuple[str, float], ...]]  # alias -> (model, weight), weights sum to 1

    def resolve(self, name: str, draw: random.Random) -> Model | None:
        """The model a name or alias stands for; only a weighted alias uses `draw` (C2)."""
        model = self.models.get(name)
        if model is not None:
            return model
        targets = self.aliases.get(name)
        if targets is None:
            return None
        if len(targets) == 1:
            return self.models[targets[0][0]]
        names = [target for target, _ in targets]
        return self.models[draw.choices(names, [weight for _, weight in targets])[0]]

    def near_names(self, name: str, limit: int = 3) -> tuple[str, ...]:
        """Model and alias names that look like `name`, closest first (for a 404)."""
        known = {known.lower(): known for known in sorted((*self.models, *self.aliases))}
        return tuple(known[close] for close in difflib.get_close_matches(name.lower(), known, limit, 0.5))


# ---------------------------------------------------------------- what is wrong with one


class CatalogError(msgspec.Struct, frozen=True):
    """Why a catalog was not built: every problem found."""

    problems: tuple[Problem, ...]

    def text(self) -> str:
        """One line per problem."""
        return "\n".join(problem.line() for problem in self.problems)
