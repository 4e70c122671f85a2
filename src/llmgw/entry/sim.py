"""`llmgw sim`: runs the simulated cluster under many seeds and says what broke.

Laws: exit 0 only when every seed was clean (with `--mutant`: only when it was caught), 1 when not,
2 for a wrong command line; the last line says which.
"""

import argparse
import logging
import subprocess
import sys
from pathlib import Path

import msgspec

from llmgw import __version__
from llmgw.entry.main import USAGE_ERROR
from llmgw.host.clock import SystemClock
from llmgw.sim.mutants import MUTANTS
from llmgw.sim.report import Outcome, failure_lines, report_lines
from llmgw.sim.swarm import UnknownMutant, find_mutant, swarm

DEFAULT_SEEDS = 100
STORIES = 3  # failures told at length; the rest are named in the last line


def main(arguments: list[str]) -> int:
    """Run the verb."""
    options = _parser().parse_args(arguments)
    if options.list_mutants:
        for name, known in sorted(MUTANTS.items()):
            print(f"{name:<28} {known.breaks}")
        return 0
    try:
        mutant = find_mutant(options.mutant) if options.mutant else None
    except UnknownMutant as unknown:
        print(f"llmgw sim: {unknown}", file=sys.stderr)
        return USAGE_ERROR
    # What libraries complain of under faults is no news; llmgw's own lines go into each run's journal.
    logging.getLogger().addHandler(logging.NullHandler())
    commit = _commit()
    told = 0

    def seen(outcome: Outcome) -> None:
        nonlocal told
        if outcome.violation is None or options.json or mutant is not None:
            return
        told += 1
        if told <= STORIES:
            print("\n".join(failure_lines(outcome, commit)), flush=True)

    clock = SystemClock()
    began = clock.now()
    tally = swarm(options.first_seed, options.seeds, options.nodes, mutant, seen)
    report = tally.report(commit, options.mutant, options.first_seed, clock.now() - began)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        print("\n".join(report_lines(report)))
    return 0 if report.good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw sim", description="A whole cluster on a virtual clock, with faults, under many seeds."
    )
    parser.add_argument("--seeds", type=_count, default=DEFAULT_SEEDS, metavar="N", help="how many runs")
    parser.add_argument("--first-seed", type=int, default=1, metavar="S", help="the first run's seed")
    parser.add_argument("--nodes", type=_count, metavar="N", help="nodes in each run; else drawn by its seed")
    parser.add_argument("--mutant", metavar="NAME", help="break the code this way; the seeds must notice")
    parser.add_argument("--list-mutants", action="store_true", help="name the ways, and end")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _commit() -> str:
    """The commit the code is from: a seed repeats only there."""
    here = Path(__file__).parent
    asked = subprocess.run(
        ("git", "-C", str(here), "describe", "--always", "--dirty"),
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or f"version {__version__}"
