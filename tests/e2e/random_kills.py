"""Kills agent, engine, router and server at random moments of every phase; the system must converge.

`python -m tests.e2e.random_kills --rounds N --seed S --report FILE` (or `make kills ARGS=…`): N kills in
each phase. A kill's chance comes from the seed and its number alone; `--only NUMBER` plays one again.

Laws: a kill counts only when it hit the phase it aimed at; a phase that cannot be hit, or a window in
which clients got no answer, fails the run; agents and servers die without any request noticing.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.e2e.installation import Traffic
from tests.e2e.kill_phases import PHASES, ROLES
from tests.e2e.kill_report import Environment, Killed, report, summary
from tests.e2e.kill_rig import Hit, Rig

CONVERGED_S = 60.0
AIMS = 6  # a phase missed so often cannot be hit
ANSWERS = 5  # that clients must have got before a kill, and after the system converged
SILENT = ("agent", "server")  # whose deaths no request may notice


class Aim(NamedTuple):
    """One kill to be made."""

    number: int
    phase: str
    role: str


class DidNotConverge(Exception):
    """What was still wrong when time was up."""


def plan(rounds: int, seed: int) -> list[Aim]:
    """`rounds` kills a phase, its roles equally often, in an order drawn from the seed."""
    draw = random.Random(seed)
    pairs = [(phase, role) for phase in PHASES for role in _roles(phase, rounds, draw)]
    draw.shuffle(pairs)
    return [Aim(number, phase, role) for number, (phase, role) in enumerate(pairs)]


def _roles(phase: str, rounds: int, draw: random.Random) -> list[str]:
    roles: list[str] = []
    while len(roles) < rounds:
        turn = list(ROLES[phase])
        draw.shuffle(turn)
        roles += turn
    return roles[:rounds]


class Run:
    """One run: a rig that lives on from kill to kill, and is replaced when it did not converge."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        engine: str = "sim",
        source: Path | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        self._folder, self._seed, self._verbose = folder, seed, verbose
        self._engine, self._source = engine, source
        self._rig: Rig | None = None
        self._rigs = 0
        self._how = ""  # the hit of the kill that is being made
        self.missed: dict[str, int] = dict.fromkeys(PHASES, 0)

    def kills(self, aims: Sequence[Aim]) -> Iterator[Killed]:
        """Make the kills one after another."""
        try:
            for aim in aims:
                killed = self._kill(aim)
                print(killed.line(self._seed), flush=True)
                if killed.trouble and self._rig is not None:
                    self._rig.end()
                    self._rig = None
                yield killed
        finally:
            if self._rig is not None:
                self._rig.end()

    def _kill(self, aim: Aim) -> Killed:
        draw = random.Random(f"{self._seed}/{aim.number}")
        self._how = ""
        try:
            rig = self._ready_rig()
            return self._served(rig, aim, draw) if aim.phase == "serving" else self._hit(rig, aim, draw)
        except (DidNotConverge, AssertionError) as error:
            where = "" if self._rig is None else f" (logs in {self._rig.cluster.folder})"
            return Killed(aim.number, aim.phase, aim.role, self._how, trouble=f"{error}{where}")

    def _ready_rig(self) -> Rig:
        if self._rig is None:
            self._rigs += 1
            self._rig = Rig(self._folder / f"rig{self._rigs}", self._engine, self._source)
            self._rig.begin()
        return self._rig

    def _served(self, rig: Rig, aim: Aim, draw: random.Random) -> Killed:
        if rig.worn:
            rig.rotate(draw)
            _converge(rig, set())
        with rig.clients() as clients:
            _answers(clients)
            good, bad = _counted(clients)
            killed = self._hit(rig, aim, draw)
            _answers(clients)
            settled = _counted(clients)
            _answers(clients)
        after = _counted(clients)
        noticed = [text for client in clients for text in client.bad]
        trouble = ""
        if after[1] > settled[1]:
            trouble = f"requests failed after it converged: {noticed[-3:]}"
        elif aim.role in SILENT and after[1] > bad:
            trouble = f"requests noticed the death of the {aim.role}: {noticed[-3:]}"
        return killed._replace(good=after[0] - good, bad=after[1] - bad, trouble=trouble)

    def _hit(self, rig: Rig, aim: Aim, draw: random.Random) -> Killed:
        seen: set[int] = set()
        for _ in range(AIMS):
            old = rig.model
            hit = PHASES[aim.phase](rig, aim.role, draw)
            target = old if aim.phase == "stopping" else rig.model
            young = hit.engine if hit is not None and aim.role == "engine" else None
            pid = None if hit is None else young or rig.victim(aim.role, target)
            if hit is None or pid is None:
                self.missed[aim.phase] += 1
                if hit is not None:
                    rig.undo(hit)
                _converge(rig, seen)
                continue
            return self._after(rig, aim, hit, pid, draw)
        raise DidNotConverge(f"the phase could not be hit in {AIMS} tries")

    def _after(self, rig: Rig, aim: Aim, hit: Hit, pid: int, draw: random.Random) -> Killed:
        began, self._how = time.monotonic(), hit.how
        rig.kill(aim.role, pid)
        time.sleep(draw.uniform(0, 0.5) if hit.undo else 0)
        rig.undo(hit)
        seen: set[int] = set()
        _converge(rig, seen, verbose=self._verbose)
        took = time.monotonic() - began
        rig.join_slow_stream()
        rig.reap()
        if rig.crowd:
            raise DidNotConverge(f"two replicas had processes at once: {sorted(rig.crowd)}")
        if aim.phase in ("validating", "starting", "just ready"):
            rig.worn = True  # it may have failed on the way
        return Killed(aim.number, aim.phase, aim.role, hit.how, took, len(seen))


