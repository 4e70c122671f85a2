"""What holds of every pass, over random fleets; and that an obedient world comes to rest."""

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.fleet_state import FleetState, RouterState, held_by_node
from llmgw.core.happenings import EndpointUse
from llmgw.core.reconcile import Fail, FinishDrain, Lose, Place, Remove, Withdraw, reconcile
from llmgw.core.replica import Course, Replica, ReplicaPhase, ShardPhase, phase_of
from tests.core.makers import catalog, definition
from tests.core.obedient import World, node
from tests.core.replicas import on, replica
from tests.core.test_reconcile import state

P = ShardPhase
SEEN_AT = 1000.0


@st.composite
def replicas(draw: st.DrawFn, index: int) -> Replica:
    """A replica of `m` with one or two shards in any phase, on any course it may be on."""
    phases = draw(st.lists(st.sampled_from(list(ShardPhase)), min_size=1, max_size=2))
    nodes = tuple(draw(st.permutations(["n1", "n2", "n3"])))
    made = replica(*phases, id=f"m-{index:08x}", nodes=nodes, adopted=draw(st.booleans()))
    made = msgspec.structs.replace(
        made,
        created_at=draw(st.floats(0, SEEN_AT)),
        fingerprint=draw(st.sampled_from([made.fingerprint, "", "older"])),
        ready_at=draw(st.one_of(st.none(), st.floats(0, SEEN_AT))),
    )
    ended = on(made, draw(st.sampled_from(list(Course))))
    return msgspec.structs.replace(ended, withdrawn_by=draw(st.sampled_from([None, 9, 11])))


@st.composite
def fleets(draw: st.DrawFn) -> FleetState:
    """Any three nodes, any replicas on them, any word of any router."""
    several = [draw(replicas(index)) for index in range(draw(st.integers(0, 5)))]
    heard = {name: draw(st.sampled_from([0.0, 900.0, 1000.0])) for name in ("n1", "n2", "n3")}
    use = {one.id: EndpointUse(draw(st.integers(0, 2)), draw(st.floats(0, 500))) for one in several}
    routers = {
        f"r{index}": RouterState(draw(st.integers(-1, 12)), use, draw(st.integers(-1, 12)))
        for index in range(draw(st.integers(0, 2)))
    }
    wanted = draw(st.integers(0, 4))
    scaling = {"min": wanted} if wanted else {"min": 0, "max": draw(st.integers(0, 2))}
    known = catalog(definition("m", {"engine": "sim", "min_memory_gb": 20}, scaling=scaling))
    return state(
        *several,
        heard=heard,
        routers=routers,
        catalog=draw(st.sampled_from([known, catalog()])),
        settling_left_s=draw(st.sampled_from([0.0, 0.0, 5.0])),
    )


@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_looked_at_does_not_matter(seen: FleetState, shuffle: random.Random) -> None:
    def shuffled(mapping: object) -> object:
        assert isinstance(mapping, dict)
        items = list(mapping.items())
        shuffle.shuffle(items)
        return dict(items)

    names = ("nodes", "links", "replicas", "routers")
    other = msgspec.structs.replace(seen, **{name: shuffled(getattr(seen, name)) for name in names})
    assert reconcile(seen, SEEN_AT, random.Random(1)) == reconcile(other, SEEN_AT, random.Random(1))


@given(fleets())
def test_a_pass_decides_at_most_one_thing_of_a_replica(seen: FleetState) -> None:
    made = reconcile(seen, SEEN_AT, random.Random(1)).decisions
    about = Counter(
        one.replica for one in made if isinstance(one, Lose | Fail | Withdraw | FinishDrain | Remove)
    )
    assert all(count == 1 for count in about.values())
    assert about.keys() <= seen.replicas.keys()


@given(fleets())
def test_what_is_kept_and_placed_never_exceeds_what_is_wanted(seen: FleetState) -> None:
    made = reconcile(seen, SEEN_AT, random.Random(1)).decisions
    ended = {one.replica for one in made if isinstance(one, Lose | Fail | Withdraw)}
    kept = [one for one in seen.replicas.values() if one.course is Course.KEEP and one.id not in ended]
    placed = [one for one in made if isinstance(one, Place)]
    model = seen.catalog.models.get("m")
    if placed:
        assert model is not None
        assert len(kept) + len(placed) <= model.min_replicas


