"""Rows for people, derived from a moment of the fleet: unknown is None, reasons stand beside their matter."""

import msgspec

from llmgw.control.rows import gpu_counts, model_rows, node_rows, profile_explanation, replica_rows
from llmgw.core.claims import Claim
from llmgw.core.inventory import Filesystem, Gpu, Mark, Node, OperatorMark
from llmgw.core.placement import NodeVerdict, ProfileExplanation
from llmgw.core.reason import Rejection, Unfit
from llmgw.core.replica import Course, Fetched, ShardPhase, note_fetch
from tests.core.makers import catalog, definition, gpus, node, report
from tests.core.replicas import on, ready, replica
from tests.core.test_reconcile import state

P = ShardPhase
NOW = 1000.0


def test_a_replica_shows_its_url_its_shards_and_whether_it_is_stale() -> None:
    serving = ready()
    (row,) = replica_rows(state(serving), NOW)
    assert (row.state, row.url, row.stale, row.age_s) == ("ready", "http://n1.example:20000", False, NOW)
    assert (row.shards[0].node, row.shards[0].phase) == ("n1", "ready")
    stale = msgspec.structs.replace(serving, fingerprint="older")
    unknown = msgspec.structs.replace(serving, fingerprint="")
    assert [replica_rows(state(one), NOW)[0].stale for one in (stale, unknown)] == [True, None]


def test_an_ending_replica_says_why_and_an_adopted_one_how_long_it_ran_before() -> None:
    (row,) = replica_rows(state(on(ready(), Course.DRAIN)), NOW)
    assert (row.state, row.reason) == ("draining", "a reason")
    adopted = msgspec.structs.replace(ready(), adopted=True, created_at=900.0, serving_s=3600.0)
    assert replica_rows(state(adopted), NOW)[0].age_s == 3700.0


def test_progress_is_bytes_with_a_total_only_when_it_is_known() -> None:
    for fetched, text in ((Fetched(12_400_000_000), "12.4 GB so far"), (Fetched(5, 10), "5 B of 10 B")):
        fetching = note_fetch(replica(P.FETCHING), 0, fetched)
        assert replica_rows(state(fetching), NOW)[0].shards[0].progress == text


def test_a_node_never_heard_is_unknown_in_everything() -> None:
    silent = Node("n1", None, OperatorMark(), None, NOW)
    (row,) = node_rows(state(nodes={"n1": silent}), NOW)
    assert (row.state, row.address, row.memory_total_bytes, row.gpus, row.engines) == (
        *("unreachable", None, None, None, None),
    )
    assert row.heard_s is None
    assert "not heard yet" in row.reasons[0]


def test_a_nodes_reasons_name_silence_marks_missing_engines_and_bad_cards() -> None:
    bad = node(report("n1", engines=(), gpus=(Gpu(0, gpu_class="A100", ecc_uncorrected=2),)))
    bad = msgspec.structs.replace(bad, mark=OperatorMark(Mark.CORDONED, "disk", "ana"), last_heard=900.0)
    (row,) = node_rows(state(nodes={"n1": bad}), NOW)
    text = "\n".join(row.reasons)
    for part in (
        "silent for 1m",
        "cordoned by ana: disk",
        "no engine is installed",
        "GPU 0: 2 uncorrectable",
    ):
        assert part in text


def test_claims_count_against_memory_and_cards_until_released() -> None:
    card = gpus(2)
    fields = {"claim": Claim(gpus=(1,), memory_bytes=5)}
    serving = ready()
    held = msgspec.structs.replace(serving, shards=(msgspec.structs.replace(serving.shards[0], **fields),))
    seen = state(
        held, nodes={"n1": msgspec.structs.replace(node(report("n1", gpus=card[::-1])), last_heard=NOW)}
    )
    (row,) = node_rows(seen, NOW)
    assert (row.memory_claimed_bytes, row.replicas) == (5, 1)
    assert row.gpus is not None
    assert [(gpu.index, gpu.use) for gpu in row.gpus] == [(0, "free"), (1, "used")]
    assert gpu_counts((row,)) == {"H100-80GB": {"free": 1, "used": 1}}


def test_shared_disks_are_not_a_nodes_own_and_unknown_ones_are() -> None:
    disks = (
        Filesystem("/a", 10, 5, False),
        Filesystem("/b", 20, None, None),
        Filesystem("/nfs", 1000, 900, True),
    )
    seen = state(nodes={"n1": node(report("n1", filesystems=disks))})
    (row,) = node_rows(seen, 1.0)
    assert (row.disk_free_bytes, row.disk_total_bytes) == (5, 30)


def test_a_models_state_follows_what_runs_and_what_is_wanted() -> None:
    always = catalog(definition("m", {"engine": "sim"}, scaling={"min": 1}))
    on_demand = catalog(definition("m", {"engine": "sim"}, scaling={"min": 0, "max": 1}))
    off = catalog(definition("m", {"engine": "sim"}))
    cases = (
        (state(ready(), catalog=always), "ready"),
        (state(replica(P.STARTING), catalog=always), "loading"),
        (state(catalog=always), "waiting"),
        (state(catalog=on_demand), "on-demand"),
        (state(catalog=off), "off"),
    )
    for seen, expected in cases:
        assert model_rows(seen, NOW)[0].state == expected


def test_an_explanation_counts_refusals_by_reason() -> None:
    nodes = (
        NodeVerdict("n1", None, chosen=True),
        NodeVerdict("n2", None),
        NodeVerdict("n3", Rejection(Unfit.MEMORY, "24 GB", "16 GB free of 31 GB", "stop something")),
        NodeVerdict("n4", Rejection(Unfit.MEMORY, "24 GB", "8 GB", "")),
    )
    row = profile_explanation(ProfileExplanation("p0", None, nodes))
    assert row.fits
    assert [one.verdict for one in row.nodes] == ["chosen", "fits", "rejected", "rejected"]
    assert row.counts == {"memory": 2}
    assert row.nodes[2].text == "needs 24 GB, has 16 GB free of 31 GB: stop something"
