"""What is kept of a shard on disk."""

from llmgw.agent.records import Record, decode, encode, log_name, record_name, shard_id, shard_key
from llmgw.core.replica import ShardId
from llmgw.ports.processes import ProcessId
from tests.agent.node import spec


def test_a_record_comes_back_as_it_was_written() -> None:
    record = Record(spec(20001, source="/m.gguf"), 3, "log", ProcessId("b", 7, 9), True, 12.5)
    assert decode(encode(record)) == record


def test_a_record_of_a_newer_agent_is_read_and_a_torn_one_is_not() -> None:
    data = encode(Record(spec(20001), 3, "log"))
    assert decode(data[:-1] + b',"from_the_future":1}') == Record(spec(20001), 3, "log")
    assert decode(data[: len(data) // 2]) is None
    assert decode(b"") is None
    assert decode(b"\xff\xff") is None


def test_names_tell_incarnations_apart_and_are_plain_file_names() -> None:
    ids = [ShardId("a", 0, 1), ShardId("a", 0, 2), ShardId("a", 1, 1), ShardId("A/../b", 0, 1)]
    names = [record_name(id) for id in ids]
    assert len(set(names)) == 4 and not any("/" in name for name in names)
    assert log_name("A/b", 0) != log_name("a-b", 0)


def test_keys_and_ids_are_the_same_thing_on_both_sides() -> None:
    id = ShardId("r", 2, 5)
    assert shard_id(shard_key(id)) == id
