"""Profiles: what an engine cannot do is refused before anything starts."""

from typing import Any

import pytest

from llmgw.core.catalog import ModelDefinition, ProfileDefinition, SecretRef
from llmgw.core.profile_build import arg_key
from llmgw.core.units import GB
from tests.core.makers import definition, model, problems

CARD = {"engine": "vllm", "gpu_class": "H100-80GB"}


def wrong(**profile: Any) -> list[str]:
    """Problems of one profile, without the part every path begins with."""
    return [line.removeprefix("models[0].profiles[0].") for line in problems(definition("m", profile))]


def test_a_profile_is_resolved_with_defaults_in_bytes_and_seconds() -> None:
    built = model(
        "m", {**CARD, "tensor_parallel": 4, "min_memory_gb": 64, "startup_timeout": "20m"}
    ).profiles[0]
    assert (built.gpu_class, built.nodes, built.gpus_per_node) == ("H100-80GB", 1, 4)
    assert (built.memory_bytes, built.gpu_memory_bytes, built.disk_bytes) == (64 * GB, None, None)
    assert (built.startup_timeout_s, built.launch_mode) == (1200.0, "native")
    assert model("m", CARD).profiles[0].startup_timeout_s == 600.0


def test_leaving_the_class_out_means_the_cpu_where_the_engine_can() -> None:
    built = model("m", {"engine": "llama.cpp"}).profiles[0]
    assert (built.gpu_class, built.gpus_per_node) == (None, 0)


def test_an_engine_made_for_cards_must_be_told_to_use_the_cpu() -> None:
    assert wrong(engine="vllm") == [
        "gpu_class: vllm needs one, such as H100-80GB; a CPU build is asked for with gpu_class: cpu"
    ]
    built = model("m", {"engine": "vllm", "gpu_class": "CPU", "tensor_parallel": 2}).profiles[0]
    assert (built.gpu_class, built.gpus_per_node) == (None, 0)


@pytest.mark.parametrize(
    "shape",
    [
        {"tensor_parallel": 4},
        {"gpus_per_node": 4, "tensor_parallel": 4},
        {"nodes": 2, "gpus_per_node": 4, "tensor_parallel": 8},
        {"nodes": 2, "gpus_per_node": 4, "tensor_parallel": 4, "pipeline_parallel": 2},
        {"nodes": 2, "tensor_parallel": 8},
    ],
)
def test_cards_and_parallel_sizes_that_agree_are_accepted(shape: dict[str, int]) -> None:
    built = model("m", {**CARD, **shape}).profiles[0]
    assert built.nodes * built.gpus_per_node == built.tensor_parallel * built.pipeline_parallel


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        (
            {"gpus_per_node": 4},
            "gpus_per_node: 4: nodes × gpus_per_node is 1 × 4 = 4, but tensor_parallel × pipeline_parallel "
            "is 1 × 1 = 1; they must be equal",
        ),
        (
            {"nodes": 2, "tensor_parallel": 3},
            "nodes: 2: tensor_parallel × pipeline_parallel is 3, which must be a multiple of nodes",
        ),
        ({"gpus_per_node": 0}, "gpus_per_node: 0: must be at least 1 with a gpu_class"),
        ({"gpus_per_node": -1}, "gpus_per_node: -1: must be at least 0"),
        ({"nodes": 0}, "nodes: 0: must be at least 1"),
        ({"tensor_parallel": 0}, "tensor_parallel: 0: must be at least 1"),
        ({"pipeline_parallel": -2}, "pipeline_parallel: -2: must be at least 1"),
    ],
)
def test_cards_and_parallel_sizes_that_disagree_are_refused(shape: dict[str, int], line: str) -> None:
    assert wrong(**CARD, **shape) == [line]


def test_llama_cpp_takes_several_local_cards_but_no_parallel_sizes_and_one_node() -> None:
    card = {"engine": "llama.cpp", "gpu_class": "RTX-4090-24GB"}
    assert model("m", {**card, "gpus_per_node": 3}).profiles[0].gpus_per_node == 3
    assert model("m", card).profiles[0].gpus_per_node == 1
    assert wrong(**card, nodes=2, tensor_parallel=2, pipeline_parallel=2) == [
        "nodes: 2: llama.cpp runs on one node; it must be 1",
        "tensor_parallel: 2: llama.cpp does not split a model so; must be 1",
        "pipeline_parallel: 2: llama.cpp does not split a model so; must be 1",
    ]


