"""Decides whether two profiles run the same thing: a hash of all that changes what runs (C6).

Laws: computed over a canonical form that leaves out every field at its default, so that a version which
adds a field makes nothing stale; names, priority, selector, description, scaling, timeouts and what is
only claimed are not in it; a hash once given never changes (a test holds stored ones).
"""

import hashlib
from collections.abc import Mapping

import msgspec

from llmgw.core.catalog import ModelDefinition, ProfileDefinition, SecretRef

_HEX = 16  # 64 bits: profiles are compared one with one, never searched


def is_cpu(profile: ProfileDefinition) -> bool:
    """Whether it runs without cards: no class written, or `cpu` (C1)."""
    return profile.gpu_class is None or profile.gpu_class.lower() == "cpu"


def usual_gpus_per_node(profile: ProfileDefinition) -> int:
    """What leaving `gpus_per_node` out means: none on a CPU, else the even share of the parallel sizes."""
    if is_cpu(profile):
        return 0
    return max(1, profile.tensor_parallel * profile.pipeline_parallel // max(1, profile.nodes))


def fingerprint(model: ModelDefinition, profile: ProfileDefinition) -> str:
    """16 hex digits; equal for two profiles exactly when they run the same."""
    usual = usual_gpus_per_node(profile)
    gpus = usual if profile.gpus_per_node is None else profile.gpus_per_node
    launch_mode = profile.launch_mode or "native"
    fields: dict[str, tuple[object, object]] = {  # name: (value, default)
        "source": (model.source, None),
        "context_length": (model.context_length, None),
        "engine": (profile.engine, None),
        "install": (profile.install, None),
        "container": (profile.container, None),
        "gpu_class": (None if is_cpu(profile) else profile.gpu_class, None),
        "nodes": (profile.nodes, 1),
        "gpus_per_node": (gpus, usual),
        "tensor_parallel": (profile.tensor_parallel, 1),
        "pipeline_parallel": (profile.pipeline_parallel, 1),
        "launch_mode": (launch_mode, "native"),
        "rdma": (profile.rdma, False),
        "gpu_memory_gb": (profile.gpu_memory_gb and float(profile.gpu_memory_gb), None),
        "args": (dict(profile.args), {}),
        "env": (_env(profile.env), {}),
    }
    canonical = {name: value for name, (value, default) in fields.items() if value != default}
    return hashlib.sha256(msgspec.json.encode(canonical, order="sorted")).hexdigest()[:_HEX]


def _env(env: Mapping[str, str | SecretRef]) -> dict[str, object]:
    """Secrets by their reference, so that rotating one makes nothing stale (C16)."""
    return {
        name: {key: place for key, place in msgspec.structs.asdict(value).items() if place is not None}
        if isinstance(value, SecretRef)
        else value
        for name, value in env.items()
    }
