"""Every scenario is clean on whole code, plays the same each time, and kills its mutants."""

import pytest

from llmgw.sim.cluster import play
from llmgw.sim.mutants import MUTANTS
from llmgw.sim.report import Outcome, failure_lines
from llmgw.sim.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.sim


def told(outcome: Outcome) -> str:
    return "clean" if outcome.violation is None else "\n".join(failure_lines(outcome, "this"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.script.__name__)
def test_a_scenario_is_clean(scenario: Scenario) -> None:
    outcome = play(scenario.options, scenario.script)
    assert outcome.violation is None, told(outcome)


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_does_not_survive_its_scenario(name: str) -> None:
    mutant = MUTANTS[name]
    with mutant.applied():
        outcome = play(mutant.scenario.options, mutant.scenario.script)
    assert outcome.violation is not None, f"{name} lives: {mutant.breaks}"
    assert outcome.violation.checker not in ("no_crash", "no_failure", "simulator"), told(outcome)


def test_every_scenario_kills_a_mutant() -> None:
    assert {id(one) for one in SCENARIOS} == {id(mutant.scenario) for mutant in MUTANTS.values()}
