"""Nodes: presence by silence, engines and labels by what was reported."""

import pytest

from llmgw.core.inventory import (
    EngineInstall,
    Node,
    OperatorMark,
    Presence,
    PresenceLimits,
    has_engine,
    lacks_labels,
    presence,
    source_path,
)
from tests.core.makers import report

LIMITS = PresenceLimits(unreachable_after_s=15, lost_after_s=120)


@pytest.mark.parametrize(
    ("heard", "now", "expected"),
    [
        (100, 100, Presence.READY),
        (100, 114.9, Presence.READY),
        (100, 115, Presence.UNREACHABLE),
        (100, 219.9, Presence.UNREACHABLE),
        (100, 220, Presence.LOST),
        (None, 1, Presence.UNREACHABLE),
        (None, 120, Presence.LOST),
    ],
)
def test_silence_makes_a_node_unreachable_then_lost(
    heard: float | None, now: float, expected: Presence
) -> None:
    known = Node("n", None, OperatorMark(), heard, known_since=0)
    assert presence(known, now, LIMITS) is expected


def test_an_engine_is_there_by_its_kind_or_by_the_install_named() -> None:
    node = report("n", engines=())
    installed = {"vllm-0.33": EngineInstall("vllm"), "sim": EngineInstall("sim")}
    two = type(node)(id="n", address="a", engines=installed)
    assert has_engine(two, "vllm", None) is True
    assert has_engine(two, "vllm", "vllm-0.33") is True
    assert has_engine(two, "vllm", "vllm-0.34") is False
    assert has_engine(two, "vllm", "sim") is False
    assert has_engine(two, "sglang", None) is False


def test_engines_nobody_reported_are_unknown_and_none_reported_is_none() -> None:
    assert has_engine(report("n", engines=None), "sim", None) is None
    assert has_engine(report("n", engines=()), "sim", None) is False


def test_all_labels_must_match() -> None:
    node = report("n", labels={"pool": "coding", "zone": "a"})
    assert lacks_labels(node, [("pool", "coding"), ("zone", "a")]) == ()
    assert lacks_labels(node, [("pool", "chat"), ("zone", "a"), ("disk", "x")]) == (
        ("pool", "chat"),
        ("disk", "x"),
    )


@pytest.mark.parametrize(
    ("source", "path"),
    [("/m/x", "/m/x"), ("file:/m/x", "/m/x"), ("file:///m/x", "/m/x"), ("hf:a/b", "hf:a/b")],
)
def test_a_local_source_is_known_by_its_path(source: str, path: str) -> None:
    assert source_path(source) == path