def test_a_cpu_profile_has_no_cards_and_splits_evenly_over_nodes() -> None:
    assert wrong(engine="llama.cpp", gpus_per_node=1) == [
        "gpus_per_node: 1: a CPU profile has 0; write gpu_class for one that uses cards"
    ]
    cpu = {"engine": "vllm", "gpu_class": "cpu"}
    assert model("m", {**cpu, "nodes": 2, "tensor_parallel": 4}).profiles[0].nodes == 2
    assert wrong(**cpu, nodes=2, tensor_parallel=3) == [
        "nodes: 2: tensor_parallel × pipeline_parallel is 3, which must be a multiple of nodes"
    ]
    assert model("m", {"engine": "sim", "nodes": 2}).profiles[0].nodes == 2


def test_a_launch_mode_the_engine_lacks_is_refused() -> None:
    assert model("m", {**CARD, "launch_mode": "ray"}).profiles[0].launch_mode == "ray"
    assert wrong(engine="llama.cpp", launch_mode="ray") == ['launch_mode: "ray": llama.cpp has native']


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"gpu_memory_gb": 0}, "gpu_memory_gb: 0: must be more than 0; leave it out for whole cards"),
        ({"min_memory_gb": -1}, "min_memory_gb: -1: must be at least 0"),
    ],
)
def test_claims_cannot_be_negative(fields: dict[str, float], line: str) -> None:
    assert wrong(**CARD, **fields) == [line]


def test_a_share_of_a_card_needs_a_card() -> None:
    assert wrong(engine="sim", gpu_memory_gb=2) == [
        "gpu_memory_gb: 2: a CPU profile has no cards to share; remove it"
    ]
    assert model("m", {**CARD, "gpu_memory_gb": 2.5}).profiles[0].gpu_memory_bytes == 2_500_000_000


def test_an_explicit_zero_claims_nothing() -> None:
    assert model("m", {"engine": "sim", "min_memory_gb": 0}).profiles[0].memory_bytes is None


@pytest.mark.parametrize("name", ["port", "--port", "tensor_parallel_size", "--tensor-parallel-size"])
def test_an_option_llmgw_sets_itself_is_refused_however_it_is_spelt(name: str) -> None:
    assert wrong(**CARD, args={name: 1}) == [
        f"args.{name}: 1: llmgw sets this option of vllm itself; remove it"
    ]


def test_args_are_names_of_options_each_once() -> None:
    assert wrong(**CARD, args={"a=b": 1, "": 2, "max-len": 3, "max_len": 4, "x; rm": 5}) == [
        "args.a=b: 1: not an option's name; write it as option: value",
        "args.: 2: not an option's name; write it as option: value",
        "args.max_len: 4: is the same option as max-len; keep one",
        "args.x; rm: 5: not an option's name; write it as option: value",
    ]
    assert arg_key("--max_model_len") == "max-model-len"


def test_environment_names_and_secrets_are_checked_without_showing_values() -> None:
    profile = ProfileDefinition(
        "p",
        "sim",
        env={"1A": "secret", "B": SecretRef(), "C": SecretRef("x", "y"), "OK": SecretRef(from_file="/x")},
    )
    assert problems(ModelDefinition("m", profiles=(profile,))) == [
        "models[0].profiles[0].env.1A: not a variable's name: letters, digits and _, not beginning "
        "with a digit",
        "models[0].profiles[0].env.B: write either from_env or from_file",
        "models[0].profiles[0].env.C: write either from_env or from_file",
    ]


def test_durations_of_a_profile_are_checked() -> None:
    profile = ProfileDefinition("p", "sim", startup_timeout="soon")
    assert problems(ModelDefinition("m", profiles=(profile,))) == [
        'models[0].profiles[0].startup_timeout: "soon": expected a duration such as 30s, 15m or 2h'
    ]
