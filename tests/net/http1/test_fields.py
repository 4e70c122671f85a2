"""Header fields can be nothing but header fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.net.http1.fields import write_fields


def test_fields_are_written_in_order_with_repetitions() -> None:
    assert write_fields([(b"a", b"1"), (b"b", b""), (b"a", b"2")], frozenset()) == b"a: 1\r\nb: \r\na: 2\r\n"


def test_a_field_of_the_framing_is_refused() -> None:
    with pytest.raises(ValueError, match="content-length"):
        write_fields([(b"content-length", b"1")], frozenset({b"content-length"}))


@given(st.sampled_from([b"\r", b"\n", b"\r\n"]), st.binary(max_size=5), st.binary(max_size=5), st.booleans())
def test_no_field_can_hold_a_line_break(
    line_break: bytes, before: bytes, after: bytes, in_name: bool
) -> None:
    broken = before + line_break + after
    with pytest.raises(ValueError, match="line break"):
        write_fields([(broken, b"v") if in_name else (b"n", broken)], frozenset())
