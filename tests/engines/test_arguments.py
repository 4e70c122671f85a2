"""A profile's args as an engine's command line."""

import pytest

from llmgw.core.catalog import ArgValue
from llmgw.engines.arguments import command_line, plain_args, plain_name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (4096, ("--x", "4096")),
        (0.5, ("--x", "0.5")),
        ("a b; rm -rf /", ("--x", "a b; rm -rf /")),
        (True, ("--x",)),
        (False, ("--no-x",)),
        (None, ()),
        (["a", 2], ("--x", "a", "--x", "2")),
        ([], ()),
    ],
)
def test_every_kind_of_value_has_one_form(value: ArgValue, expected: tuple[str, ...]) -> None:
    assert command_line({"x": value}) == expected


def test_spellings_of_one_option_are_one_option() -> None:
    for name in ("ctx-size", "--ctx-size", "ctx_size", "-c", "c"):
        assert plain_name(name, {"c": "ctx-size"}) == "ctx-size"
    assert plain_args({"c": 1, "ctx_size": 2}, {"c": "ctx-size"}) == {"ctx-size": 2}


def test_order_is_the_order_written() -> None:
    assert command_line({"b": 1, "a": 2}) == ("--b", "1", "--a", "2")
