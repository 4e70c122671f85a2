"""The order in which nodes are tried."""

from collections.abc import Mapping, Sequence
from typing import Any

from llmgw.core.candidates import Candidates
from llmgw.core.claims import Claim, Held
from llmgw.core.fit import Spot, need_of
from llmgw.core.inventory import Mark, Node, Presence
from llmgw.core.units import GB
from tests.core.makers import gpus, held, model, node, report, weights

CARD = {"engine": "vllm", "gpu_class": "H100-80GB"}
SIM = {"engine": "sim"}


def candidates(*nodes: Node, claims: Mapping[str, Sequence[Held]] | None = None) -> Candidates:
    claimed = claims or {}
    return Candidates({each.id: Spot(each, Presence.READY, claimed.get(each.id, ()), GB) for each in nodes})


def order(found: Candidates, profile: Mapping[str, Any], **fields: Any) -> list[str]:
    wanted = model("m", profile, **fields)
    return list(found.preferred(wanted, need_of(wanted.profiles[0])))


def cards_taken(*indices: int) -> Held:
    return held("x-1", Claim(gpus=indices))


def test_a_cpu_replica_goes_where_fewest_of_its_model_run_then_weights_then_fewest_claims_then_id() -> None:
    nodes = [
        node(report("a-has-one", weights=weights("/models/m.gguf"))),
        node(report("b-busy")),
        node(report("c-weights", weights=weights("/models/m.gguf"))),
        node(report("d-free")),
        node(report("e-free")),
        node(report("f-has-two")),
    ]
    claims = {
        "a-has-one": [held("m-1", model="m")],
        "b-busy": [held("o-1")],
        "c-weights": [held("o-2"), held("o-3")],
        "f-has-two": [held("m-2", model="m"), held("m-3", model="m")],
    }
    assert order(candidates(*nodes, claims=claims), SIM) == [
        "c-weights",
        "d-free",
        "e-free",
        "b-busy",
        "a-has-one",
        "f-has-two",
    ]


def test_cards_are_packed_weights_first_then_the_fullest_node() -> None:
    nodes = [node(report(id, gpus=gpus(4))) for id in ("a-empty", "b-half", "c-full", "d-one-left")]
    nodes.append(node(report("e-weights", gpus=gpus(4), weights=weights("/models/m.gguf"))))
    claims = {
        "b-half": [cards_taken(0, 1)],
        "c-full": [cards_taken(0, 1, 2, 3)],
        "d-one-left": [cards_taken(0, 1, 2)],
    }
    found = candidates(*nodes, claims=claims)
    assert order(found, CARD) == ["e-weights", "d-one-left", "b-half", "a-empty"]
    assert order(found, {**CARD, "tensor_parallel": 2}) == ["e-weights", "b-half", "a-empty"]


def test_a_share_goes_where_it_opens_no_new_card_before_the_fullest_node() -> None:
    nodes = [node(report(id, gpus=gpus(2))) for id in ("a-one-whole", "b-shared", "c-empty")]
    claims = {
        "a-one-whole": [cards_taken(0)],
        "b-shared": [held("s-1", Claim(gpus=(0,), gpu_memory_bytes=10 * GB))],
    }
    share = {**CARD, "gpu_memory_gb": 10}
    assert order(candidates(*nodes, claims=claims), share) == ["b-shared", "a-one-whole", "c-empty"]


def test_a_node_never_asked_to_look_ranks_with_one_that_has_nothing() -> None:
    nodes = [node(report("a", weights=())), node(report("b", weights=None)), node(report("c", weights=()))]
    assert order(candidates(*nodes), SIM) == ["a", "b", "c"]


def test_weights_are_known_by_path_and_by_source() -> None:
    fetched = weights("/cache/x")[0]
    nodes = [
        node(report("a")),
        node(report("b", weights=(type(fetched)("/cache/x", 1, "hf:o/r"),))),
        node(report("c", weights=weights("/models/m.gguf"))),
    ]
    llama = {"engine": "sim"}
    assert order(candidates(*nodes), llama, source="hf:o/r") == ["b", "a", "c"]
    assert order(candidates(*nodes), llama, source="file:/models/m.gguf") == ["c", "a", "b"]


def test_nodes_that_are_closed_or_do_not_suit_are_not_tried() -> None:
    nodes = [
        node(report("a"), Mark.CORDONED),
        node(report("b", engines=("vllm",))),
        node(report("c", labels={"pool": "x"})),
        node(report("d")),
    ]
    assert order(candidates(*nodes), {**SIM, "node_selector": {"pool": "x"}}) == ["c"]


def test_the_order_follows_the_claims_of_the_pass() -> None:
    found = candidates(*(node(report(id, gpus=gpus(2))) for id in ("a", "b")))
    assert (order(found, SIM), order(found, CARD)) == (["a", "b"], ["a", "b"])
    found.take("b", cards_taken(0))
    assert (order(found, SIM), order(found, CARD)) == (["a", "b"], ["b", "a"])
    found.take("a", held("m-1", model="m"))
    assert order(found, SIM) == ["b", "a"]


def test_many_holders_and_few_are_ordered_alike() -> None:
    few = [
        node(report(f"n{index:02}", weights=weights("/models/m.gguf") if index in (5, 30) else ()))
        for index in range(40)
    ]
    many = [
        node(report(f"n{index:02}", weights=() if index in (5, 30) else weights("/models/m.gguf")))
        for index in range(40)
    ]
    assert order(candidates(*few), SIM)[:3] == ["n05", "n30", "n00"]
    assert order(candidates(*many), SIM)[-2:] == ["n05", "n30"]


def test_a_claim_taken_before_anything_was_counted_counts_once() -> None:
    found = candidates(node(report("a")))
    mine = model("m", {"engine": "sim"})
    found.take("a", held("m-1", model="m"))
    assert found.why(mine, need_of(mine.profiles[0]), "a").endswith("has 1 of this model and 1 claims")
