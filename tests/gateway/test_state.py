"""The table a router serves from: built whole, changed by making another."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llmgw.gateway.state import Table, from_snapshot, opaque_replica, updated
from llmgw.ports import HttpTimeouts
from llmgw.wire.watch_v1 import AliasEntry, EndpointEntry, KeyEntry, ModelEntry, Snapshot, Update

DEFAULTS = HttpTimeouts(connect=1, first_byte=2, idle=3, total=4)


def table(*names: str, aliases: tuple[AliasEntry, ...] = ()) -> Table:
    models = tuple(ModelEntry(name, "always") for name in names)
    return from_snapshot(Snapshot(1, "c", 1, models=models, aliases=aliases), DEFAULTS)


def test_a_models_own_timeouts_win_and_the_rest_are_the_defaults() -> None:
    entry = ModelEntry("m", "always", timeouts={"idle": 9.0, "unknown": 1.0})
    served = from_snapshot(Snapshot(1, "c", 1, models=(entry,)), DEFAULTS).models["m"]
    assert served.timeouts == HttpTimeouts(connect=1, first_byte=2, idle=9, total=4)


def test_a_name_cannot_break_out_of_its_header() -> None:
    served = table("m\r\nx: y é").models["m\r\nx: y é"]
    assert served.header == (b"x-llmgw-model", b"m%0D%0Ax:%20y%20%C3%A9")


def test_a_weighted_alias_draws_from_its_targets_that_are_there() -> None:
    alias = AliasEntry("mix", (("a", 3.0), ("b", 1.0), ("gone", 9.0)))
    whole = table("a", "b", aliases=(alias, AliasEntry("dead", (("gone", 1.0),))))
    draw = random.Random(1)
    drawn = [served.entry.name for served in (whole.resolve("mix", draw) for _ in range(400)) if served]
    assert len(drawn) == 400 and 250 < drawn.count("a") < 350
    assert whole.resolve("dead", draw) is None and whole.resolve("none", draw) is None


def test_near_names_are_those_the_key_may_use() -> None:
    whole = table("qwen-7b", "qwen-72b", "llama-3", aliases=(AliasEntry("qwen-fast", (("llama-3", 1.0),)),))
    assert whole.near_names("QWEN-7", None)[0] == "qwen-7b"
    assert whole.near_names("qwen-7", ("llama*",)) == ("qwen-fast",)
    assert whole.near_names("zzz", None) == ()


def test_near_names_among_thousands_look_at_few() -> None:
    whole = table(*(f"model-{i}" for i in range(5000)))
    assert len(whole.near_names("model-x", None)) == 3


def test_a_replica_is_told_apart_without_being_named() -> None:
    assert opaque_replica("c", "m-1") == opaque_replica("c", "m-1") != opaque_replica("c", "m-2")
    assert b"m-1" not in opaque_replica("c", "m-1")


IDS = st.sampled_from(["a", "b", "c", "d"])
MODELS = st.lists(st.builds(ModelEntry, IDS, st.sampled_from(["always", "off"])), unique_by=lambda e: e.name)
ENDPOINTS = st.lists(
    st.builds(EndpointEntry, IDS, IDS, st.just("h"), st.integers(1, 9)), unique_by=lambda e: e.id
)
KEYS = st.lists(st.builds(KeyEntry, IDS, st.just("0"), IDS), unique_by=lambda e: e.public_id)
SNAPSHOTS = st.builds(
    Snapshot,
    st.just(1),
    st.just("c"),
    st.just(1),
    models=MODELS.map(tuple),
    endpoints=ENDPOINTS.map(tuple),
    keys=KEYS.map(tuple),
)


@given(SNAPSHOTS, SNAPSHOTS)
def test_an_update_leads_exactly_to_the_table_it_was_made_for(old: Snapshot, new: Snapshot) -> None:
    before = from_snapshot(old, DEFAULTS)
    kept = msgspec.structs.asdict(before)
    update = Update(
        revision=2,
        models=new.models,
        endpoints=new.endpoints,
        keys=new.keys,
        gone_models=tuple({one.name for one in old.models} - {one.name for one in new.models}),
        gone_endpoints=tuple({one.id for one in old.endpoints} - {one.id for one in new.endpoints}),
        gone_keys=tuple({one.public_id for one in old.keys} - {one.public_id for one in new.keys}),
    )
    after = updated(before, update, DEFAULTS)
    assert after == msgspec.structs.replace(from_snapshot(new, DEFAULTS), revision=2)
    assert msgspec.structs.asdict(before) == kept, "the old table changed"


# ---------------------------------------------------------------- a server that restarted


def _endpoint(id: str, node: str) -> EndpointEntry:
    return EndpointEntry(id=id, model="m", host="10.0.0.1", port=20000, node=node)


def test_endpoints_on_nodes_a_new_server_has_not_heard_are_kept_until_they_report() -> None:
    timeouts = HttpTimeouts()
    before = from_snapshot(
        Snapshot(9, "c", 1, endpoints=(_endpoint("a", "n1"), _endpoint("b", "n2"))), timeouts
    )
    fresh = from_snapshot(Snapshot(1, "c", 2, unheard=("n1", "n2")), timeouts, before)
    assert set(fresh.endpoints) == {"a", "b"}
    heard = updated(fresh, Update(2, endpoints=(_endpoint("a", "n1"),), unheard=("n2",)), timeouts)
    assert set(heard.endpoints) == {"a", "b"}
    later = updated(heard, Update(3), timeouts)
    assert set(later.endpoints) == {"a", "b"}, "nothing said of n2: it is still unheard"
    done = updated(later, Update(4, unheard=()), timeouts)
    assert set(done.endpoints) == {"a"}, "n2 reported, and b was not among what it runs"


def test_nothing_is_kept_of_nodes_that_were_heard_or_of_another_cluster() -> None:
    timeouts = HttpTimeouts()
    before = from_snapshot(Snapshot(9, "c", 1, endpoints=(_endpoint("a", "n1"),)), timeouts)
    assert from_snapshot(Snapshot(1, "c", 2, unheard=("n2",)), timeouts, before).endpoints == {}
    assert from_snapshot(Snapshot(1, "other", 2, unheard=("n1",)), timeouts, before).endpoints == {}
