"""A pass over one moment: what is failed, given up, withdrawn, stopped, removed, placed; and what is not."""

import random
from collections.abc import Mapping

import msgspec
import pytest

from llmgw.core.catalog import Catalog
from llmgw.core.fleet_state import AgentLink, FleetState, RouterState
from llmgw.core.happenings import EndpointUse
from llmgw.core.reason import Failure
from llmgw.core.reconcile import (
    Decision,
    Decline,
    Fail,
    FinishDrain,
    Lose,
    Place,
    Plan,
    Remove,
    Withdraw,
    reconcile,
)
from llmgw.core.replica import Course, CourseEvent, Ending, Replica, ShardPhase, step_course
from llmgw.core.retry import Retry
from tests.core.makers import catalog, definition, node, report
from tests.core.obedient import CLUSTER, SETTINGS
from tests.core.replicas import OOM, on, ready, replica

P = ShardPhase


def models(count: int = 1, **fields: object) -> Catalog:
    return catalog(definition("m", {"engine": "sim"}, scaling={"min": count}, **fields))


def state(*replicas: Replica, heard: Mapping[str, float] | None = None, **fields: object) -> FleetState:
    """A fleet of three connected nodes at 1000 s; `heard` overrides when each was heard last."""
    names = ("n1", "n2", "n3")
    last = dict.fromkeys(names, 1000.0) | dict(heard or {})
    nodes = {name: msgspec.structs.replace(node(report(name)), last_heard=last[name]) for name in last}
    plain = FleetState(
        settings=SETTINGS,
        catalog=models(),
        nodes=nodes,
        links={name: AgentLink(index, name) for index, name in enumerate(nodes)},
        replicas={one.id: one for one in replicas},
        retries={},
        failed={},
        refusals={},
        routers={"r": RouterState(applied=10, use={}, use_revision=10)},
        revision=10,
        term=1,
        cluster_id=CLUSTER,
        settling_left_s=0.0,
    )
    return msgspec.structs.replace(plain, **fields)


def plan(seen: FleetState, now: float = 1000.0) -> Plan:
    return reconcile(seen, now, random.Random(7))


def decisions(seen: FleetState, now: float = 1000.0) -> list[Decision]:
    return list(plan(seen, now).decisions)


def withdrawn(serving: Replica, *, by: int, at: float) -> Replica:
    drained = step_course(serving, CourseEvent.WITHDRAWN, at, Ending("asked", at))
    return msgspec.structs.replace(drained, withdrawn_by=by)


# ---------------------------------------------------------------- counts


def test_what_is_wanted_and_runs_needs_nothing() -> None:
    assert decisions(state(ready())) == []


def test_a_missing_replica_is_placed_under_an_id_of_its_model_and_eight_hex_digits() -> None:
    (placed,) = decisions(state())
    assert isinstance(placed, Place)
    model, _, digits = placed.placement.replica.rpartition("-")
    assert (model, len(digits), set(digits) <= set("0123456789abcdef")) == ("m", 8, True)


def test_several_missing_replicas_are_placed_in_one_pass_without_sharing_a_port() -> None:
    placed = [one for one in decisions(state(catalog=models(4))) if isinstance(one, Place)]
    taken = [(one.placement.shards[0].node, one.placement.shards[0].claim.ports) for one in placed]
    assert len(set(taken)) == 4


def test_one_that_is_ending_does_not_count_as_running() -> None:
    for course in (Course.DRAIN, Course.STOP, Course.FAIL, Course.LOST):
        assert any(isinstance(one, Place) for one in decisions(state(on(ready(), course))))


def test_over_count_stops_the_never_ready_first_and_a_ready_one_last() -> None:
    serving, starting = ready(id="m-000000aa"), replica(P.STARTING, id="m-000000bb")
    (decision,) = decisions(state(serving, starting), now=10.0)
    assert decision == Withdraw(starting.id, "2 running, 1 wanted")


def test_over_count_stops_a_stale_one_before_one_that_is_not() -> None:
    stale = msgspec.structs.replace(ready(id="m-000000aa"), fingerprint="older")
    (decision,) = decisions(state(stale, ready(id="m-000000bb")))
    assert decision == Withdraw(stale.id, "2 running, 1 wanted")


def test_an_unknown_fingerprint_is_not_stale() -> None:
    unknown = msgspec.structs.replace(ready(id="m-000000aa"), fingerprint="", created_at=0.0)
    newer = msgspec.structs.replace(ready(id="m-000000bb"), created_at=5.0)
    (decision,) = decisions(state(unknown, newer))
    assert decision == Withdraw(newer.id, "2 running, 1 wanted")


