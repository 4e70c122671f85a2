"""The report: its last line says whether all is well, and a failure tells how to see it again."""

from llmgw.sim.facts import Violation
from llmgw.sim.options import calm_options
from llmgw.sim.report import Outcome, Report, Tally, failure_lines, report_lines, verdict


def outcome(seed: int, violation: Violation | None = None) -> Outcome:
    return Outcome(
        options=calm_options(seed),
        violation=violation,
        story=("first", "second"),
        digest="d",
        virtual_s=60.0,
        converged_s=None if violation else 12.0,
        fired={"cut": 2},
        checked={"one_engine": 3},
        decided={"placed": 1},
    )


BROKEN = Violation("one_engine", 41.25, "two engines", ("a-1",))


def report(*outcomes: Outcome, mutant: str | None = None) -> Report:
    tally = Tally(["cut", "reset"], ["one_engine", "ready_first"])
    for one in outcomes:
        tally.add(one)
    return tally.report("abc1234", mutant, 1, 2.0)


def test_clean_seeds_are_good_and_the_last_line_says_so() -> None:
    made = report(outcome(1), outcome(2))
    assert made.good
    assert report_lines(made)[-1] == "clean: 2 seeds from 1 at abc1234"


def test_a_broken_seed_is_bad_and_named() -> None:
    made = report(outcome(1), outcome(2, BROKEN))
    assert not made.good
    assert verdict(made) == "BROKEN: 1 of 2 seeds from 1 at abc1234: 2"


def test_a_mutant_must_be_caught_and_its_rate_is_said() -> None:
    caught = report(outcome(1), outcome(2, BROKEN), mutant="m")
    assert (caught.good, verdict(caught)) == (
        True,
        "mutant m caught by 1 of 2 seeds from 1 at abc1234 (50%)",
    )
    lives = report(outcome(1), mutant="m")
    assert (lives.good, verdict(lives)) == (False, "MUTANT LIVES: 0 of 1 seeds from 1 at abc1234 (0%)")


def test_what_never_struck_or_was_never_checked_is_said() -> None:
    lines = report_lines(report(outcome(1), outcome(2)))
    assert "struck: cut 4, reset 0" in lines
    assert "checked: one_engine 6, ready_first 0" in lines
    assert "never: reset, ready_first" in lines


def test_a_failure_tells_when_what_how_to_repeat_it_and_the_story() -> None:
    lines = failure_lines(outcome(7, BROKEN), "abc1234")
    assert lines[0] == "seed 7 at 41.250 s: one_engine: two engines"
    assert "llmgw sim --first-seed 7 --nodes 3 (commit abc1234)" in lines[1]
    assert lines[-2:] == ["  | first", "  | second"]
