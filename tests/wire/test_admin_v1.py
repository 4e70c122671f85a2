"""The admin API's JSON: unknown is null and stays in the answer; refusals have one shape."""

from typing import Any

import msgspec

from llmgw.wire import admin_v1 as wire


def as_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_what_nobody_reported_is_null_and_never_left_out_or_zero() -> None:
    node = as_json(wire.NodeRow("n1", "unreachable", "ready", None))
    for field in (
        "address",
        "agent_version",
        "memory_total_bytes",
        "disk_free_bytes",
        "gpus",
        "engines",
        "heard_s",
    ):
        assert node[field] is None


def test_a_replica_has_the_fields_scripts_read() -> None:
    shard = wire.ShardRow(0, "n1", None, "fetching", "12.4 GB so far")
    row = as_json(wire.ReplicaRow("m-1", "m", "p", "starting", None, None, None, (shard,)))
    assert {"id", "model", "profile", "state", "reason", "url", "stale", "shards"} <= row.keys()
    assert row["stale"] is None
    assert {"rank", "node", "pid", "phase", "progress"} <= row["shards"][0].keys()


def test_a_refusal_is_an_error_with_a_code_for_programs_and_a_text_for_people() -> None:
    body = wire.ProblemBody(wire.Problem("node_not_found", "no node 'x'"))
    assert as_json(body) == {"error": {"code": "node_not_found", "message": "no node 'x'"}}


def test_rows_read_back_as_they_were_written() -> None:
    gpu = wire.GpuRow(0, "H100-80GB", "unhealthy", 80, None, "3 uncorrectable memory errors")
    node = wire.NodeRow("n1", "ready", "cordoned", "10.0.0.1", gpus=(gpu,), labels={"a": "b"}, reasons=("x",))
    assert msgspec.json.decode(msgspec.json.encode(node), type=wire.NodeRow) == node
    event = wire.EventRow(1.5, "placed", "on n1", "m", "m-1", "n1")
    assert msgspec.json.decode(msgspec.json.encode(event), type=wire.EventRow) == event


def test_a_row_of_a_newer_server_is_read_without_what_it_added() -> None:
    data = as_json(wire.RouterRow("r", 1, "0.1.0", None, None)) | {"added_later": 1}
    assert msgspec.convert(data, wire.RouterRow) == wire.RouterRow("r", 1, "0.1.0", None, None)
