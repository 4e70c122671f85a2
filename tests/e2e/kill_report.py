"""What a run of random kills is told as: a line a kill, a summary, and the report that is kept."""

import os
import platform
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.e2e.kill_phases import PHASES

ROLES = ("agent", "engine", "router", "server")
MEANS = {
    "validating": "the server decided; the agent has not read it, or checks the node",
    "starting": "the engine's process is there and loads",
    "just ready": "the engine answered for the first time less than a second ago",
    "serving": "clients ask without pause",
    "stopping": "an unwanted replica finishes a request, or its engine ends slowly",
    "settling": "a restarted server waits for its fleet, or a restarted agent has not reported yet",
}


class Killed(NamedTuple):
    """One kill and what followed; `trouble` says why it counts as a failure."""

    number: int
    phase: str
    role: str
    how: str = ""
    converged_s: float = 0.0
    zombies: int = 0
    good: int | None = None  # requests while serving
    bad: int | None = None
    trouble: str = ""

    def line(self, seed: int) -> str:
        """One line, with all that is needed to play it again."""
        asked = "" if self.good is None else f", {self.good} requests answered, {self.bad} failed"
        told = f"FAILED: {self.trouble}" if self.trouble else f"converged in {self.converged_s:.1f} s"
        how = f" ({self.how})" if self.how else ""
        about = f"kill {self.number} (seed {seed}): {self.role} while {self.phase}{how}"
        return f"{about}: {told}, {self.zombies} zombies{asked}"


class Environment(NamedTuple):
    """Where and how a run was made."""

    commit: str
    seed: int
    rounds: int
    engine: str
    machine: str
    began: float

    @classmethod
    def here(cls, seed: int, rounds: int, engine: str) -> Self:
        """This machine, this working tree."""
        machine = f"{os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
        return cls(_commit(), seed, rounds, engine, machine, time.time())


def _commit() -> str:
    told = os.environ.get("KILLS_COMMIT")  # of a copy without history
    if told:
        return told
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def summary(kills: Sequence[Killed], missed: Mapping[str, int]) -> str:
    """The last line."""
    failed = [kill for kill in kills if kill.trouble]
    good = sum(kill.good or 0 for kill in kills)
    slowest = max((kill.converged_s for kill in kills), default=0.0)
    return (
        f"{len(kills)} kills, {len(failed)} failed, {sum(missed.values())} missed their phase; "
        f"slowest convergence {slowest:.1f} s, {sum(kill.zombies for kill in kills)} zombies seen, "
        f"{good} requests answered while serving"
    )


def report(kills: Sequence[Killed], missed: Mapping[str, int], environment: Environment) -> str:
    """The report, in Markdown."""
    took = (time.time() - environment.began) / 60
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(environment.began))
    arguments = f"--rounds {environment.rounds} --seed {environment.seed} --engine {environment.engine}"
    lines = [
        "# Random kills",
        "",
        f'Written by `make kills ARGS="{arguments} --report FILE"`; what it does is in',
        "`tests/e2e/random_kills.py`.",
        "",
        f"Commit {environment.commit}, {when} UTC, {environment.machine}, {took:.0f} minutes.",
        "",
        f"**{summary(kills, missed)}.**",
        "",
        "After each kill -9 the wanted replica must be ready within 60 s and be the only one, with exactly",
        "one engine process, no other process, port, claim or record, the router in step with the server,",
        "and both a plain and a streamed request answered. Two replicas of the model never had processes at",
        "the same time. A zombie is a dead process whose status nobody had taken yet when it was looked for;",
        "every killed server and agent stays one until the system has converged.",
        "",
        *_counts(kills, missed),
        "",
        *_times(kills),
        "",
        *_traffic(kills),
        *_troubles(kills, environment.seed),
    ]
    return "\n".join(lines) + "\n"


def _counts(kills: Sequence[Killed], missed: Mapping[str, int]) -> list[str]:
    counted = Counter((kill.phase, kill.role) for kill in kills if not kill.trouble)
    lines = [
        "Kills that hit their phase, and aims that missed it and were repeated:",
        "",
        f"| phase | {' | '.join(ROLES)} | all | missed | the phase |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for phase in PHASES:
        row = [counted[phase, role] for role in ROLES]
        cells = " | ".join(str(number) for number in row)
        lines.append(f"| {phase} | {cells} | {sum(row)} | {missed[phase]} | {MEANS[phase]} |")
    return lines


def _times(kills: Sequence[Killed]) -> list[str]:
    lines = [
        "Seconds until the system had converged, median and slowest, and zombies seen meanwhile:",
        "",
        "| phase | median | slowest | by killing | zombies |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    for phase in PHASES:
        those = [kill for kill in kills if kill.phase == phase and not kill.trouble]
        if those:
            slowest = max(those, key=lambda kill: kill.converged_s)
            median = statistics.median(kill.converged_s for kill in those)
            zombies = sum(kill.zombies for kill in those)
            times = f"{median:.1f} | {slowest.converged_s:.1f}"
            lines.append(f"| {phase} | {times} | {slowest.role}, {slowest.how} | {zombies} |")
    return lines


def _traffic(kills: Sequence[Killed]) -> list[str]:
    lines = [
        "Requests of two clients (plain and streamed in turn) from before a kill while serving until after",
        "convergence; a death of an agent or a server must not fail any:",
        "",
        "| killed | kills | answered | failed |",
        "| --- | ---: | ---: | ---: |",
    ]
    for role in ROLES:
        those = [kill for kill in kills if kill.role == role and kill.good is not None]
        good, bad = sum(kill.good or 0 for kill in those), sum(kill.bad or 0 for kill in those)
        lines.append(f"| {role} | {len(those)} | {good} | {bad} |")
    return lines


def _troubles(kills: Sequence[Killed], seed: int) -> list[str]:
    failed = [kill for kill in kills if kill.trouble]
    return ["", "## Failures", "", *(f"- {kill.line(seed)}" for kill in failed)] if failed else []