def test_over_count_stops_the_longest_unused_then_the_newest() -> None:
    one, two = ready(id="m-000000aa"), ready(id="m-000000bb")
    use = {one.id: EndpointUse(0, 5.0), two.id: EndpointUse(0, 500.0)}
    routers = {"r": RouterState(applied=10, use=use, use_revision=10)}
    (decision,) = decisions(state(one, two, routers=routers))
    assert decision == Withdraw(two.id, "2 running, 1 wanted")


def test_an_on_demand_model_that_runs_is_kept_and_none_is_started() -> None:
    on_demand = catalog(definition("m", {"engine": "sim"}, scaling={"min": 0, "max": 1}))
    assert decisions(state(ready(), catalog=on_demand)) == []
    assert decisions(state(catalog=on_demand)) == []


def test_a_model_that_is_off_runs_nowhere() -> None:
    off = catalog(definition("m", {"engine": "sim"}))
    (decision,) = decisions(state(ready(), catalog=off))
    assert isinstance(decision, Withdraw)


# ---------------------------------------------------------------- what holds placing back


def test_nothing_is_decided_by_a_server_that_does_not_lead() -> None:
    assert plan(state(term=None)) == Plan()


def test_nothing_is_placed_while_settling_but_everything_else_is_done() -> None:
    assert decisions(state(settling_left_s=1.0)) == []
    broken = replica(P.FAILED)
    (decision,) = decisions(state(broken, settling_left_s=1.0))
    assert isinstance(decision, Fail)


def test_a_model_in_backoff_is_not_placed_until_it_has_passed() -> None:
    retries = {"m": Retry(1, 1005.0, OOM)}
    assert decisions(state(retries=retries), now=1004.9) == []
    assert isinstance(decisions(state(retries=retries), now=1005.0)[0], Place)


def test_a_replica_that_fails_now_is_not_replaced_in_the_same_pass() -> None:
    assert [type(one) for one in decisions(state(replica(P.FAILED)))] == [Fail]


def test_a_model_waits_for_the_last_process_of_what_failed_but_not_for_one_that_hangs_or_is_lost() -> None:
    dying = on(replica(P.READY, nodes=("n1",)), Course.FAIL)  # told to stop at 0
    assert decisions(state(dying), now=59.0) == []
    assert isinstance(decisions(state(dying), now=60.0)[0], Place)
    silent = state(dying, heard={"n1": -120.0})
    assert isinstance(decisions(silent, now=10.0)[0], Place)
    over = on(replica(P.FAILED, nodes=("n1",)), Course.FAIL)
    assert [type(one) for one in decisions(state(over), now=10.0)] == [Remove, Place]


def test_what_fits_nowhere_is_said_with_both_numbers_and_touches_nothing_that_runs() -> None:
    huge = catalog(definition("m", {"engine": "sim", "min_memory_gb": 500}, scaling={"min": 2}))
    seen = state(msgspec.structs.replace(ready(), fingerprint=""), catalog=huge)
    (decision,) = decisions(seen)
    assert isinstance(decision, Decline)
    assert decision.refusal is not None
    assert "500 GB" in decision.refusal.line()
    assert "64 GB" in decision.refusal.line()


# ---------------------------------------------------------------- failing, losing


def test_a_failed_shard_fails_its_whole_replica_in_its_agents_words() -> None:
    broken = replica(P.READY, P.FAILED)
    (decision,) = decisions(state(broken))
    assert isinstance(decision, Fail)


def test_a_start_beyond_its_timeout_fails_and_says_what_was_waited_for() -> None:
    (decision,) = decisions(state(replica(P.ASSIGNED)), now=1000.0)
    assert isinstance(decision, Fail)
    assert decision.failure.code is Failure.START_TIMEOUT
    assert "rank 0 assigned" in decision.failure.text
    assert "startup_timeout" in decision.failure.text


def test_an_unreachable_node_keeps_its_replicas() -> None:
    assert decisions(state(ready(), heard={"n1": 1000.0 - 119.0})) == []


def test_a_lost_node_loses_its_replicas_and_they_are_placed_elsewhere_at_once() -> None:
    lose, place = decisions(state(ready(), heard={"n1": 1000.0 - 120.0}))
    assert isinstance(lose, Lose)
    assert isinstance(place, Place)
    assert place.placement.shards[0].node != "n1"


def test_a_replica_with_one_of_its_nodes_lost_fails_whole() -> None:
    half = replica(P.READY, P.READY)
    (decision,) = decisions(state(half, heard={"n2": 0.0}))
    assert isinstance(decision, Fail)
    assert decision.failure.code is Failure.LOST_WITH_NODE
    assert "n2" in decision.failure.text


