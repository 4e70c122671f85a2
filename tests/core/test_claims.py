"""Claims and what they leave: counted whole, never twice, by the smaller of claims and card."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.claims import Card, CardUse, Claim, PortRange, cards_on, free_port, left_on
from llmgw.core.inventory import ForeignProcess, Gpu
from llmgw.core.units import GB
from tests.core.makers import gpus, report

LIMIT = GB


def card(gpu: Gpu, *claims: Claim) -> Card:
    return cards_on(report("n", gpus=(gpu,)), claims, LIMIT)[0]


def total(**fields: object) -> Gpu:
    return Gpu(0, gpu_class="X", memory_total_bytes=80 * GB, **fields)  # type: ignore[arg-type]


def test_memory_left_is_the_total_minus_declared_claims() -> None:
    left = left_on(report("n", memory_gb=31), [Claim(memory_bytes=15 * GB), Claim()], LIMIT)
    assert left.memory_free_bytes() == 16 * GB


def test_memory_nobody_reported_is_unknown() -> None:
    assert left_on(report("n", memory_gb=None), [Claim(memory_bytes=GB)], LIMIT).memory_free_bytes() is None


def test_ports_are_taken_by_claims_and_by_whatever_is_bound() -> None:
    left = left_on(report("n", ports_in_use=(20001,)), [Claim(ports=(20005, 20006))], LIMIT)
    assert left.ports == {20001, 20005, 20006}


def test_whole_cards_left_are_the_unclaimed_healthy_ones_of_each_class() -> None:
    cards = (*gpus(4), Gpu(4, gpu_class="A"), Gpu(5, gpu_class="A", ecc_uncorrected=1))
    left = left_on(report("n", gpus=cards), [Claim(gpus=(1, 2))], LIMIT)
    assert left.whole == {"H100-80GB": (0, 3), "A": (4,)}


def test_a_share_takes_its_card_from_the_whole_ones() -> None:
    left = left_on(report("n", gpus=gpus(2)), [Claim(gpus=(0,), gpu_memory_bytes=GB)], LIMIT)
    assert left.whole == {"H100-80GB": (1,)}


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (total(ecc_uncorrected=2), "2 uncorrectable memory errors"),
        (
            total(foreign=(ForeignProcess(7, 30 * GB, "python"), ForeignProcess(8, GB))),
            "process 7 (python) of someone else uses 31 GB",
        ),
        (total(foreign=(ForeignProcess(7),)), "process 7 of someone else uses -"),
        (
            total(foreign=(ForeignProcess(7),), memory_used_bytes=2 * GB),
            "process 7 of someone else uses 2 GB",
        ),
        (total(memory_used_bytes=70 * GB), "70 GB in use by an unknown process"),
        (total(memory_used_bytes=70 * GB, foreign=()), "70 GB in use by an unknown process"),
    ],
)
def test_a_card_that_is_broken_or_someone_elses_is_neither_used_nor_free(gpu: Gpu, why: str) -> None:
    found = card(gpu)
    assert (found.use, found.why) == (CardUse.UNHEALTHY, why)
    assert left_on(report("n", gpus=(gpu,)), [], LIMIT).whole == {}


@pytest.mark.parametrize(
    "gpu",
    [
        total(),
        total(ecc_uncorrected=0, foreign=(), memory_used_bytes=GB // 2),
        total(foreign=(ForeignProcess(7, GB // 2),)),
        total(foreign=(ForeignProcess(7),), memory_used_bytes=GB // 2),
    ],
)
def test_small_use_by_others_and_what_is_unknown_leave_a_card_free(gpu: Gpu) -> None:
    assert card(gpu).use is CardUse.FREE
    assert left_on(report("n", gpus=(gpu,)), [], LIMIT).whole == {"X": (0,)}


def test_a_claimed_card_is_used_and_its_own_memory_is_no_stranger() -> None:
    found = card(total(memory_used_bytes=70 * GB), Claim(gpus=(0,)))
    assert (found.use, found.why, found.free_bytes) == (CardUse.USED, None, 0)


@pytest.mark.parametrize(
    ("gpu", "shares", "free"),
    [
        (total(), [], 80 * GB),
        (total(), [20 * GB, 10 * GB], 50 * GB),
        (total(memory_used_bytes=60 * GB), [20 * GB], 20 * GB),  # it uses more than it claimed
        (total(memory_used_bytes=5 * GB), [20 * GB], 60 * GB),  # still loading
        (total(foreign=(ForeignProcess(7, GB // 2),)), [20 * GB], 60 * GB - GB // 2),
        (total(), [20 * GB, None], 0),
        (total(), [90 * GB], 0),
        (Gpu(0, gpu_class="X"), [], None),
        (Gpu(0, gpu_class="X"), [GB], 0),
        (total(ecc_uncorrected=1), [], 0),
    ],
)
def test_what_a_share_can_take_is_the_smaller_of_claims_and_live_reading(
    gpu: Gpu, shares: list[int | None], free: int | None
) -> None:
    claims = [Claim(gpus=(0,), gpu_memory_bytes=share) for share in shares]
    assert card(gpu, *claims).free_bytes == free


CLAIMS = st.builds(
    Claim,
    gpus=st.sets(st.integers(0, 5)).map(lambda cards: tuple(sorted(cards))),
    gpu_memory_bytes=st.none() | st.integers(1, 10),
    memory_bytes=st.none() | st.integers(0, 100),
    ports=st.lists(st.integers(1, 9), max_size=2).map(tuple),
)
CARDS = st.builds(
    Gpu,
    index=st.integers(0, 5),
    gpu_class=st.sampled_from(["A", "B", None]),
    memory_total_bytes=st.none() | st.just(80 * GB),
    memory_used_bytes=st.none() | st.sampled_from([0, 2 * GB]),
    ecc_uncorrected=st.none() | st.integers(0, 1),
)


@given(st.lists(CARDS, max_size=6, unique_by=lambda gpu: gpu.index), st.lists(CLAIMS, max_size=4), CLAIMS)
def test_taking_a_claim_is_the_same_as_counting_again(
    cards: list[Gpu], claims: list[Claim], more: Claim
) -> None:
    node = report("n", gpus=tuple(cards))
    assert left_on(node, claims, LIMIT).less(more) == left_on(node, [*claims, more], LIMIT)


@given(st.lists(CARDS, max_size=6, unique_by=lambda gpu: gpu.index), st.lists(CLAIMS, max_size=4))
def test_whole_cards_left_are_exactly_the_free_ones(cards: list[Gpu], claims: list[Claim]) -> None:
    node = report("n", gpus=tuple(cards))
    whole = {index for indices in left_on(node, claims, LIMIT).whole.values() for index in indices}
    assert whole == {card.index for card in cards_on(node, claims, LIMIT) if card.use is CardUse.FREE}


def test_the_next_free_port_wraps_around_and_ends() -> None:
    ports = PortRange(10, 12)
    assert free_port(ports, frozenset(), 0) == 10
    assert free_port(ports, frozenset(), 5) == 12
    assert free_port(ports, frozenset({12}), 2) == 10
    assert free_port(ports, frozenset({10, 11, 12}), 1) is None
