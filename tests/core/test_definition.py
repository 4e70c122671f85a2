"""Definitions: one reading for every border, and what is written out reads back."""

from typing import Any

import msgspec
import pytest

from llmgw.core.catalog import CatalogError, FallbackDefinition, ModelDefinition, SecretRef
from llmgw.core.definition import MODEL_LATER, definition_from_mapping

DATA: dict[str, Any] = {
    "name": "qwen",
    "source": "hf:Qwen/Qwen3-32B",
    "fallbacks": ["small", {"model": "big", "on": ["context"]}],
    "scaling": {"max": 2},
    "profiles": [{"name": "p", "engine": "vllm", "env": {"A": "1", "T": {"from_env": "T"}}}],
}


def test_a_definition_is_read_from_plain_data() -> None:
    read = definition_from_mapping(DATA)
    assert isinstance(read, ModelDefinition)
    assert read.fallbacks == ("small", FallbackDefinition("big", ("context",)))
    assert read.profiles[0].env == {"A": "1", "T": SecretRef(from_env="T")}


def test_what_is_written_out_is_what_was_written_in() -> None:
    read = definition_from_mapping(DATA)
    assert msgspec.json.decode(msgspec.json.encode(read)) == DATA


def test_problems_are_named_below_the_place_given() -> None:
    read = definition_from_mapping({"name": "a", "profiles": [{"engine": 3}]}, "models[4]")
    assert isinstance(read, CatalogError)
    assert read.text().splitlines() == [
        "models[4].profiles[0].name: is required",
        "models[4].profiles[0].engine: 3: expected text; quote it",
    ]


LATER_VALUES: dict[str, Any] = {
    "pin": {"pin": True},
    "prices": {"prices": {"input": 1}},
    "scaling.target": {"scaling": {"target": {"waiting": 4}}},
    "scaling.up_after": {"scaling": {"up_after": "1m"}},
    "scaling.down_after": {"scaling": {"down_after": "1m"}},
    "profiles[].rdma": {"profiles": [{"name": "p", "engine": "sim", "rdma": True}]},
    "profiles[].disk_gb": {"profiles": [{"name": "p", "engine": "sim", "disk_gb": 3}]},
    "profiles[].fetch_timeout": {"profiles": [{"name": "p", "engine": "sim", "fetch_timeout": "1h"}]},
    "profiles[].stall_timeout": {"profiles": [{"name": "p", "engine": "sim", "stall_timeout": "1h"}]},
    "profiles[].container": {"profiles": [{"name": "p", "engine": "sim", "container": "x"}]},
}


@pytest.mark.parametrize("key", sorted(MODEL_LATER))
def test_a_key_of_a_later_version_is_refused_by_name(key: str) -> None:
    read = definition_from_mapping({"name": "m", **LATER_VALUES[key]})
    assert isinstance(read, CatalogError)
    assert [(problem.path.replace("[0]", "[]"), problem.text) for problem in read.problems] == [
        (key, "not available in this version; remove it")
    ]
