"""Engine adapters and their registry: one file an engine, and one line here."""

from collections.abc import Mapping
from types import MappingProxyType

from llmgw.core.catalog import EngineTraits
from llmgw.engines.adapter import EngineAdapter
from llmgw.engines.llamacpp import LlamaCpp
from llmgw.engines.sim import Sim


def _registry(*adapters: EngineAdapter) -> Mapping[str, EngineAdapter]:
    return MappingProxyType({adapter.traits.name: adapter for adapter in adapters})


ADAPTERS: Mapping[str, EngineAdapter] = _registry(LlamaCpp(), Sim())
ENGINE_TRAITS: Mapping[str, EngineTraits] = MappingProxyType(
    {name: adapter.traits for name, adapter in ADAPTERS.items()}
)
