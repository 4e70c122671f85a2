"""Whether a node can take a shard, and the words when it cannot."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from llmgw.core.claims import Claim, Held, PortRange
from llmgw.core.fit import Spot, absent_unfit, fitting_cards, need_of, rejection, room_unfit, standing_unfit
from llmgw.core.inventory import ForeignProcess, Gpu, Mark, Node, OperatorMark, Presence
from llmgw.core.reason import Unfit
from llmgw.core.units import GB
from tests.core.makers import gpus, held, model, node, report

PORTS = PortRange(20000, 20001)
CARD = {"engine": "vllm", "gpu_class": "H100-80GB"}


def refusal(
    profile: Mapping[str, Any], on: Node, claims: Sequence[Held] = (), presence: Presence = Presence.READY
) -> tuple[Unfit, str] | None:
    """The reason and its line, by the same steps as placement takes."""
    need = need_of(model("m", profile).profiles[0])
    spot = Spot(on, presence, claims, GB)
    code = absent_unfit(on, presence)
    if code is None:
        code = standing_unfit(spot.report(), need) or room_unfit(spot, need, PORTS)
    return None if code is None else (code, rejection(spot, need, PORTS, code).line())


@pytest.mark.parametrize(
    ("on", "presence", "expected"),
    [
        (
            node(report("n")),
            Presence.LOST,
            (Unfit.NODE_LOST, "needs a node that is heard, has one that is lost: start the agent on n"),
        ),
        (
            node(report("n")),
            Presence.UNREACHABLE,
            (
                Unfit.NODE_UNREACHABLE,
                "needs a node that is heard, has one that is not heard: start the agent on n",
            ),
        ),
        (
            Node("n", None, OperatorMark(), None, 0),
            Presence.READY,
            (
                Unfit.NODE_UNREACHABLE,
                "needs a node that is heard, has one that is not heard: start the agent on n",
            ),
        ),
        (
            node(report("n"), Mark.CORDONED, "new disk"),
            Presence.READY,
            (
                Unfit.NODE_CORDONED,
                "needs a node open to work, has one that is cordoned (new disk): llmgw ctl uncordon n",
            ),
        ),
        (
            node(report("n"), Mark.DRAINING),
            Presence.READY,
            (
                Unfit.NODE_DRAINING,
                "needs a node open to work, has one that is draining: llmgw ctl uncordon n",
            ),
        ),
    ],
)
def test_nothing_new_goes_to_a_node_that_is_away_or_closed(
    on: Node, presence: Presence, expected: tuple[Unfit, str]
) -> None:
    assert refusal({"engine": "sim"}, on, presence=presence) == expected


def test_the_engine_must_be_there_unless_engines_were_not_reported() -> None:
    assert refusal({"engine": "sim"}, node(report("n", engines=None))) is None
    assert refusal({"engine": "sim"}, node(report("n", engines=()))) == (
        Unfit.ENGINE_MISSING,
        "needs sim, has no engine: install sim on n",
    )
    assert refusal({"engine": "vllm", "gpu_class": "cpu", "install": "v2"}, node(report("n"))) == (
        Unfit.ENGINE_MISSING,
        "needs vllm as v2, has sim, vllm: install vllm on n",
    )


def test_labels_must_all_match() -> None:
    profile = {"engine": "sim", "node_selector": {"pool": "coding", "zone": "a"}}
    assert refusal(profile, node(report("n", labels={"pool": "coding", "zone": "a", "more": "x"}))) is None
    assert refusal(profile, node(report("n", labels={"pool": "chat"}))) == (
        Unfit.LABELS,
        "needs label pool=coding, zone=a, has pool=chat, no zone: "
        "change labels on n or the profile's node_selector",
    )


def test_memory_names_both_numbers_and_who_holds_most() -> None:
    claims = [held("a-1", Claim(memory_bytes=5 * GB)), held("b-2", Claim(memory_bytes=10 * GB))]
    profile = {"engine": "sim", "min_memory_gb": 24}
    assert refusal(profile, node(report("n", memory_gb=31)), claims) == (
        Unfit.MEMORY,
        "needs 24 GB memory, has 31 GB, 15 GB claimed: "
        "stop b-2, add memory, or lower what the profile asks for",
    )
    assert refusal(profile, node(report("n", memory_gb=16))) == (
        Unfit.MEMORY,
        "needs 24 GB memory, has 16 GB: add memory, or lower what the profile asks for",
    )


@pytest.mark.parametrize(("memory_gb", "need_gb"), [(None, 24), (8, None), (24, 24)])
def test_memory_that_is_unknown_not_asked_for_or_just_enough_fits(
    memory_gb: float | None, need_gb: float | None
) -> None:
    profile = {"engine": "sim"} | ({} if need_gb is None else {"min_memory_gb": need_gb})
    assert refusal(profile, node(report("n", memory_gb=memory_gb))) is None


def test_only_cards_of_the_class_count() -> None:
    mixed = (*gpus(1), Gpu(1, gpu_class="A100-40GB"))
    assert refusal(CARD, node(report("n", gpus=mixed))) is None
    assert refusal({**CARD, "tensor_parallel": 2}, node(report("n", gpus=mixed))) == (
        Unfit.GPU_COUNT,
        "needs 2 cards H100-80GB, has 1 free of 1: add cards, or lower what the profile asks for",
    )
    assert refusal({**CARD, "gpu_class": "B200-192GB"}, node(report("n", gpus=mixed))) == (
        Unfit.GPU_CLASS,
        "needs 1 card B200-192GB, has A100-40GB, H100-80GB: use a profile for the cards it has",
    )


def test_cards_not_reported_cannot_be_claimed_and_none_is_none() -> None:
    assert refusal(CARD, node(report("n"))) == (
        Unfit.GPU_CLASS,
        "needs 1 card H100-80GB, has cards it did not report: llmgw agent --describe on n",
    )
    assert refusal(CARD, node(report("n", gpus=()))) == (
        Unfit.GPU_CLASS,
        "needs 1 card H100-80GB, has no cards: use a profile for the cards it has",
    )


def test_a_card_that_is_not_free_is_named_with_the_reason() -> None:
    cards = (
        *gpus(1),
        Gpu(1, gpu_class="H100-80GB", foreign=(ForeignProcess(4711, 30 * GB, "train.py"),)),
        Gpu(2, gpu_class="H100-80GB", ecc_uncorrected=1),
    )
    assert refusal(CARD, node(report("n", gpus=cards)), [held("a-1", Claim(gpus=(0,)))]) == (
        Unfit.GPU_COUNT,
        "needs 1 card H100-80GB, has 0 free of 3 "
        "(1 used; card 1: process 4711 (train.py) of someone else uses 30 GB; "
        "card 2: 1 uncorrectable memory errors): "
        "stop a-1, add cards, or lower what the profile asks for",
    )


def test_a_share_needs_room_on_enough_cards() -> None:
    share = {**CARD, "gpu_memory_gb": 30}
    on = node(report("n", gpus=gpus(2)))
    claims = [held("a-1", Claim(gpus=(0,), gpu_memory_bytes=60 * GB)), held("b-1", Claim(gpus=(1,)))]
    assert refusal(share, on, claims[:1]) is None
    assert refusal(share, on, claims) == (
        Unfit.GPU_MEMORY,
        "needs 1 card H100-80GB with 30 GB each, has 0 free of 2 (2 used; free per card 20 GB): "
        "stop b-1, add cards, or lower what the profile asks for",
    )


def test_a_share_goes_on_the_fullest_card_that_has_room() -> None:
    claims = [
        held("a-1", Claim(gpus=(1,), gpu_memory_bytes=20 * GB)),
        held("b-1", Claim(gpus=(2,), gpu_memory_bytes=40 * GB)),
        held("c-1", Claim(gpus=(3,), gpu_memory_bytes=70 * GB)),
    ]
    spot = Spot(node(report("n", gpus=gpus(4))), Presence.READY, claims, GB)
    assert fitting_cards(spot, need_of(model("m", {**CARD, "gpu_memory_gb": 30}).profiles[0])) == (2,)
    two = {**CARD, "gpu_memory_gb": 30, "tensor_parallel": 2}
    assert fitting_cards(spot, need_of(model("m", two).profiles[0])) == (1, 2)


def test_a_port_must_be_free_in_the_range() -> None:
    on = node(report("n", ports_in_use=(20000, 443)))
    assert refusal({"engine": "sim"}, on) is None
    assert refusal({"engine": "sim"}, on, [held("a-1", Claim(ports=(20001,)))]) == (
        Unfit.PORTS,
        "needs 1 free port, has none of 20000-20001: widen control.ports",
    )


def test_a_claim_of_the_pass_counts_at_once() -> None:
    spot = Spot(node(report("n", gpus=gpus(2))), Presence.READY, (), GB)
    need = need_of(model("m", {**CARD, "tensor_parallel": 2}).profiles[0])
    assert fitting_cards(spot, need) == (0, 1)
    spot.take(held("a-1", Claim(gpus=(0,))))
    assert (fitting_cards(spot, need), room_unfit(spot, need, PORTS)) == ((), Unfit.GPU_COUNT)
