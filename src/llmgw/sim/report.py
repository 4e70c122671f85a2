"""Says what a swarm of simulated runs showed: what broke and its story, what struck, what was looked at.

Laws: a failure names its seed, its options and the commit, for a seed means nothing without them; what
never struck or was never checked is said, because a swarm that did nothing is green too.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from llmgw.sim.facts import Violation
from llmgw.sim.options import Options


class Outcome(msgspec.Struct, frozen=True):
    """What one run showed."""

    options: Options
    violation: Violation | None
    story: tuple[str, ...]
    digest: str
    virtual_s: float
    converged_s: float | None  # after healing; None: it was not reached
    fired: dict[str, int]  # by kind of fault
    checked: dict[str, int]  # by checker
    decided: dict[str, int]  # by kind of event of the control plane


class Report(msgspec.Struct, frozen=True):
    """What all of them showed."""

    commit: str
    mutant: str | None
    first_seed: int
    seeds: int
    real_s: float
    failures: tuple[Outcome, ...]
    fired: dict[str, int]
    checked: dict[str, int]
    decided: dict[str, int]
    virtual_s: float
    slowest_converged_s: float

    @property
    def caught(self) -> int:
        """Runs that broke a promise."""
        return len(self.failures)

    @property
    def good(self) -> bool:
        """Clean without a mutant; with one, caught."""
        return (self.caught > 0) == (self.mutant is not None)


class Tally:
    """Adds outcomes up."""

    def __init__(self, names: Iterable[str], checkers: Iterable[str]) -> None:
        self.failures: list[Outcome] = []
        self.fired: Counter[str] = Counter(dict.fromkeys(names, 0))
        self.checked: Counter[str] = Counter(dict.fromkeys(checkers, 0))
        self.decided: Counter[str] = Counter()
        self.virtual_s = 0.0
        self.slowest = 0.0
        self.seeds = 0

    def add(self, outcome: Outcome) -> None:
        """One more run."""
        self.seeds += 1
        if outcome.violation is not None:
            self.failures.append(outcome)
        self.fired.update(outcome.fired)
        self.checked.update(outcome.checked)
        self.decided.update(outcome.decided)
        self.virtual_s += outcome.virtual_s
        self.slowest = max(self.slowest, outcome.converged_s or 0.0)

    def report(self, commit: str, mutant: str | None, first_seed: int, real_s: float) -> Report:
        """All of them."""
        return Report(
            commit=commit,
            mutant=mutant,
            first_seed=first_seed,
            seeds=self.seeds,
            real_s=real_s,
            failures=tuple(self.failures),
            fired=dict(self.fired),
            checked=dict(self.checked),
            decided=dict(self.decided),
            virtual_s=self.virtual_s,
            slowest_converged_s=self.slowest,
        )


def failure_lines(outcome: Outcome, commit: str) -> list[str]:
    """What a person needs of one failed run: what broke, how to see it again, and its story."""
    assert outcome.violation is not None
    seed = outcome.options.seed
    return [
        f"seed {seed} at {outcome.violation.at:.3f} s: {outcome.violation.checker}: {outcome.violation.text}",
        f"  again: llmgw sim --first-seed {seed} --nodes {outcome.options.nodes} (commit {commit})",
        f"  options: {outcome.options.line()}",
        *(f"  | {line}" for line in outcome.story),
    ]


def report_lines(report: Report) -> list[str]:
    """The report as text; the last line says whether it is good."""
    lines = [
        _counts("struck", report.fired),
        _counts("checked", report.checked),
        _counts("decided", report.decided),
    ]
    never = [name for table in (report.fired, report.checked) for name, count in table.items() if not count]
    if never:
        lines.append(f"never: {', '.join(never)}")
    pace = report.seeds / report.real_s if report.real_s else 0.0
    lines.append(
        f"{report.virtual_s / 60:.0f} virtual minutes in {report.real_s:.1f} s, {pace:.1f} seeds/s;"
        f" slowest to converge {report.slowest_converged_s:.0f} s"
    )
    return [*lines, verdict(report)]


def verdict(report: Report) -> str:
    """The last line."""
    seeds = f"{report.seeds} seeds from {report.first_seed} at {report.commit}"
    if report.mutant is not None:
        rate = report.caught / report.seeds if report.seeds else 0.0
        how = f"{report.caught} of {seeds} ({rate:.0%})"
        return f"mutant {report.mutant} caught by {how}" if report.caught else f"MUTANT LIVES: {how}"
    if report.caught:
        failed = ", ".join(str(one.options.seed) for one in report.failures[:20])
        return f"BROKEN: {report.caught} of {seeds}: {failed}"
    return f"clean: {seeds}"


def _counts(title: str, table: dict[str, int]) -> str:
    return f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(table.items()))
