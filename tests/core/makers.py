"""Values the core tests start from: short to write, right by default."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmgw.core.catalog import Catalog, CatalogError, EngineTraits, Model, ModelDefinition
from llmgw.core.catalog_build import build_catalog
from llmgw.core.claims import Claim, Held, PortRange
from llmgw.core.definition import definition_from_mapping
from llmgw.core.inventory import (
    EngineInstall,
    Gpu,
    Mark,
    Node,
    NodeReport,
    OperatorMark,
    Presence,
    WeightFile,
)
from llmgw.core.placement import FleetView
from llmgw.core.units import GB

ENGINES: Mapping[str, EngineTraits] = {
    "vllm": EngineTraits(
        "vllm",
        True,
        True,
        True,
        ("native", "ray"),
        frozenset({"port", "host", "model", "tensor-parallel-size"}),
    ),
    "llama.cpp": EngineTraits("llama.cpp", False, False, False, owned_args=frozenset({"port", "m"})),
    "sim": EngineTraits("sim", False, True, True),
}


def definition(name: str, *profiles: Mapping[str, Any], **fields: Any) -> ModelDefinition:
    """A definition; profiles are named p0, p1 … unless they say otherwise, and need a source."""
    named = [{"name": f"p{index}", **profile} for index, profile in enumerate(profiles)]
    data = {"name": name, "profiles": named, **fields}
    if profiles:
        data.setdefault("source", f"/models/{name}.gguf")
    read = definition_from_mapping(data)
    assert isinstance(read, ModelDefinition), read
    return read


def catalog(*models: ModelDefinition, aliases: Mapping[str, Any] | None = None) -> Catalog:
    built = build_catalog(models, aliases or {}, ENGINES)
    assert isinstance(built, Catalog), built
    return built


def problems(*models: ModelDefinition, aliases: Mapping[str, Any] | None = None) -> list[str]:
    """The lines of a catalog that must not be built."""
    built = build_catalog(models, aliases or {}, ENGINES)
    assert isinstance(built, CatalogError), "it was accepted"
    return built.text().splitlines()


def model(name: str = "m", *profiles: Mapping[str, Any], **fields: Any) -> Model:
    """A resolved model; one CPU profile of the simulated engine unless profiles are given."""
    return catalog(definition(name, *(profiles or ({"engine": "sim"},)), **fields)).models[name]


def gpus(count: int, gpu_class: str = "H100-80GB", **fields: Any) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index, gpu_class=gpu_class, memory_total_bytes=80 * GB, **fields) for index in range(count)
    )


def report(
    id: str, *, memory_gb: float | None = 64, engines: Sequence[str] | None = ("sim", "vllm"), **fields: Any
) -> NodeReport:
    return NodeReport(
        id=id,
        address=f"{id}.example",
        memory_total_bytes=None if memory_gb is None else round(memory_gb * GB),
        engines=None if engines is None else {name: EngineInstall(name) for name in engines},
        **fields,
    )


def node(reported: NodeReport, mark: Mark = Mark.READY, why: str = "") -> Node:
    return Node(reported.id, reported, OperatorMark(mark, why), last_heard=0.0, known_since=0.0)


def view(
    *nodes: Node,
    held: Mapping[str, Sequence[Held]] | None = None,
    presence: Mapping[str, Presence] | None = None,
    ports: PortRange | None = None,
) -> FleetView:
    seen = {each.id: Presence.READY for each in nodes} | dict(presence or {})
    return FleetView(
        {each.id: each for each in nodes}, seen, held or {}, ports or PortRange(20000, 20099), GB
    )


def held(replica: str, claim: Claim | None = None, model: str = "other") -> Held:
    return Held(replica, model, claim or Claim())


def weights(source: str) -> tuple[WeightFile, ...]:
    return (WeightFile(source, 1000),)
