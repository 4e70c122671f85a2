"""Fingerprints: what changes what runs is in them, nothing else, and a hash once given never changes."""

from typing import Any

import msgspec
import pytest

from llmgw.core.catalog import ModelDefinition, ProfileDefinition, SecretRef
from llmgw.core.fingerprint import fingerprint

# Hashes that running replicas and state files hold. A change here makes every replica of every fleet stale
# with an upgrade: if this test fails, the code is wrong, never the value.
FULL = (
    ModelDefinition("Qwen/Qwen3-32B", source="hf:Qwen/Qwen3-32B", context_length=32768),
    ProfileDefinition(
        "h100",
        "vllm",
        priority=100,
        gpu_class="H100-80GB",
        nodes=2,
        gpus_per_node=4,
        tensor_parallel=4,
        pipeline_parallel=2,
        launch_mode="ray",
        rdma=True,
        gpu_memory_gb=40.5,
        install="vllm-0.33",
        container="image:1",
        args={
            "max-model-len": 32768,
            "enable-auto-tool-choice": True,
            "x": 0.92,
            "stop": ["a", "b"],
            "y": None,
        },
        env={"A": "1", "HF_TOKEN": SecretRef(from_env="HF_TOKEN"), "K": SecretRef(from_file="/run/k")},
    ),
)
STORED = {
    "65e72301068e918d": (ModelDefinition("m"), ProfileDefinition("p", "sim")),
    "c95663986cf1cbe0": (
        ModelDefinition("smollm2", source="/models/s.gguf"),
        ProfileDefinition("p", "llama.cpp", args={"ctx-size": 4096}),
    ),
    "9d0f1f7a80acf027": FULL,
}

CPU = ProfileDefinition("p", "llama.cpp")
CARD = ProfileDefinition("p", "vllm", gpu_class="H100-80GB", tensor_parallel=4)
MODEL = ModelDefinition("m", source="/models/m")


@pytest.mark.parametrize("stored", STORED)
def test_a_hash_once_given_never_changes(stored: str) -> None:
    assert fingerprint(*STORED[stored]) == stored


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "vllm"},
        {"install": "vllm-0.33"},
        {"container": "image"},
        {"gpu_class": "A100-80GB"},
        {"nodes": 2},
        {"gpus_per_node": 3},
        {"tensor_parallel": 2},
        {"pipeline_parallel": 2},
        {"launch_mode": "ray"},
        {"rdma": True},
        {"gpu_memory_gb": 10.0},
        {"args": {"max-model-len": 8}},
        {"env": {"A": "1"}},
        {"env": {"A": SecretRef(from_env="A")}},
    ],
)
@pytest.mark.parametrize("profile", [CPU, CARD])
def test_what_changes_what_runs_changes_it(change: dict[str, Any], profile: ProfileDefinition) -> None:
    changed = msgspec.structs.replace(profile, **change)
    if changed != profile:
        assert fingerprint(MODEL, changed) != fingerprint(MODEL, profile)


@pytest.mark.parametrize("change", [{"source": "/models/other"}, {"context_length": 8192}])
def test_the_models_source_and_context_change_it(change: dict[str, Any]) -> None:
    assert fingerprint(msgspec.structs.replace(MODEL, **change), CPU) != fingerprint(MODEL, CPU)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "q"},
        {"priority": 7},
        {"node_selector": {"pool": "x"}},
        {"min_memory_gb": 7.0},
        {"disk_gb": 7.0},
        {"startup_timeout": "1h"},
        {"fetch_timeout": "1h"},
        {"stall_timeout": "1h"},
    ],
)
def test_what_only_says_where_and_how_long_does_not(change: dict[str, Any]) -> None:
    assert fingerprint(MODEL, msgspec.structs.replace(CARD, **change)) == fingerprint(MODEL, CARD)


@pytest.mark.parametrize(
    "change",
    [
        {"launch_mode": "native"},
        {"gpus_per_node": 4},
        {"nodes": 1},
        {"args": {}},
        {"env": {}},
    ],
)
def test_writing_a_default_out_changes_nothing(change: dict[str, Any]) -> None:
    assert fingerprint(MODEL, msgspec.structs.replace(CARD, **change)) == fingerprint(MODEL, CARD)


@pytest.mark.parametrize("change", [{"gpu_class": "cpu"}, {"gpus_per_node": 0}])
def test_writing_the_cpu_out_changes_nothing(change: dict[str, Any]) -> None:
    assert fingerprint(MODEL, msgspec.structs.replace(CPU, **change)) == fingerprint(MODEL, CPU)


def test_the_order_of_args_and_env_does_not_matter() -> None:
    one = msgspec.structs.replace(CPU, args={"a": 1, "b": 2}, env={"A": "1", "B": "2"})
    other = msgspec.structs.replace(CPU, args={"b": 2, "a": 1}, env={"B": "2", "A": "1"})
    assert fingerprint(MODEL, one) == fingerprint(MODEL, other)


def test_a_size_written_with_or_without_a_fraction_is_the_same() -> None:
    whole = msgspec.structs.replace(CARD, gpu_memory_gb=20)
    assert fingerprint(MODEL, whole) == fingerprint(MODEL, msgspec.structs.replace(CARD, gpu_memory_gb=20.0))