@given(fleets())
def test_a_ready_replica_is_withdrawn_only_when_unwanted_and_after_all_that_are_not(seen: FleetState) -> None:
    made = reconcile(seen, SEEN_AT, random.Random(1)).decisions
    withdrawn = {one.replica for one in made if isinstance(one, Withdraw)}
    if "m" not in seen.catalog.models:
        return
    kept = [one for one in seen.replicas.values() if one.course is Course.KEEP]
    for one in kept:
        if one.id in withdrawn and phase_of(one) is ReplicaPhase.READY:
            others = [other for other in kept if other.id not in withdrawn]
            model = seen.catalog.models["m"]
            assert len(others) >= max(model.min_replicas, 0)
            given_up = {other.replica for other in made if isinstance(other, Lose | Fail)}
            assert all(phase_of(other) is ReplicaPhase.READY or other.id in given_up for other in others), (
                "a ready one goes before one that is not"
            )


@given(fleets())
def test_only_what_is_draining_is_stopped_and_only_what_ended_is_removed(seen: FleetState) -> None:
    for one in reconcile(seen, SEEN_AT, random.Random(1)).decisions:
        if isinstance(one, FinishDrain):
            assert seen.replicas[one.replica].course is Course.DRAIN
        if isinstance(one, Remove):
            assert all(shard.ended for shard in seen.replicas[one.replica].shards)


@given(fleets())
def test_nothing_claimed_is_claimed_again(seen: FleetState) -> None:
    held = {
        (node, port)
        for node, claims in held_by_node(seen.replicas).items()
        for one in claims
        for port in one.claim.ports
    }
    for one in reconcile(seen, SEEN_AT, random.Random(1)).decisions:
        if isinstance(one, Place):
            for shard in one.placement.shards:
                ports = {(shard.node, port) for port in shard.claim.ports}
                assert not ports & held
                held |= ports


# ---------------------------------------------------------------- a world that obeys

STEPS = ("crash", "leave", "return", "empty", "rescale", "remove", "restart", "wait")


def wanting(count: int) -> Catalog:
    return catalog(definition("m", {"engine": "sim", "min_memory_gb": 10}, scaling={"min": count}))


def live(world: World, steps: Sequence[tuple[str, int]]) -> World:
    """Take the steps, a few seconds each; the server of the end may be another than that of the start."""
    names = ["n1", "n2", "n3"]
    for step, pick in steps:
        name = names[pick % 3]
        serving = sorted(world.published())
        match step:
            case "crash" if serving:
                one = world.state.replicas[serving[pick % len(serving)]]
                if one.shards[0].node in world.sessions:
                    world.crash(one)
            case "leave" if name in world.sessions:
                world.leave(name)
            case "return":
                world.register(node(name))
            case "empty":
                world.shards.get(name, {}).clear()
                world.register(node(name))
            case "rescale":
                world.tell(h.CatalogChanged(wanting(pick % 4 + 1)))
            case "remove":
                world.tell(h.CatalogChanged(catalog()))
            case "restart":
                world = world.restarted()
            case _:
                world.pass_time(float(pick * 7 + 1))
        world.pass_time(2.0)
    return world


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 20)), max_size=12), st.integers(1, 3))
def test_an_obedient_world_comes_to_rest_with_what_is_wanted(
    steps: list[tuple[str, int]], count: int
) -> None:
    world = World(wanting(count))
    world.lead("n1", "n2", "n3")
    world.join_router()
    for name in ("n1", "n2", "n3"):
        world.register(node(name))
    world = live(world, steps)
    for name in ("n1", "n2", "n3"):
        world.register(node(name))
    world.tell(h.CatalogChanged(wanting(count)))
    world.pass_time(900.0, step=5.0)
    assert world.phases() == ["ready"] * count
    before = len(world.effects)
    world.pass_time(60.0)
    assert world.effects[before:] == [], "applied to an obedient world, the next plan is empty"
    running = {id for shards in world.shards.values() for id in shards}
    assert {id.replica for id in running} == set(world.state.replicas), "no engine is left that nobody knows"
