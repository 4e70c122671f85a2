"""Placement: the best profile that fits, nothing handed out twice, every refusal in words."""

from collections.abc import Mapping
from typing import Any

from llmgw.core.catalog import Model
from llmgw.core.claims import Claim
from llmgw.core.inventory import Mark, Presence
from llmgw.core.placement import (
    Explanation,
    FleetView,
    Placement,
    PlacementPass,
    PlacementRequest,
    PortRange,
    Unplaceable,
    explain,
    place,
)
from llmgw.core.reason import Unfit
from llmgw.core.units import GB
from tests.core.makers import gpus, held, model, node, report, view, weights

CARD = {"engine": "vllm", "gpu_class": "H100-80GB"}
SIM = {"engine": "sim"}


def ask(wanted: Model, number: int = 1) -> PlacementRequest:
    return PlacementRequest(f"{wanted.slug}-{number:08x}", wanted)


def placed(fleet: FleetView, *profiles: Mapping[str, Any], **fields: Any) -> Placement:
    outcome = place(ask(model("m", *profiles, **fields)), fleet)
    assert isinstance(outcome, Placement), outcome
    return outcome


def refused(fleet: FleetView, *profiles: Mapping[str, Any], **fields: Any) -> Unplaceable:
    outcome = place(ask(model("m", *profiles, **fields)), fleet)
    assert isinstance(outcome, Unplaceable), outcome
    return outcome


def test_a_cpu_replica_claims_memory_and_a_port_of_one_node() -> None:
    outcome = placed(view(node(report("n"))), {**SIM, "min_memory_gb": 4})
    (shard,) = outcome.shards
    assert (outcome.model, outcome.profile, shard.node, shard.rank) == ("m", "p0", "n", 0)
    assert (shard.claim.gpus, shard.claim.memory_bytes) == ((), 4 * GB)
    assert len(shard.claim.ports) == 1
    assert 20000 <= shard.claim.ports[0] <= 20099


def test_a_replica_on_cards_claims_exactly_as_many_of_its_class() -> None:
    outcome = placed(view(node(report("n", gpus=gpus(4)))), {**CARD, "tensor_parallel": 2})
    assert outcome.shards[0].claim.gpus == (0, 1)


def test_the_highest_priority_profile_that_fits_is_used() -> None:
    big = {**CARD, "tensor_parallel": 8, "priority": 100}
    small = {**CARD, "priority": 50}
    assert placed(view(node(report("n", gpus=gpus(8)))), SIM, small, big).profile == "p2"
    assert placed(view(node(report("n", gpus=gpus(4)))), SIM, small, big).profile == "p1"
    assert placed(view(node(report("n"))), SIM, small, big).profile == "p0"


def test_why_says_what_spoke_for_the_node() -> None:
    assert (
        placed(view(node(report("n"))), SIM).why == "weights not seen there; has 0 of this model and 0 claims"
    )
    there = node(report("n", gpus=gpus(4), weights=weights("/models/m.gguf")))
    assert placed(view(there), CARD).why == "has the weights; fullest that fits, with 4 free H100-80GB"
    assert placed(view(there), SIM, source=None).why.startswith("needs no weights")


def test_weights_and_spreading_never_filter() -> None:
    full = node(report("a-weights", memory_gb=1, weights=weights("/models/m.gguf")))
    fleet = view(full, node(report("b")), held={"b": [held("m-1", model="m")]})
    assert placed(fleet, {**SIM, "min_memory_gb": 4}).shards[0].node == "b"


def test_a_pass_sees_its_own_placements() -> None:
    looked = PlacementPass(view(node(report("n", gpus=gpus(2)))))
    wanted = model("m", CARD)
    outcomes = [looked.place(ask(wanted, number)) for number in range(3)]
    claims = [outcome.shards[0].claim for outcome in outcomes if isinstance(outcome, Placement)]
    assert [claim.gpus for claim in claims] == [(0,), (1,)]
    assert claims[0].ports != claims[1].ports
    assert isinstance(outcomes[2], Unplaceable)
    assert "stop m-00000001" in outcomes[2].line()


def test_cpu_replicas_spread_and_then_share_the_only_node() -> None:
    looked = PlacementPass(view(node(report("a")), node(report("b"))))
    wanted = model("m", SIM)
    nodes = []
    for number in range(4):
        outcome = looked.place(ask(wanted, number))
        assert isinstance(outcome, Placement)
        nodes.append(outcome.shards[0].node)
    assert nodes == ["a", "b", "a", "b"]


def test_ports_taken_are_never_given_and_a_replica_finds_the_last_one() -> None:
    fleet = view(
        node(report("n", ports_in_use=(20000,))),
        held={"n": [held("x-1", Claim(ports=(20002,)))]},
        ports=PortRange(20000, 20002),
    )
    assert placed(fleet, SIM).shards[0].claim.ports == (20001,)


