"""What people want of a simulated cluster: the models, and how that changes while it runs.

Law: what is wanted at any moment fits on all nodes together however it is spread, so that a healed
cluster has no excuse.
"""

import random
from typing import Final

import msgspec

from llmgw.core.catalog import Catalog, CatalogError, ModelDefinition, ProfileDefinition, ScalingDefinition
from llmgw.core.catalog_build import build_catalog
from llmgw.core.units import GB, write_duration
from llmgw.engines import ENGINE_TRAITS
from llmgw.sim.node import Hardware


class Wish(msgspec.Struct, frozen=True):
    """A model and between how many and how many of it are ever wanted."""

    profile: ProfileDefinition
    least: int
    most: int


# Whole cards and shares together never need more cards than three nodes have (`hardware`).
_WISHES: Final = {
    "chat": Wish(ProfileDefinition("cpu", "sim", min_memory_gb=3), 1, 3),
    "embed": Wish(ProfileDefinition("cpu", "sim", min_memory_gb=2), 0, 2),
    "vision": Wish(ProfileDefinition("card", "sim", gpu_class="sim-24g"), 0, 1),
    "share-a": Wish(ProfileDefinition("part", "sim", gpu_class="sim-24g", gpu_memory_gb=10), 0, 1),
    "share-b": Wish(ProfileDefinition("part", "sim", gpu_class="sim-24g", gpu_memory_gb=14), 0, 1),
}
_CARDS = (2, 1, 0)


def hardware(index: int) -> Hardware:
    """What the node of this number is made of."""
    return Hardware(memory_bytes=16 * GB, cards=_CARDS[index % len(_CARDS)])


class Wishes:
    """The catalog's file, so to speak: read at every start of a server, changed while it runs."""

    def __init__(self, draw: random.Random, startup_timeout_s: float) -> None:
        self._draw = draw
        self._startup_timeout = write_duration(startup_timeout_s)
        self._counts = {name: max(1, wish.least) for name, wish in _WISHES.items()}
        self._counts["chat"] = 2
        self._removed: set[str] = set()
        self._edits = dict.fromkeys(_WISHES, 0)

    def wanted(self) -> dict[str, int]:
        """How many replicas of each model should run."""
        return {name: count for name, count in self._counts.items() if name not in self._removed and count}

    def want(self, **counts: int) -> None:
        """Want exactly these models (`_` for `-` in a name), that many times each."""
        self._counts = dict.fromkeys(_WISHES, 0) | {
            name.replace("_", "-"): count for name, count in counts.items()
        }
        assert self._counts.keys() == _WISHES.keys(), counts

    def rescale(self) -> str:
        """Want another number of some model; what was changed."""
        name = self._draw.choice(sorted(_WISHES))
        wish = _WISHES[name]
        self._counts[name] = self._draw.randint(wish.least, wish.most)
        return f"{name} wanted {self._counts[name]} times"

    def remove_or_return(self) -> str:
        """Take a model out of the catalog, or put one back; what was changed."""
        if self._removed:
            name = self._removed.pop()
            return f"{name} is back"
        name = self._draw.choice(sorted(_WISHES))
        self._removed.add(name)
        return f"{name} removed"

    def edit(self) -> str:
        """Change a profile, so that what runs is stale; what was changed."""
        name = self._draw.choice(sorted(_WISHES))
        self._edits[name] += 1
        return f"{name} edited"

    def catalog(self) -> Catalog:
        """What is wanted now."""
        definitions = [self._definition(name) for name in _WISHES if name not in self._removed]
        built = build_catalog(definitions, {}, ENGINE_TRAITS)
        assert not isinstance(built, CatalogError), built
        return built

    def _definition(self, name: str) -> ModelDefinition:
        count = self._counts[name]
        profile = msgspec.structs.replace(
            _WISHES[name].profile,
            startup_timeout=self._startup_timeout,
            env={"EDITION": str(self._edits[name])},
        )
        return ModelDefinition(
            name=name, scaling=ScalingDefinition(min=count, max=max(1, count)) if count else None,
            profiles=(profile,),
        )  # fmt: skip
