"""Between the wire's shapes and the fleet's: nothing is lost, unknown words become unknown."""

from typing import get_args

import msgspec

from llmgw.control import translate
from llmgw.core import happenings as h
from llmgw.core.adoption import hear_report
from llmgw.core.reason import Failure
from llmgw.core.replica import ShardPhase
from llmgw.wire import agent_v1
from tests.control.harness import one_model, reported
from tests.core.makers import catalog, definition
from tests.core.replicas import ready, replica
from tests.core.test_reconcile import state
from tests.wire.samples import AGENT_UP, FAILED, REPORT


def test_every_message_of_an_agent_is_an_event_but_log_lines() -> None:
    for message in AGENT_UP.values():
        event = translate.agent_event(7, message)
        if isinstance(message, agent_v1.LogLines):
            assert event is None
        else:
            assert type(event) in get_args(h.Event)
            assert getattr(event, "session", None) == 7


def test_a_report_keeps_all_that_adoption_needs() -> None:
    shard = translate.reported_shard(REPORT)
    assert shard.phase is ShardPhase.READY
    for field in (
        "model",
        "profile",
        "fingerprint",
        "engine",
        "claim",
        "engine_key",
        "pid",
        "start_time",
        "running_s",
    ):
        assert getattr(shard, field) == getattr(REPORT, field)


def test_words_of_a_newer_agent_are_unknown() -> None:
    newer = msgspec.structs.replace(FAILED, phase="hibernating", failure="eaten_by_bear", reason=None)
    shard = translate.reported_shard(newer)
    assert shard.phase is ShardPhase.UNKNOWN
    assert shard.failure is not None
    assert (shard.failure.code, shard.failure.text) == (Failure.UNKNOWN, "eaten_by_bear")


def test_a_failure_keeps_its_words_and_the_log_s_last_lines() -> None:
    failure = translate.reported_shard(FAILED).failure
    assert failure is not None
    assert (failure.code, failure.text, failure.log_tail) == (
        *(Failure.OUT_OF_MEMORY, "killed: 12 GB asked", ("a", "b")),
    )


def test_a_start_command_carries_what_was_placed_and_comes_back_whole_in_a_report() -> None:
    """Told to an agent, reported back, adopted by a server that knows nothing: the same replica."""
    placed = replica(ShardPhase.ASSIGNED)
    command = translate.start_message(3, placed, placed.shards[0])
    assert command.term == 3
    report = msgspec.structs.replace(reported(command.spec), phase="ready")
    heard = hear_report("n1", (translate.reported_shard(report),), True, {}, one_model(), 0.0)
    (adopted,) = heard.replicas
    assert adopted.shards[0].claim == placed.shards[0].claim
    for field in ("id", "model", "profile", "fingerprint", "engine", "engine_key", "shard_count"):
        assert getattr(adopted, field) == getattr(placed, field)


def test_simulated_models_say_so_and_aliases_keep_their_weights() -> None:
    known = catalog(
        definition("m", {"engine": "sim"}, scaling={"min": 1}, description="words", context_length=4096),
        definition("real", {"engine": "llama.cpp"}, scaling={"min": 1}),
        aliases={"chat": {"m": 90, "real": 10}},
    )
    entries = {one.name: one for one in translate.model_entries(state(ready(), catalog=known), 5)}
    assert (entries["m"].owned_by, entries["real"].owned_by) == ("llmgw-sim", "llmgw")
    assert (entries["m"].description, entries["m"].context_length) == ("words", 4096)
    (alias,) = translate.alias_entries(known)
    assert dict(alias.targets) == {"m": 0.9, "real": 0.1}