def test_a_port_given_back_is_not_the_next_one_given_out() -> None:
    fleet = view(node(report("n")))
    ports = {place(ask(model("m", SIM), number), fleet) for number in range(20)}
    assert len({outcome.shards[0].claim.ports for outcome in ports if isinstance(outcome, Placement)}) > 10


def test_a_refusal_counts_reasons_and_names_the_first_node_of_each() -> None:
    nodes = [node(report(f"small{index}", memory_gb=16)) for index in range(3)]
    fleet = view(*nodes, node(report("closed"), Mark.CORDONED), node(report("bare", engines=())))
    outcome = refused(fleet, {**SIM, "min_memory_gb": 24})
    assert [(reason.code, reason.count, reason.node) for reason in outcome.profiles[0].reasons] == [
        (Unfit.MEMORY, 3, "small0"),
        (Unfit.ENGINE_MISSING, 1, "bare"),
        (Unfit.NODE_CORDONED, 1, "closed"),
    ]
    assert outcome.line() == (
        "p0: small0 and 2 more: needs 24 GB memory, has 16 GB "
        "(add memory, or lower what the profile asks for); "
        "bare: needs sim, has no engine (install sim on bare); "
        "closed: needs a node open to work, has one that is cordoned (llmgw ctl uncordon closed)"
    )


def test_a_fleet_without_nodes_says_so() -> None:
    assert refused(view(), SIM).line() == "p0: needs a node, has none (start llmgw agent on a machine)"


def test_a_node_whose_presence_is_not_given_counts_as_unreachable() -> None:
    fleet = view(node(report("n")))
    silent = FleetView(fleet.nodes, {}, {}, fleet.ports, fleet.foreign_memory_bytes)
    assert refused(silent, SIM).profiles[0].reasons[0].code is Unfit.NODE_UNREACHABLE


def test_several_nodes_are_not_supported_yet_and_the_next_profile_is_tried() -> None:
    wide = {**CARD, "nodes": 2, "tensor_parallel": 2, "priority": 9}
    fleet = view(node(report("n", gpus=gpus(8))))
    assert placed(fleet, wide, CARD).profile == "p1"
    assert refused(fleet, wide).line() == (
        "p0: needs 2 nodes, has 1 node, more are not supported by this version (use a profile with nodes: 1)"
    )


def test_a_need_refused_once_is_refused_alike_for_every_model() -> None:
    looked = PlacementPass(view(node(report("n", memory_gb=1))))
    outcomes = [looked.place(ask(model(name, {**SIM, "min_memory_gb": 2}))) for name in ("a", "b")]
    assert isinstance(outcomes[0], Unplaceable)
    assert isinstance(outcomes[1], Unplaceable)
    assert (outcomes[0].profiles, outcomes[1].model) == (outcomes[1].profiles, "b")


def explained(fleet: FleetView, *profiles: Mapping[str, Any]) -> Explanation:
    return explain(ask(model("m", *profiles)), fleet)


def test_explain_lists_every_node_for_every_profile() -> None:
    fleet = view(
        node(report("a", gpus=gpus(1))),
        node(report("b", gpus=gpus(1))),
        node(report("c")),
        node(report("d")),
        held={"a": [held("x-1", Claim(gpus=(0,)))]},
        presence={"d": Presence.LOST},
    )
    found = explained(fleet, {**CARD, "priority": 1}, SIM, {**CARD, "nodes": 2, "tensor_parallel": 2})
    verdicts = [
        [
            (verdict.node, verdict.rejection and verdict.rejection.code, verdict.chosen)
            for verdict in profile.nodes
        ]
        for profile in found.profiles
    ]
    assert verdicts == [
        [
            ("b", None, True),
            ("a", Unfit.GPU_COUNT, False),
            ("c", Unfit.GPU_CLASS, False),
            ("d", Unfit.NODE_LOST, False),
        ],
        [("b", None, False), ("c", None, False), ("a", None, False), ("d", Unfit.NODE_LOST, False)],
        [],
    ]
    shape = found.profiles[2].rejection
    assert shape is not None
    assert shape.code is Unfit.UNSUPPORTED_SHAPE
    assert found.outcome == place(ask(model("m", {**CARD, "priority": 1}, SIM)), fleet)


def test_explain_of_the_unplaceable_has_the_same_reasons_as_the_refusal() -> None:
    fleet = view(node(report("a", memory_gb=1)), node(report("b", memory_gb=2)))
    found = explained(fleet, {**SIM, "min_memory_gb": 4})
    assert isinstance(found.outcome, Unplaceable)
    rejections = [verdict.rejection for verdict in found.profiles[0].nodes]
    assert rejections[0] == found.outcome.profiles[0].reasons[0].example
    assert len(rejections) == found.outcome.profiles[0].reasons[0].count == 2
