"""Shapes: every problem named, unknown keys refused, nothing coerced."""

from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.catalog import ModelDefinition
from llmgw.core.shape import Duration, Shape, Wrong, accepts, shown


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    wait: Duration | None = None


class Outer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    ratio: float = 0.5
    on: bool = False
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    either: str | Inner = "x"
    choice: Literal["a", "b"] = "a"
    env: dict[str, str] = {}
    even: Annotated[int, accepts("an even number", lambda number: number % 2 == 0)] = 2


def lines(data: object, later: frozenset[str] = frozenset(), path: str = "") -> list[str]:
    read = Shape(Outer, later).read(data, path)
    assert isinstance(read, Wrong), read
    return [problem.line() for problem in read.problems]


def test_right_data_becomes_the_value() -> None:
    data = {
        "name": "n",
        "ratio": 1,
        "items": [{"size": 3, "wait": "5s"}],
        "either": {"size": 2},
        "choice": "b",
    }
    assert Shape(Outer).read(data) == Outer(
        "n", ratio=1.0, items=(Inner(3, "5s"),), either=Inner(2), choice="b"
    )


def test_every_problem_is_named_with_path_and_value() -> None:
    data = {
        "nam": 1,
        "ratio": "x",
        "items": [{"size": 0}, {"size": 10, "wait": "soon"}],
        "choice": "c",
        "even": 3,
    }
    assert lines(data) == [
        "nam: 1: no such key; did you mean name?",
        "name: is required",
        'ratio: "x": expected a number',
        "items[0].size: 0: must be at least 1",
        "items[1].size: 10: must be at most 9",
        'items[1].wait: "soon": expected a duration such as 30s, 15m or 2h',
        'choice: "c": expected a or b',
        "even: 3: expected an even number",
    ]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"name": 3}, "name: 3: expected text; quote it"),
        ({"name": True}, "name: true: expected text; quote it"),
        ({"name": "n", "on": "yes"}, 'on: "yes": expected true or false'),
        ({"name": "n", "even": 2.0}, "even: 2.0: expected an even number"),
        ({"name": "n", "even": True}, "even: true: expected an even number"),
        ({"name": "n", "inner": {"size": True}}, "inner.size: true: expected a whole number"),
        ({"name": "n", "inner": {"wait": 30}}, "inner.wait: 30: expected a duration such as 30s, 15m or 2h"),
        ({"name": "n", "items": {}}, "items: {}: expected a list"),
        ({"name": "n", "items": "ab"}, 'items: "ab": expected a list'),
        ({"name": "n", "either": 3}, "either: 3: expected text or a mapping; quote it"),
        ({"name": None}, "name: null: expected text"),
        ([], "[]: expected a mapping"),
    ],
)
def test_nothing_is_coerced(data: object, line: str) -> None:
    assert lines(data) == [line]


def test_a_key_without_a_near_name_lists_what_is_accepted() -> None:
    assert lines({"name": "n", "inner": {"zzz": 1}}) == [
        "inner.zzz: 1: no such key; accepted here: size, wait"
    ]


def test_a_key_of_a_later_version_is_named_as_such_and_never_offered() -> None:
    later = frozenset({"items[].wait", "shiny"})
    assert lines({"name": "n", "shiny": {}, "items": [{"wait": "1s"}, {"zz": 1}]}, later, "models[2]") == [
        "models[2].shiny: {}: not available in this version; remove it",
        'models[2].items[0].wait: "1s": not available in this version; remove it',
        "models[2].items[1].zz: 1: no such key; accepted here: size",
    ]


def test_a_key_with_nothing_after_it_counts_as_not_written() -> None:
    assert Shape(Outer).read({"name": "n", "inner": None, "items": None, "ratio": None}) == Outer("n")


def test_values_of_an_environment_are_never_shown() -> None:
    assert lines({"name": "n", "env": {"TOKEN": 12345}}) == [
        "env.TOKEN: (not shown): expected text; quote it"
    ]
    assert shown("models[0].profiles[0].env.A", "secret") == "(not shown)"
    assert shown("models[0].environment", "plain") == '"plain"'


def test_a_long_value_is_cut() -> None:
    assert len(shown("a", "x" * 1000)) == 60


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*ModelDefinition.__struct_fields__, "scalin"])


@given(st.dictionaries(FIELDS, JSON, max_size=6) | JSON)
def test_any_data_is_either_the_value_or_problems_and_never_an_exception(data: object) -> None:
    read = Shape(ModelDefinition).read(data)
    assert isinstance(read, ModelDefinition) or read.problems


@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_what_is_accepted_reads_back_as_itself(data: dict[str, object]) -> None:
    read = Shape(ModelDefinition).read({"name": "n", **data})
    if isinstance(read, ModelDefinition):
        assert Shape(ModelDefinition).read(msgspec.to_builtins(read)) == read