def test_a_lost_replica_is_removed_once_its_node_says_it_is_gone() -> None:
    lost = on(replica(P.GONE), Course.LOST)
    assert Remove(lost.id) in decisions(state(lost))


def fallen_silent(count: int, of: int) -> FleetState:
    names = [f"n{index}" for index in range(of)]
    heard = {name: 0.0 if index < count else 1000.0 for index, name in enumerate(names)}
    replicas = [ready(id=f"m-{index:08x}", node=name) for index, name in enumerate(names)]
    nodes = {name: msgspec.structs.replace(node(report(name)), last_heard=heard[name]) for name in names}
    return state(*replicas, catalog=models(of), nodes=nodes)


@pytest.mark.parametrize(("silent", "of"), [(3, 5), (4, 4), (6, 10)])
def test_when_most_nodes_fall_silent_at_once_nothing_is_given_up_and_that_is_said(
    silent: int, of: int
) -> None:
    seen = plan(fallen_silent(silent, of))
    assert not any(isinstance(one, Lose | Fail | Place) for one in seen.decisions)
    assert seen.frozen is not None
    assert f"{silent} of {of} nodes" in seen.frozen


@pytest.mark.parametrize(("silent", "of"), [(2, 2), (2, 3), (3, 6), (5, 10)])
def test_a_few_nodes_or_half_of_them_are_given_up_as_usual(silent: int, of: int) -> None:
    seen = plan(fallen_silent(silent, of))
    assert sum(isinstance(one, Lose) for one in seen.decisions) == silent
    assert seen.frozen is None


# ---------------------------------------------------------------- stopping what serves (R6)


def test_a_model_or_profile_that_left_the_catalog_is_withdrawn_first() -> None:
    for gone in (catalog(), catalog(definition("m", {"name": "other", "engine": "sim"}, scaling={"min": 1}))):
        first = decisions(state(ready(), catalog=gone))[0]
        assert isinstance(first, Withdraw)
        assert "m" in first.why


def test_a_withdrawn_replica_stops_once_every_router_acknowledged_and_nothing_is_in_flight() -> None:
    drained = withdrawn(ready(), by=11, at=999.5)
    before = {"r": RouterState(applied=10, use={}, use_revision=10)}
    assert not any(isinstance(one, FinishDrain) for one in decisions(state(drained, routers=before)))
    after = {"r": RouterState(applied=11, use={}, use_revision=11)}
    assert FinishDrain(drained.id, "nothing in flight") in decisions(state(drained, routers=after))


def test_use_reported_before_the_withdrawal_was_in_force_says_nothing() -> None:
    drained = withdrawn(ready(), by=11, at=990.0)
    old = {"r": RouterState(applied=11, use={}, use_revision=10)}
    assert not any(isinstance(one, FinishDrain) for one in decisions(state(drained, routers=old)))


def test_requests_in_flight_hold_a_stop_until_the_grace_is_over() -> None:
    drained = withdrawn(ready(), by=11, at=1000.0)
    busy = {"r": RouterState(applied=11, use={drained.id: EndpointUse(2)}, use_revision=11)}
    seen = state(drained, routers=busy)
    assert not any(isinstance(one, FinishDrain) for one in decisions(seen, now=1599.0))
    finished = [one for one in decisions(seen, now=1600.0) if isinstance(one, FinishDrain)]
    assert "2 requests cut" in finished[0].why


def test_any_one_of_several_routers_holds_a_stop() -> None:
    drained = withdrawn(ready(), by=11, at=990.0)
    done = RouterState(applied=11, use={}, use_revision=11)
    busy = RouterState(applied=11, use={drained.id: EndpointUse(1)}, use_revision=11)
    seen = state(drained, routers={"a": done, "b": busy})
    assert not any(isinstance(one, FinishDrain) for one in decisions(seen))


def test_with_no_router_connected_a_stop_waits_as_long_as_a_node_may_be_silent() -> None:
    drained = withdrawn(ready(), by=11, at=1000.0)
    seen = state(drained, routers={})
    assert not any(isinstance(one, FinishDrain) for one in decisions(seen, now=1014.0))
    assert FinishDrain(drained.id, "no router is connected") in decisions(seen, now=1015.0)


def test_what_never_served_has_nothing_to_drain() -> None:
    drained = on(replica(P.STARTING), Course.DRAIN)
    assert FinishDrain(drained.id, "it was not serving") in decisions(state(drained))


def test_claims_are_released_whole_only_when_the_last_process_is_gone() -> None:
    stopping = on(replica(P.READY, P.GONE), Course.FAIL)
    assert not any(isinstance(one, Remove) for one in decisions(state(stopping)))
    over = on(replica(P.FAILED, P.GONE), Course.FAIL)
    assert Remove(over.id) in decisions(state(over))