def _converge(rig: Rig, zombies: set[int], *, verbose: bool = False) -> None:
    began, said = time.monotonic(), ""
    deadline = began + CONVERGED_S
    while wrong := rig.wrong():
        if verbose and wrong[0] != said:
            said = wrong[0]
            print(f"    {time.monotonic() - began:5.1f} s: {said}", flush=True)
        zombies |= {zombie.pid for zombie in rig.zombies()}
        rig.watch_crowd()
        if time.monotonic() > deadline:
            raise DidNotConverge(f"after {CONVERGED_S:.0f} s still wrong: {'; '.join(wrong)}")
        time.sleep(0.1)


def _counted(clients: Sequence[Traffic]) -> tuple[int, int]:
    return sum(client.good for client in clients), sum(len(client.bad) for client in clients)


def _answers(clients: Sequence[Traffic]) -> None:
    """Every client gets some answers; a window in which one saw nothing fails."""
    for client in clients:
        client.seen_good(ANSWERS)


def main(argv: list[str]) -> int:
    """The command; 0 when every kill was followed by convergence."""
    parser = argparse.ArgumentParser(prog="random_kills", description="Kill -9 in every phase, and look.")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="kills in each phase")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was counted")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="make this kill alone")
    parser.add_argument("--engine", default="sim", choices=("sim", "llama.cpp"))
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is still wrong meanwhile")
    given = parser.parse_args(argv)
    environment = Environment.here(given.seed, given.rounds, given.engine)
    folder = Path(tempfile.mkdtemp(prefix="llmgw-kills-"))
    source = _model(folder) if given.engine == "llama.cpp" else None
    run = Run(folder, given.seed, given.engine, source, verbose=given.verbose)
    aims = [aim for aim in plan(given.rounds, given.seed) if given.only in (None, aim.number)]
    kills = list(run.kills(aims))
    if given.report is not None:
        given.report.write_text(report(kills, run.missed, environment))
    print(summary(kills, run.missed))
    failed = any(kill.trouble for kill in kills)
    if not failed:
        shutil.rmtree(folder)
    return int(failed)


def _model(folder: Path) -> Path:
    from tests.support.tiny_gguf import Shape, write_tiny_gguf

    path = folder / "model.gguf"
    write_tiny_gguf(path, Shape(layers=8, width=1024))
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
