"""Options: a seed means one run for ever, kinds of fault come and go, streams are apart."""

from llmgw.sim.options import (
    ENGINE_FAULTS,
    STANDING_FAULTS,
    STRIKES,
    Fault,
    calm_options,
    draw_options,
    stream,
)


def test_a_seed_draws_the_same_options_and_another_one_others() -> None:
    assert draw_options(7) == draw_options(7)
    assert len({draw_options(seed).line() for seed in range(50)}) == 50


def test_every_kind_of_fault_exists_in_some_runs_and_is_missing_in_others() -> None:
    runs = [draw_options(seed) for seed in range(100)]
    for kind in Fault:
        have = sum(run.strength(kind) > 0 for run in runs)
        assert 10 < have < 90, kind


def test_each_kind_strikes_at_a_moment_or_is_drawn_when_used() -> None:
    assert {*STRIKES, *ENGINE_FAULTS, *STANDING_FAULTS} == set(Fault)
    assert len(STRIKES) + len(ENGINE_FAULTS) + len(STANDING_FAULTS) == len(Fault)


def test_streams_of_chance_are_apart_and_repeat() -> None:
    assert stream(1, "network").random() == stream(1, "network").random()
    assert stream(1, "network").random() != stream(1, "faults").random()
    assert stream(1, "network").random() != stream(2, "network").random()


def test_nothing_goes_wrong_in_a_calm_run() -> None:
    options = calm_options()
    assert not any(options.strength(kind) for kind in Fault)
    assert "no faults" in options.line()


def test_the_number_of_nodes_can_be_given() -> None:
    assert draw_options(3, nodes=9).nodes == 9
