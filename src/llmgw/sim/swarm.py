"""Runs many seeds, one after the other, and adds up what they showed.

Law: seeds share nothing: each has its own loop, network, machines and store, and one leaves nothing
for the next.
"""

from collections.abc import Callable

from llmgw.sim.checkers import ALL
from llmgw.sim.cluster import run_seed
from llmgw.sim.mutants import MUTANTS, Mutant
from llmgw.sim.options import Fault, draw_options
from llmgw.sim.report import Outcome, Report, Tally


class UnknownMutant(Exception):
    """There is no mutant of that name; the text lists those there are."""


def find_mutant(name: str) -> Mutant:
    """The mutant of a name. Raises `UnknownMutant`."""
    found = MUTANTS.get(name)
    if found is None:
        raise UnknownMutant(f"no mutant {name!r}; there are: {', '.join(sorted(MUTANTS))}")
    return found


def swarm(
    first_seed: int,
    seeds: int,
    nodes: int | None,
    mutant: Mutant | None,
    seen: Callable[[Outcome], None],
) -> Tally:
    """Run the seeds; `seen` gets each outcome as it comes."""
    tally = Tally((kind.value for kind in Fault), (kind.name for kind in ALL))
    for seed in range(first_seed, first_seed + seeds):
        options = draw_options(seed, nodes)
        if mutant is None:
            outcome = run_seed(options)
        else:
            with mutant.applied():
                outcome = run_seed(options)
        tally.add(outcome)
        seen(outcome)
    return tally


__all__ = ["Report", "UnknownMutant", "find_mutant", "swarm"]
