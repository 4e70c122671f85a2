"""The envelope: the type is read before anything else, and reading never raises."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire.envelope import MessageSet, Unknown


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    number: int
    note: str | None = None


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    number: int


SET = MessageSet[Ping | Pong](Ping, Pong)


def test_a_message_is_read_by_its_type() -> None:
    assert SET.decode(b'{"type":"ping","number":1}') == Ping(1)
    assert SET.decode(b'{"number":2,"type":"pong"}') == Pong(2), "wherever the type stands"


def test_the_set_says_what_it_knows() -> None:
    assert SET.tags() == {"ping", "pong"}


def test_an_unknown_type_is_told_from_one_that_could_not_be_read() -> None:
    assert SET.decode(b'{"type":"shout"}') == Unknown("shout", None)
    unread = SET.decode(b'{"type":"ping","number":"one"}')
    assert isinstance(unread, Unknown)
    assert unread.type == "ping"
    assert unread.error is not None
    assert "number" in unread.error


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b'{"type":5}', b"\xff\xfe", b'{"type":"ping"}'])
def test_what_is_broken_says_what_is_wrong(data: bytes) -> None:
    unread = SET.decode(data)
    assert isinstance(unread, Unknown)
    assert unread.error


def test_no_type_at_all_is_unknown() -> None:
    assert SET.decode(b"{}") == Unknown("", None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_json_raises(value: object) -> None:
    SET.decode(msgspec.json.encode({"type": "ping", "number": value}))
    SET.decode(msgspec.json.encode(value))
