"""Properties of placement over random clusters (P2, P3, P7, P8): at least 400 of them a run."""

import os
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from time import perf_counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import Model, Profile
from llmgw.core.claims import CardUse, Claim, Held, cards_on
from llmgw.core.inventory import (
    EngineInstall,
    ForeignProcess,
    Gpu,
    Mark,
    Node,
    NodeReport,
    OperatorMark,
    Presence,
    WeightFile,
)
from llmgw.core.placement import (
    FleetView,
    Placement,
    PlacementPass,
    PlacementRequest,
    PortRange,
    Unplaceable,
    explain,
    place,
)
from llmgw.core.units import GB
from tests.core.makers import gpus, model, node, report, view

CLUSTERS = int(os.environ.get("LLMGW_TEST_CLUSTERS", "400"))  # thousands by setting it
CLASSES = ("H100-80GB", "A100-40GB")
SOURCES = ("/models/one.gguf", "/models/two.gguf")

# Most nodes are well: a cluster where nothing fits shows nothing.
USUAL_MARKS = [Mark.READY] * 8 + [*Mark]
USUAL_PRESENCE = [Presence.READY] * 8 + [*Presence]
ODD_CARDS: list[dict[str, Any]] = [
    {"ecc_uncorrected": 3},
    {"foreign": (ForeignProcess(1, 9 * GB),)},
    {"foreign": (ForeignProcess(1, GB // 2),)},
    {"foreign": (ForeignProcess(1),)},
    {"memory_used_bytes": 30 * GB},
    {"memory_used_bytes": GB // 2},
    {"memory_total_bytes": 40 * GB},
    {"memory_total_bytes": None},
]
ENGINE_SETS: list[dict[str, EngineInstall] | None] = [
    None,
    {},
    {"sim": EngineInstall("sim")},
    *[{"sim": EngineInstall("sim"), "vllm": EngineInstall("vllm")}] * 4,
    {"sim": EngineInstall("sim"), "vllm-2": EngineInstall("vllm")},
    {"vllm-2": EngineInstall("sim"), "vllm": EngineInstall("vllm")},
]


@st.composite
def card_sets(draw: st.DrawFn) -> tuple[Gpu, ...] | None:
    count = draw(st.sampled_from([None, 0, 1, 2, 4, 8]))
    if count is None:
        return None
    first, other = draw(st.sampled_from([(CLASSES[0], CLASSES[0]), CLASSES, CLASSES[::-1]]))
    odd = draw(st.dictionaries(st.integers(0, 7), st.sampled_from(ODD_CARDS), max_size=2))
    return tuple(
        Gpu(
            index,
            gpu_class=first if index < 4 else other,
            **{"memory_total_bytes": 80 * GB, **odd.get(index, {})},
        )
        for index in range(count)
    )


claims = st.builds(
    Claim,
    gpus=st.lists(st.integers(0, 7), max_size=2, unique=True).map(tuple),
    gpu_memory_bytes=st.sampled_from([None, 10 * GB]),
    memory_bytes=st.sampled_from([None, 4 * GB]),
    ports=st.lists(st.integers(20000, 20015), max_size=1).map(tuple),
)


@st.composite
def nodes(draw: st.DrawFn, id: str) -> Node:
    reported = NodeReport(
        id=id,
        address=id,
        labels=draw(st.sampled_from([{}, {"pool": "a"}, {"pool": "b", "zone": "x"}])),
        memory_total_bytes=draw(st.sampled_from([None, 8 * GB, 64 * GB])),
        gpus=draw(card_sets()),
        engines=draw(st.sampled_from(ENGINE_SETS)),
        weights=draw(
            st.none()
            | st.lists(st.builds(WeightFile, st.sampled_from(SOURCES), st.just(1)), max_size=2).map(tuple)
        ),
        ports_in_use=draw(st.none() | st.lists(st.integers(20000, 20015), max_size=2).map(tuple)),
    )
    silent = draw(st.sampled_from([False] * 9 + [True]))
    return Node(id, None if silent else reported, OperatorMark(draw(st.sampled_from(USUAL_MARKS))), 0.0, 0.0)


profiles = st.fixed_dictionaries(
    {"engine": st.just("sim")},
    optional={
        "min_memory_gb": st.sampled_from([0, 2, 6, 40]),
        "node_selector": st.sampled_from([{"pool": "a"}, {"pool": "b", "zone": "x"}]),
        "priority": st.integers(0, 2),
    },
) | st.fixed_dictionaries(
    {
        "engine": st.just("vllm"),
        "gpu_class": st.sampled_from(CLASSES),
        "tensor_parallel": st.sampled_from([1, 2, 4]),
    },
    optional={
        "gpu_memory_gb": st.sampled_from([5, 35]),
        "min_memory_gb": st.sampled_from([2, 6]),
        "install": st.sampled_from(["vllm", "vllm-2"]),
        "priority": st.integers(0, 2),
    },
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[FleetView, list[Model]]:
    """A fleet with claims that overlap nothing, and models that want places."""
    names = [f"n{index}" for index in range(draw(st.sampled_from([0, 1, 2, 3, 4, 5])))]
    fleet = {name: draw(nodes(name)) for name in names}
    held: dict[str, list[Held]] = {}
    for name in names:
        taken: set[int] = set()
        ports: set[int] = set()
        for index, claim in enumerate(draw(st.lists(claims, max_size=2))):
            if not taken.intersection(claim.gpus) and not ports.intersection(claim.ports):
                held.setdefault(name, []).append(Held(f"old-{name}-{index}", "old", claim))
                taken.update(claim.gpus)
                ports.update(claim.ports)
    presence = {name: draw(st.sampled_from(USUAL_PRESENCE)) for name in names}
    wanted: list[Mapping[str, Any]]
    models = []
    for index in range(draw(st.sampled_from([1, 2, 3, 4]))):
        wanted = draw(st.lists(profiles, min_size=1, max_size=3))
        models.append(model(f"m{index}", *wanted, source=draw(st.sampled_from(SOURCES))))
    return FleetView(fleet, presence, held, PortRange(20000, 20015), GB), models


def run(fleet: FleetView, models: list[Model], each: int = 3) -> list[Placement | Unplaceable]:
    looked = PlacementPass(fleet)
    return [
        looked.place(PlacementRequest(f"{wanted.slug}-{number:08x}", wanted))
        for wanted in models
        for number in range(each)
    ]


def profile_of(models: list[Model], placement: Placement) -> Profile:
    found = next(wanted for wanted in models if wanted.name == placement.model)
    return next(profile for profile in found.profiles if profile.name == placement.profile)


def check_each_is_on_an_open_node_with_what_its_profile_asks_for(
    fleet: FleetView, models: list[Model], outcomes: list[Placement | Unplaceable]
) -> None:
    for outcome in outcomes:
        if not isinstance(outcome, Placement):
            continue
        profile = profile_of(models, outcome)
        (shard,) = outcome.shards
        on = fleet.nodes[shard.node]
        assert fleet.presence[shard.node] is Presence.READY
        assert on.mark.mark is Mark.READY
        assert on.report is not None
        for name, value in profile.node_selector:
            assert on.report.labels[name] == value
        if on.report.engines is not None:
            kinds = {name: install.kind for name, install in on.report.engines.items()}
            assert profile.engine in ([kinds.get(profile.install)] if profile.install else kinds.values())
        of_class = {card.index for card in on.report.gpus or () if card.gpu_class == profile.gpu_class}
        broken = {card.index for card in on.report.gpus or () if card.ecc_uncorrected}
        assert not broken.intersection(shard.claim.gpus)
        assert len(shard.claim.gpus) == profile.gpus_per_node
        assert of_class.issuperset(shard.claim.gpus)


def check_nothing_is_handed_out_twice(fleet: FleetView, outcomes: list[Placement | Unplaceable]) -> None:
    all_held = {name: list(held) for name, held in fleet.held.items()}
    for outcome in outcomes:
        if isinstance(outcome, Placement):
            (shard,) = outcome.shards
            on = fleet.nodes[shard.node].report
            assert on is not None
            before = [held.claim for held in all_held.setdefault(shard.node, [])]
            # Each card was free, or had room for the share, when it was given.
            for card in cards_on(on, before, fleet.foreign_memory_bytes):
                if card.index in shard.claim.gpus:
                    share = shard.claim.gpu_memory_bytes
                    if share is None:
                        assert card.use is CardUse.FREE
                    else:
                        assert card.free_bytes is None or card.free_bytes >= share
            if on.memory_total_bytes is not None and shard.claim.memory_bytes:
                assert sum(c.memory_bytes or 0 for c in (*before, shard.claim)) <= on.memory_total_bytes
            (port,) = shard.claim.ports
            assert fleet.ports.first <= port <= fleet.ports.last
            assert port not in (on.ports_in_use or ())
            all_held[shard.node].append(Held(outcome.replica, outcome.model, shard.claim))
    for held in all_held.values():
        ports = Counter(port for each in held for port in each.claim.ports)
        assert not ports or max(ports.values()) == 1
        whole = Counter(
            card for each in held if each.claim.gpu_memory_bytes is None for card in each.claim.gpus
        )
        shared = {
            card for each in held if each.claim.gpu_memory_bytes is not None for card in each.claim.gpus
        }
        assert not whole or max(whole.values()) == 1
        assert not shared.intersection(whole)


@settings(max_examples=CLUSTERS, deadline=None)
@given(clusters())
def test_placements_are_where_they_may_be_and_nothing_is_handed_out_twice(
    cluster: tuple[FleetView, list[Model]],
) -> None:
    fleet, models = cluster
    outcomes = run(fleet, models)
    check_each_is_on_an_open_node_with_what_its_profile_asks_for(fleet, models, outcomes)
    check_nothing_is_handed_out_twice(fleet, outcomes)


@settings(max_examples=CLUSTERS // 4, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_same_snapshot_gives_the_same_decision(cluster: tuple[FleetView, list[Model]], draw: Any) -> None:
    fleet, models = cluster
    names = list(fleet.nodes)
    draw.shuffle(names)
    shuffled = FleetView(
        {name: fleet.nodes[name] for name in names},
        fleet.presence,
        fleet.held,
        fleet.ports,
        fleet.foreign_memory_bytes,
    )
    assert run(fleet, models) == run(shuffled, models)


@settings(max_examples=CLUSTERS // 4, deadline=None)
@given(clusters())
def test_a_pass_decides_as_one_replica_at_a_time_would(cluster: tuple[FleetView, list[Model]]) -> None:
    fleet, models = cluster
    all_held = {name: tuple(held) for name, held in fleet.held.items()}
    for number, outcome in enumerate(run(fleet, models)):
        request = PlacementRequest(f"{models[number // 3].slug}-{number % 3:08x}", models[number // 3])
        now = FleetView(fleet.nodes, fleet.presence, all_held, fleet.ports, fleet.foreign_memory_bytes)
        alone = place(request, now)
        if isinstance(outcome, Placement):
            assert alone == outcome
            for shard in outcome.shards:
                mine = Held(outcome.replica, outcome.model, shard.claim)
                all_held[shard.node] = (*all_held.get(shard.node, ()), mine)
        else:
            # The words of a refusal may be older than the last claim of the pass; the refusal is not.
            assert isinstance(alone, Unplaceable)


@settings(max_examples=CLUSTERS // 4, deadline=None)
@given(clusters())
def test_an_explanation_judges_every_node_once_and_agrees_with_the_decision(
    cluster: tuple[FleetView, list[Model]],
) -> None:
    fleet, models = cluster
    for wanted in models:
        request = PlacementRequest(f"{wanted.slug}-00000000", wanted)
        found = explain(request, fleet)
        assert found.outcome == place(request, fleet)
        for profile in found.profiles:
            assert Counter(verdict.node for verdict in profile.nodes) == Counter(list(fleet.nodes))
        fitting = [
            (profile.profile, verdict.node)
            for profile in found.profiles
            for verdict in profile.nodes
            if verdict.rejection is None
        ]
        if isinstance(found.outcome, Placement):
            assert (found.outcome.profile, found.outcome.shards[0].node) == fitting[0]
        else:
            assert fitting == []
            for refusal, profile in zip(found.outcome.profiles, found.profiles, strict=True):
                counted = Counter(verdict.rejection.code for verdict in profile.nodes if verdict.rejection)
                if fleet.nodes:
                    assert {reason.code: reason.count for reason in refusal.reasons} == counted
                    assert all(one.count >= two.count for one, two in pairwise(refusal.reasons))


def test_how_long_a_pass_takes_at_a_thousand_nodes() -> None:
    """Printed, not asserted: a shared machine's clock proves nothing."""
    fleet = view(
        *(node(report(f"n{index:04}", gpus=gpus(8))) for index in range(1000)), ports=PortRange(20000, 29999)
    )
    card = {"engine": "vllm", "gpu_class": "H100-80GB"}
    groups = {
        "2,000 CPU replicas": [
            model(f"c{index}", {"engine": "sim", "min_memory_gb": 1}) for index in range(2000)
        ],
        "2,000 two-card replicas": [
            model(f"g{index}", {**card, "tensor_parallel": 2}) for index in range(2000)
        ],
        "2,000 that wait, 20 needs": [
            model(f"w{index}", {**card, "tensor_parallel": 8, "min_memory_gb": 70 + index % 20})
            for index in range(2000)
        ],
    }
    looked = PlacementPass(fleet)
    for what, models in groups.items():
        begun = perf_counter()
        outcomes = [looked.place(PlacementRequest(f"{wanted.slug}-1", wanted)) for wanted in models]
        taken = (perf_counter() - begun) * 1000
        print(f"{what}: {sum(isinstance(one, Placement) for one in outcomes)} placed, {taken:.0f} ms")
