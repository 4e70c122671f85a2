"""A catalog answers for names, aliases and near misses."""

import random
from collections import Counter

from llmgw.core.catalog import CatalogError
from llmgw.core.shape import Problem
from tests.core.makers import catalog, definition

CATALOG = catalog(
    definition("qwen3-8b"),
    definition("qwen3-14b"),
    definition("Qwen/Coder", aliases=["coder"]),
    aliases={"chat": {"qwen3-8b": 3, "qwen3-14b": 1}, "one": "qwen3-8b"},
)


def named(name: str, draw: random.Random) -> str | None:
    found = CATALOG.resolve(name, draw)
    return None if found is None else found.name


def test_a_name_and_a_plain_alias_need_no_draw() -> None:
    draw = random.Random(1)
    before = draw.getstate()
    assert [named(name, draw) for name in ("qwen3-8b", "coder", "one")] == [
        "qwen3-8b",
        "Qwen/Coder",
        "qwen3-8b",
    ]
    assert draw.getstate() == before


def test_a_weighted_alias_is_drawn_by_its_weights() -> None:
    draw = random.Random(7)
    drawn = Counter(named("chat", draw) for _ in range(4000))
    assert set(drawn) == {"qwen3-8b", "qwen3-14b"}
    assert 2800 < drawn["qwen3-8b"] < 3200


def test_an_unknown_name_is_nothing() -> None:
    assert CATALOG.resolve("qwen3", random.Random(1)) is None


def test_near_names_come_closest_first_whatever_their_case() -> None:
    assert CATALOG.near_names("QWEN3-8")[0] == "qwen3-8b"
    assert CATALOG.near_names("qwen/coder")[0] == "Qwen/Coder"
    assert CATALOG.near_names("zzzzzz") == ()
    assert len(CATALOG.near_names("qwen3", limit=1)) == 1


def test_an_error_reads_as_one_line_a_problem() -> None:
    error = CatalogError(
        (Problem("models[0].name", '"a"', "bad"), Problem("models[1].source", "", "is required"))
    )
    assert error.text() == 'models[0].name: "a": bad\nmodels[1].source: is required'
