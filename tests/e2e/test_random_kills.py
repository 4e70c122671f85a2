"""Two random kills in each phase; `make kills` makes as many as are asked for."""

import random
from pathlib import Path

import pytest

from tests.e2e.kill_phases import PHASES, ROLES
from tests.e2e.kill_report import Environment, Killed, report, summary
from tests.e2e.random_kills import Run, plan

ROUNDS = 2


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_the_system_converges_after_a_kill_in_any_phase(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}: make kills ARGS='--rounds {ROUNDS} --seed {seed}' plays this again")
    run = Run(tmp_path, seed)
    kills = list(run.kills(plan(ROUNDS, seed)))
    print(summary(kills, run.missed))
    assert not [kill.line(seed) for kill in kills if kill.trouble]
    assert [kill.phase for kill in sorted(kills, key=lambda one: one.phase)] == sorted(list(PHASES) * ROUNDS)
    assert all(kill.good for kill in kills if kill.phase == "serving"), "clients saw nothing"
    assert sum(kill.zombies for kill in kills) > 0, "no zombie was seen: nothing says that they count as dead"


def test_a_plan_hits_every_phase_and_its_roles_equally_often() -> None:
    aims = plan(12, seed=5)
    for phase, roles in ROLES.items():
        killed = [aim.role for aim in aims if aim.phase == phase]
        assert {role: killed.count(role) for role in roles} == dict.fromkeys(roles, 12 // len(roles))
    assert aims == plan(12, seed=5)
    assert aims != plan(12, seed=6)


def test_a_report_counts_what_hit_and_tells_what_failed() -> None:
    kills = [
        Killed(0, "serving", "agent", "clients ask", 2.5, zombies=1, good=40, bad=0),
        Killed(1, "starting", "engine", "its engine loads", 7.25, zombies=2),
        Killed(2, "starting", "server", trouble="after 60 s still wrong: ports"),
    ]
    missed = dict.fromkeys(PHASES, 0) | {"settling": 3}
    text = report(kills, missed, Environment("abc1234", 9, 1, "sim", "2 CPUs", 0.0))
    assert "Commit abc1234" in text and "--rounds 1 --seed 9" in text
    assert "| starting | 0 | 1 | 0 | 0 | 1 | 0 |" in text
    assert "| settling | 0 | 0 | 0 | 0 | 0 | 3 |" in text
    assert "| starting | 7.2 | 7.2 | engine, its engine loads | 2 |" in text
    assert "| agent | 1 | 40 | 0 |" in text
    assert "kill 2 (seed 9): server while starting: FAILED: after 60 s still wrong: ports" in text
    assert "3 kills, 1 failed, 3 missed" in text
