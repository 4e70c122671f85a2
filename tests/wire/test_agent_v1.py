"""The agent stream: golden bytes stay readable and are what is written today; tolerance both ways (A11)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.inventory import NodeReport
from llmgw.core.replica import ShardPhase
from llmgw.wire import agent_v1
from llmgw.wire.envelope import Unknown
from tests.wire.golden import golden, names
from tests.wire.samples import AGENT_DOWN, AGENT_UP, KEY


@pytest.mark.parametrize("name", sorted(AGENT_UP))
def test_what_agents_say_reads_and_writes_as_the_golden_bytes(name: str) -> None:
    assert agent_v1.decode_up(golden("agent_v1/up", name)) == AGENT_UP[name]
    assert agent_v1.encode(AGENT_UP[name]) == golden("agent_v1/up", name)


@pytest.mark.parametrize("name", sorted(AGENT_DOWN))
def test_what_servers_say_reads_and_writes_as_the_golden_bytes(name: str) -> None:
    assert agent_v1.decode_down(golden("agent_v1/down", name)) == AGENT_DOWN[name]
    assert agent_v1.encode(AGENT_DOWN[name]) == golden("agent_v1/down", name)


def test_every_kind_of_message_has_golden_bytes_and_no_file_is_left_unread() -> None:
    assert {type(one) for one in AGENT_UP.values()} == set(agent_v1.Up.__args__)
    assert {type(one) for one in AGENT_DOWN.values()} == set(agent_v1.Down.__args__)
    assert names("agent_v1/up") == set(AGENT_UP)
    assert names("agent_v1/down") == set(AGENT_DOWN)


def test_the_words_for_phases_are_those_on_the_wire() -> None:
    assert [phase.value for phase in ShardPhase] == [
        *("assigned", "fetching", "starting", "ready", "stopping", "gone", "failed", "unknown")
    ]


def test_the_least_an_old_agent_may_say_is_enough() -> None:
    data = b'{"type":"register","instance_id":"i","boot_id":"b","node":{"id":"n","address":"a"}}'
    message = agent_v1.decode_up(data)
    assert isinstance(message, agent_v1.Register)
    assert message.node == NodeReport("n", "a")
    assert message.node.gpus is None, "not reported is unknown, not none"
    assert (message.cluster_id, message.highest_term, message.shards) == (None, None, ())


def test_a_report_without_what_later_versions_added_is_unknown_there() -> None:
    data = b'{"type":"shard_status","shard":{"key":{"replica":"r","rank":0,"generation":1},"phase":"ready"}}'
    message = agent_v1.decode_up(data)
    assert isinstance(message, agent_v1.ShardStatus)
    shard = message.shard
    assert (shard.claim, shard.engine_key, shard.fingerprint, shard.shard_count) == (None, None, "", None)


def test_a_phase_of_a_newer_agent_reads_as_it_was_said() -> None:
    data = agent_v1.encode(agent_v1.ShardStatus(agent_v1.ShardReport(KEY, "hibernating")))
    message = agent_v1.decode_up(data)
    assert isinstance(message, agent_v1.ShardStatus)
    assert message.shard.phase == "hibernating"


@pytest.mark.parametrize("name", sorted(AGENT_UP))
def test_fields_of_a_newer_agent_are_ignored(name: str) -> None:
    data = msgspec.json.decode(golden("agent_v1/up", name))
    data["added_later"] = {"deep": [1, 2]}
    assert agent_v1.decode_up(msgspec.json.encode(data)) == AGENT_UP[name]


@pytest.mark.parametrize("name", sorted(AGENT_DOWN))
def test_fields_of_a_newer_server_are_ignored(name: str) -> None:
    data = msgspec.json.decode(golden("agent_v1/down", name))
    data["added_later"] = None
    assert agent_v1.decode_down(msgspec.json.encode(data)) == AGENT_DOWN[name]


def test_messages_of_a_newer_version_are_unknown_and_no_error() -> None:
    data = b'{"type":"quantum_report","qubits":3}'
    assert agent_v1.decode_up(data) == Unknown("quantum_report")
    assert agent_v1.decode_down(data) == Unknown("quantum_report")


def test_the_two_directions_do_not_mix() -> None:
    assert isinstance(agent_v1.decode_up(agent_v1.encode(AGENT_DOWN["welcome"])), Unknown)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(agent_v1.decode_up(data), Unknown)
    assert isinstance(agent_v1.decode_down(data), Unknown)


@given(st.sampled_from(sorted(AGENT_UP)), st.data())
def test_no_damage_to_a_message_raises(name: str, data: st.DataObject) -> None:
    good = bytearray(golden("agent_v1/up", name))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] = data.draw(st.integers(0, 255))
    agent_v1.decode_up(bytes(good[: data.draw(st.integers(1, len(good)))]))
