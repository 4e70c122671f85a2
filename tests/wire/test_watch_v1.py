"""The watch stream: golden bytes stay readable and are what today's code writes; tolerance both ways."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.wire import watch_v1
from llmgw.wire.envelope import Unknown
from tests.wire.golden import golden, names
from tests.wire.samples import WATCH_DOWN, WATCH_UP


@pytest.mark.parametrize("name", sorted(WATCH_UP))
def test_what_routers_say_reads_and_writes_as_the_golden_bytes(name: str) -> None:
    assert watch_v1.decode_up(golden("watch_v1/up", name)) == WATCH_UP[name]
    assert watch_v1.encode(WATCH_UP[name]) == golden("watch_v1/up", name)


@pytest.mark.parametrize("name", sorted(WATCH_DOWN))
def test_what_servers_say_reads_and_writes_as_the_golden_bytes(name: str) -> None:
    assert watch_v1.decode_down(golden("watch_v1/down", name)) == WATCH_DOWN[name]
    assert watch_v1.encode(WATCH_DOWN[name]) == golden("watch_v1/down", name)


def test_every_kind_of_message_has_golden_bytes_and_no_file_is_left_unread() -> None:
    assert {type(one) for one in WATCH_UP.values()} == set(watch_v1.Up.__args__)
    assert {type(one) for one in WATCH_DOWN.values()} == set(watch_v1.Down.__args__)
    assert names("watch_v1/up") == set(WATCH_UP)
    assert names("watch_v1/down") == set(WATCH_DOWN)


def test_the_least_an_old_router_may_say_is_enough() -> None:
    data = b'{"type":"hello","router_id":"r","version":"0","settings_hash":"h","pid":1,"start_time":2}'
    message = watch_v1.decode_up(data)
    assert isinstance(message, watch_v1.Hello)
    assert (message.address, message.started_s, message.index) == (None, 0.0, 0)


def test_the_least_an_old_server_may_say_is_enough() -> None:
    message = watch_v1.decode_down(b'{"type":"snapshot","revision":1,"cluster_id":"c","term":1}')
    assert message == watch_v1.Snapshot(1, "c", 1)


@pytest.mark.parametrize("name", sorted(WATCH_UP))
def test_fields_of_a_newer_router_are_ignored(name: str) -> None:
    data = msgspec.json.decode(golden("watch_v1/up", name))
    data["added_later"] = [1]
    assert watch_v1.decode_up(msgspec.json.encode(data)) == WATCH_UP[name]


@pytest.mark.parametrize("name", sorted(WATCH_DOWN))
def test_fields_of_a_newer_server_are_ignored(name: str) -> None:
    data = msgspec.json.decode(golden("watch_v1/down", name))
    data["added_later"] = "x"
    assert watch_v1.decode_down(msgspec.json.encode(data)) == WATCH_DOWN[name]


def test_messages_of_a_newer_version_are_unknown_and_no_error() -> None:
    assert watch_v1.decode_up(b'{"type":"telepathy"}') == Unknown("telepathy")
    assert watch_v1.decode_down(b'{"type":"telepathy"}') == Unknown("telepathy")


def test_no_key_travels_whole() -> None:
    snapshot = golden("watch_v1/down", "snapshot")
    assert b"sk-llmgw-" not in snapshot
    assert b"secret_sha256" in snapshot


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(watch_v1.decode_up(data), Unknown)
    assert isinstance(watch_v1.decode_down(data), Unknown)
