"""Values found in JSON bytes: the same ones a parser sees, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.jsonspan import NotAnObject, find_member, members, replaced, with_member

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)
INDENTS = st.sampled_from([None, 0, 2])


@given(OBJECTS, INDENTS, st.booleans())
def test_every_member_is_found_with_its_value(
    value: dict[str, Any], indent: int | None, ascii_: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    found = {key: json.loads(data[span.start : span.end]) for key, span in members(data)}
    assert found == value


@given(OBJECTS.filter(bool), INDENTS, VALUES)
def test_replacing_one_value_leaves_every_other_byte(
    value: dict[str, Any], indent: int | None, new: Any
) -> None:
    data = json.dumps(value, indent=indent).encode()
    key = list(value)[-1]
    span = find_member(data, key)
    assert span is not None
    changed = replaced(data, span, json.dumps(new).encode())
    assert changed.startswith(data[: span.start]) and changed.endswith(data[span.end :])
    assert json.loads(changed) == value | {key: new}


@given(OBJECTS, INDENTS)
def test_a_member_is_added_in_front(value: dict[str, Any], indent: int | None) -> None:
    value.pop("added", None)
    data = json.dumps(value, indent=indent).encode()
    assert json.loads(with_member(data, "added", b"[1]")) == value | {"added": [1]}


def test_of_duplicate_keys_the_last_counts() -> None:
    data = b'{"a": 1, "b": 2, "a": 3}'
    span = find_member(data, "a")
    assert span is not None and data[span.start : span.end] == b"3"


def test_an_escaped_key_is_the_same_key() -> None:
    data = b'{"mod\\u0065l" : "x"}'
    span = find_member(data, "model")
    assert span is not None and data[span.start : span.end] == b'"x"'


def test_quotes_and_brackets_inside_strings_are_text() -> None:
    data = rb'{"a": ["}\"]", "\\"], "b": {"c": "{[\\\""}, "d": 1}'
    assert {key: json.loads(data[s.start : s.end]) for key, s in members(data)} == json.loads(data)


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b'{"a"', b'{"a":', b'{"a": "x', b'{"a": [', b'{"a" 1}'])
def test_what_is_no_object_is_refused_and_never_loops(data: bytes) -> None:
    with pytest.raises(NotAnObject):
        list(members(data))


def test_depth_is_no_recursion() -> None:
    data = b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b', "b": 1}'
    span = find_member(data, "b")
    assert span is not None and data[span.start : span.end] == b"1"
