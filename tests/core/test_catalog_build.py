"""A catalog is built only when nothing is wrong, and what is wrong is named whole."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.catalog import (
    Catalog,
    CatalogError,
    Fallback,
    Mode,
    ModelDefinition,
    ScalingDefinition,
    TimeoutsDefinition,
)
from llmgw.core.catalog_build import build_catalog
from tests.core.makers import ENGINES, catalog, definition, model, problems

SIM = {"engine": "sim"}

# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "llama3.1:8b", "a_b", "m@v1", "x+y"])
def test_names_may_hold_what_model_names_hold(name: str) -> None:
    assert catalog(definition(name)).models[name].slug


@pytest.mark.parametrize("name", ["", "a b", "-a", "/a", "a\n", "ä", "a" * 201, "a?b"])
def test_other_names_are_refused(name: str) -> None:
    assert "a name is letters, digits and" in problems(definition(name))[0]


def test_a_doubled_name_names_both_places() -> None:
    assert problems(definition("a"), definition("b"), definition("a")) == [
        'models[2].name: "a": is the name of models[0] already; names are unique'
    ]


def test_aliases_must_differ_from_every_name_and_alias() -> None:
    found = problems(
        definition("a", aliases=["b", "x", "x"]),
        definition("b", aliases=["x"]),
        aliases={"a": "b", "x": "a", "y z": "a"},
    )
    assert found == [
        'models[0].aliases[0]: "b": is a model\'s name; an alias must differ from every name',
        'models[0].aliases[2]: "x": is an alias of a already; an alias is written once',
        'models[1].aliases[0]: "x": is an alias of a already; an alias is written once',
        'aliases.a: "a": is a model\'s name; an alias must differ from every name',
        'aliases.x: "x": is an alias of a already; an alias is written once',
        'aliases.y z: "y z": a name is letters, digits and . _ : / @ + -, and begins with a letter or digit',
    ]


def test_an_alias_stands_for_models_with_weights_that_mean_something() -> None:
    found = problems(
        definition("a", aliases=["x"]),
        aliases={"p": "x", "q": {"a": 0, "zz": 1}, "r": {}, "s": {"a": float("nan")}},
    )
    assert [line.split(":")[0] for line in found] == [
        "aliases.p",
        "aliases.q.a",
        "aliases.q.zz",
        "aliases.r",
        "aliases.s.a",
    ]


def test_aliases_are_resolved_with_weights_that_sum_to_one() -> None:
    built = catalog(definition("a", aliases=["x"]), definition("b"), aliases={"chat": {"a": 90, "b": 30}})
    assert built.aliases == {"x": (("a", 1.0),), "chat": (("a", 0.75), ("b", 0.25))}
    assert built.models["a"].aliases == ("chat", "x")
    assert built.models["b"].aliases == ("chat",)


# ---------------------------------------------------------------- fallbacks


def test_fallbacks_are_resolved_through_aliases() -> None:
    built = catalog(
        definition("a", fallbacks=["x", {"model": "c", "on": ["unavailable", "context"]}]),
        definition("b", aliases=["x"]),
        definition("c"),
    )
    assert built.models["a"].fallbacks == (
        Fallback("b", ("unavailable",)),
        Fallback("c", ("unavailable", "context")),
    )


@pytest.mark.parametrize(
    ("fallbacks", "line"),
    [
        (["zz"], 'models[0].fallbacks[0]: "zz": no such model'),
        (["a"], 'models[0].fallbacks[0]: "a": a model cannot fall back to itself'),
        (["self"], 'models[0].fallbacks[0]: "self": a model cannot fall back to itself'),
        (["b", "b"], 'models[0].fallbacks[1]: "b": is in the list already'),
        (["two"], 'models[0].fallbacks[0]: "two": is an alias of several models; name one model'),
        (
            [{"model": "b", "on": ["never"]}],
            'models[0].fallbacks[0].on: ["never"]: accepted here: unavailable, context',
        ),
        ([{"model": "b", "on": []}], "models[0].fallbacks[0].on: []: accepted here: unavailable, context"),
    ],
)
def test_a_fallback_must_be_another_model_once(fallbacks: Any, line: str) -> None:
    aliases = {"self": "a", "two": {"a": 1, "b": 1}}
    assert problems(definition("a", fallbacks=fallbacks), definition("b"), aliases=aliases) == [line]


def test_each_circle_of_fallbacks_is_named_once() -> None:
    found = problems(
        definition("start", fallbacks=["a"]),
        definition("a", fallbacks=["b"]),
        definition("b", fallbacks=["c"]),
        definition("c", fallbacks=["a"]),
        definition("d", fallbacks=["e"]),
        definition("e", fallbacks=["d"]),
    )
    assert found == [
        "models[1].fallbacks: a → b → c → a is a circle; remove one of these fallbacks",
        "models[4].fallbacks: d → e → d is a circle; remove one of these fallbacks",
    ]


@given(st.integers(2, 8).flatmap(lambda n: st.lists(st.sets(st.integers(0, n - 1)), min_size=n, max_size=n)))
def test_a_catalog_is_accepted_exactly_when_no_fallback_leads_back(edges: list[set[int]]) -> None:
    models = [
        definition(f"m{index}", fallbacks=[f"m{target}" for target in sorted(targets)])
        for index, targets in enumerate(edges)
    ]

    def leads_back(start: int) -> bool:
        seen: set[int] = set()
        waiting = list(edges[start])
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting.extend(edges[at])
        return start in seen

    built = build_catalog(models, {}, ENGINES)
    assert isinstance(built, CatalogError) == any(leads_back(index) for index in range(len(edges)))


def test_a_long_chain_of_fallbacks_is_no_circle() -> None:
    models = [definition(f"m{index}", fallbacks=[f"m{index + 1}"]) for index in range(3000)]
    assert isinstance(build_catalog([*models, definition("m3000")], {}, ENGINES), Catalog)


# ---------------------------------------------------------------- scaling


@pytest.mark.parametrize(
    ("scaling", "meaning"),
    [
        (None, (Mode.OFF, 0, 0)),
        ({}, (Mode.OFF, 0, 0)),
        ({"min": 0}, (Mode.OFF, 0, 0)),
        ({"min": 0, "max": 0}, (Mode.OFF, 0, 0)),
        ({"max": 0}, (Mode.OFF, 0, 0)),
        ({"idle_timeout": "5m"}, (Mode.OFF, 0, 0)),
        ({"min": 0, "max": 3}, (Mode.ON_DEMAND, 0, 3)),
        ({"max": 1}, (Mode.ON_DEMAND, 0, 1)),
        ({"min": 2}, (Mode.ALWAYS, 2, 2)),
        ({"min": 2, "max": 5}, (Mode.ALWAYS, 2, 5)),
    ],
)
def test_scaling_says_off_on_demand_or_always(scaling: Any, meaning: tuple[Mode, int, int]) -> None:
    built = model("m", SIM, **({} if scaling is None else {"scaling": scaling}))
    assert (built.mode, built.min_replicas, built.max_replicas) == meaning


@pytest.mark.parametrize(
    ("scaling", "line"),
    [
        ({"min": 2, "max": 1}, "models[0].scaling.max: 1: must be at least min, 2"),
        ({"min": 2, "max": 0}, "models[0].scaling.max: 0: must be at least min, 2"),
        ({"min": -1}, "models[0].scaling.min: -1: must be at least 0"),
        ({"max": -1}, "models[0].scaling.max: -1: must be at least min, 0"),
    ],
)
def test_scaling_that_cannot_be_is_refused(scaling: Any, line: str) -> None:
    assert problems(definition("m", SIM, scaling=scaling)) == [line]


def test_a_minimum_needs_something_to_run() -> None:
    assert problems(definition("m", scaling={"min": 1})) == [
        "models[0].scaling.min: 1: the model has no profiles, so nothing can run; add one"
    ]


def test_durations_are_checked_and_have_defaults() -> None:
    built = model("m", SIM, scaling={"max": 1}, timeouts={"total": "2h"})
    assert (built.idle_timeout_s, built.timeouts) == (900.0, {"total": 7200.0})
    assert model("m", SIM, scaling={"idle_timeout": "1m"}).idle_timeout_s == 60.0
    wrong = ModelDefinition(
        "m", scaling=ScalingDefinition(idle_timeout="x"), timeouts=TimeoutsDefinition(connect="y")
    )
    assert problems(wrong) == [
        'models[0].scaling.idle_timeout: "x": expected a duration such as 30s, 15m or 2h',
        'models[0].timeouts.connect: "y": expected a duration such as 30s, 15m or 2h',
    ]


# ---------------------------------------------------------------- the rest of a model


@pytest.mark.parametrize(
    ("profiles", "simulated"),
    [((), False), ((SIM,), True), ((SIM, SIM), True), ((SIM, {"engine": "llama.cpp"}), False)],
)
def test_a_model_is_simulated_when_every_profile_is(profiles: Any, simulated: bool) -> None:
    assert catalog(definition("m", *profiles)).models["m"].simulated is simulated


def test_profiles_come_highest_priority_first_and_else_as_written() -> None:
    built = model("m", SIM, {**SIM, "priority": 5}, {**SIM, "priority": 5}, {**SIM, "priority": -1})
    assert [profile.name for profile in built.profiles] == ["p1", "p2", "p0", "p3"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"source": None}, "models[0].source: is required for a model with profiles: where its weights are"),
        (
            {"source": "models/x"},
            'models[0].source: "models/x": expected an absolute path, or one of hf:, https://, file:, '
            "mirror: followed by where it is",
        ),
        (
            {"source": "http://x/y"},
            'models[0].source: "http://x/y": expected an absolute path, or one of hf:, https://, file:, '
            "mirror: followed by where it is",
        ),
        (
            {"capabilities": ["chat", "flying"]},
            'models[0].capabilities[1]: "flying": accepted here: chat, completions, embeddings, rerank, '
            "tools, vision, audio, reasoning, json_schema",
        ),
        ({"context_length": 0}, "models[0].context_length: 0: must be at least 1"),
        ({"rescue": "maybe"}, 'models[0].rescue: "maybe": accepted here: off, on'),
        ({"rescue": "on"}, 'models[0].rescue: "on": not available in this version; leave it out'),
    ],
)
def test_a_field_of_a_model_that_is_wrong_is_named(fields: Any, line: str) -> None:
    assert problems(definition("m", {"engine": "llama.cpp"}, **fields)) == [line]


@pytest.mark.parametrize("source", ["/m/x.gguf", "file:/m/x", "hf:a/b", "https://x/y", "mirror:x"])
def test_sources_are_paths_or_known_schemes(source: str) -> None:
    assert model("m", {"engine": "llama.cpp"}, source=source).source == source


def test_the_simulated_engine_and_a_model_without_profiles_need_no_source() -> None:
    assert catalog(definition("m"), definition("s", SIM, source=None)).models["s"].source is None


def test_an_engine_that_does_not_exist_and_doubled_profiles_are_named() -> None:
    found = problems(definition("m", {"engine": "vlm"}, {**SIM, "name": "p0"}, {**SIM, "name": "a b"}))
    assert found == [
        'models[0].profiles[0].engine: "vlm": no such engine; there are llama.cpp, sim, vllm',
        'models[0].profiles[1].name: "p0": is the name of profiles[0] already; names are unique in a model',
        'models[0].profiles[2].name: "a b": a name is letters, digits and . _ : / @ + -, and begins with a '
        "letter or digit",
    ]


def test_every_problem_of_every_model_is_reported_at_once() -> None:
    found = problems(
        definition("a", {"engine": "zz"}, scaling={"min": 2, "max": 1}),
        definition("a", {"engine": "vllm"}, rescue="x", fallbacks=["q"]),
        aliases={"z": "nobody"},
    )
    assert [line.split(": ")[0] for line in found] == [
        "models[1].name",
        "aliases.z",
        "models[1].fallbacks[0]",
        "models[0].profiles[0].engine",
        "models[0].scaling.max",
        "models[1].profiles[0].gpu_class",
        "models[1].rescue",
    ]
