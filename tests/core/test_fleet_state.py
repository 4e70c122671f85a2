"""What is derived from a moment of the fleet: endpoints, claims held, use, notes for routers."""

import msgspec

from llmgw.core.fleet_state import (
    ModelNote,
    Refusal,
    RouterState,
    acknowledged,
    endpoints,
    failures,
    held_by_node,
    idle_s,
    in_flight,
    model_notes,
    placement_view,
    wanted,
)
from llmgw.core.happenings import EndpointUse
from llmgw.core.inventory import Presence
from llmgw.core.replica import Course, ShardPhase
from llmgw.core.retry import Retry
from tests.core.makers import catalog, definition, model
from tests.core.replicas import OOM, on, ready, replica
from tests.core.test_reconcile import state

P = ShardPhase


def test_only_what_is_whole_ready_and_kept_is_an_endpoint() -> None:
    serving = ready()
    assert endpoints({serving.id: serving})[serving.id].host == "n1.example"
    for other in (replica(P.STARTING), replica(P.READY, P.STARTING), on(ready(), Course.DRAIN)):
        assert endpoints({other.id: other}) == {}


def test_a_replica_of_several_nodes_is_reached_at_its_leader() -> None:
    whole = replica(P.READY, P.READY)
    assert endpoints({whole.id: whole})[whole.id].port == 20000


def test_a_claim_is_held_until_its_process_is_gone_whatever_was_decided() -> None:
    for course in Course:
        held = held_by_node({"x": on(replica(P.READY, P.READY), course)})
        assert {node: len(claims) for node, claims in held.items()} == {"n1": 1, "n2": 1}
    ended = replica(P.GONE, P.READY)
    assert list(held_by_node({"x": ended})) == ["n2"]


def test_how_many_are_wanted_follows_the_scaling() -> None:
    assert wanted(model(scaling={"min": 2}), 5) == 2
    assert wanted(model(scaling={"min": 0, "max": 2}), 0) == 0
    assert wanted(model(scaling={"min": 0, "max": 2}), 5) == 2
    assert wanted(model(), 1) == 0


def test_a_failure_is_shown_only_while_its_model_is_short() -> None:
    broken = on(replica(P.FAILED), Course.FAIL)
    assert failures(state(failed={"m": broken})) == [broken]
    assert failures(state(ready(id="m-2"), failed={"m": broken})) == []
    assert failures(state(catalog=catalog(definition("m", {"engine": "sim"})), failed={"m": broken})) == []


def test_an_acknowledgement_needs_every_connected_router() -> None:
    seen = state(routers={"a": RouterState(applied=5), "b": RouterState(applied=4)})
    assert acknowledged(seen, 4)
    assert not acknowledged(seen, 5)


def test_use_is_unknown_while_any_router_has_not_said_since_the_withdrawal() -> None:
    drained = msgspec.structs.replace(on(ready(), Course.DRAIN), withdrawn_by=5)
    said = RouterState(5, {drained.id: EndpointUse(1)}, use_revision=5)
    assert in_flight(state(drained, routers={"a": said}), drained) == 1
    assert in_flight(state(drained, routers={"a": said, "b": RouterState(5)}), drained) is None
    assert in_flight(state(drained, routers={}), drained) is None


def test_the_newest_use_of_any_router_counts() -> None:
    serving = ready()
    routers = {
        "a": RouterState(use={serving.id: EndpointUse(0, 50.0)}),
        "b": RouterState(use={serving.id: EndpointUse(0, 3.0)}),
        "c": RouterState(use={serving.id: EndpointUse(0, None)}),
    }
    assert idle_s(state(serving, routers=routers), serving.id) == 3.0
    assert idle_s(state(serving, routers={}), serving.id) is None


def test_a_model_nobody_can_be_sent_to_says_why_and_a_served_one_does_not() -> None:
    known = catalog(definition("m", {"engine": "sim"}, scaling={"min": 1}))
    refusals, retries = {"m": Refusal("needs 24 GB, has 16 GB", 0.0)}, {"m": Retry(1, 9.0, OOM)}
    assert model_notes(known, {}, refusals, retries) == {"m": ModelNote(False, "needs 24 GB, has 16 GB")}
    failed = model_notes(known, {}, {}, retries)["m"]
    assert failed.reason is not None
    assert OOM.text in failed.reason
    starting = model_notes(known, {"x": replica(P.STARTING)}, {}, {})
    assert starting == {"m": ModelNote(True, None)}
    assert model_notes(known, {"x": ready()}, refusals, retries) == {"m": ModelNote(False, None)}


def test_placement_sees_presence_and_claims() -> None:
    view = placement_view(state(ready(), heard={"n2": 0.0}), 1000.0)
    assert view.presence["n2"] is Presence.LOST
    assert [held.replica for held in view.held["n1"]] == [ready().id]
