"""The swarm: its seeds are clean, and a seed plays the same in every process."""

import os
import subprocess
import sys

import pytest

from llmgw.sim.cluster import run_seed
from llmgw.sim.mutants import MUTANTS
from llmgw.sim.options import draw_options
from llmgw.sim.report import failure_lines
from llmgw.sim.swarm import UnknownMutant, find_mutant, swarm

pytestmark = pytest.mark.sim

SEEDS = 60
GROUP = 5  # seeds a test, so that one group's failure does not hide another's

_DIGEST = """
from llmgw.sim.cluster import run_seed
from llmgw.sim.options import draw_options
print(run_seed(draw_options({seed})).digest)
"""


@pytest.mark.parametrize("first", range(1, SEEDS + 1, GROUP))
def test_seeds_are_clean(first: int) -> None:
    tally = swarm(first, GROUP, None, None, lambda outcome: None)
    told = [line for outcome in tally.failures for line in failure_lines(outcome, "this")]
    assert not told, "\n".join(told)


def test_a_seed_plays_the_same_whatever_the_hash_seed_of_the_process() -> None:
    def digest(hash_seed: str) -> str:
        ran = subprocess.run(
            (sys.executable, "-c", _DIGEST.format(seed=7)),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.strip()

    here = run_seed(draw_options(7))
    assert {digest("0"), digest("1"), digest("12345")} == {here.digest}
    assert run_seed(draw_options(8)).digest != here.digest


def test_an_unknown_mutant_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownMutant, match="adoption-ignored"):
        find_mutant("no-such")
    assert find_mutant("adoption-ignored") is MUTANTS["adoption-ignored"]
