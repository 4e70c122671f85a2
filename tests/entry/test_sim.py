"""`llmgw sim`: exit codes say whether it is well, the last line says which."""

import msgspec
import pytest

from llmgw.entry.sim import main
from llmgw.sim.mutants import MUTANTS
from llmgw.sim.report import Report

pytestmark = pytest.mark.sim


def test_clean_seeds_exit_0_and_the_last_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first-seed", "11", "--nodes", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("clean: 2 seeds from 11 at ")


def test_a_mutant_that_is_caught_exits_0_with_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--mutant", "published-unready"]) == 0
    assert "mutant published-unready caught by 2 of 2 seeds" in capsys.readouterr().out.splitlines()[-1]


def test_a_mutant_that_lives_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--first-seed", "11", "--nodes", "1", "--mutant", "settling-skipped"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("MUTANT LIVES")


def test_a_broken_seed_exits_1_and_tells_its_story(capsys: pytest.CaptureFixture[str]) -> None:
    with MUTANTS["published-unready"].applied():
        assert main(["--seeds", "1"]) == 1
    told = capsys.readouterr().out
    assert "seed 1 at " in told
    assert "ready_first" in told
    assert "again: llmgw sim --first-seed 1" in told
    assert told.splitlines()[-1].startswith("BROKEN: 1 of 1 seeds")


def test_json_is_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert (report.seeds, report.failures, report.mutant) == (1, (), None)


def test_mutants_are_listed_and_an_unknown_one_is_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list-mutants"]) == 0
    assert set(MUTANTS) == {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert main(["--mutant", "no-such"]) == 2
    assert "adoption-ignored" in capsys.readouterr().err


def test_a_wrong_number_is_a_wrong_command_line() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "0"])
    assert ended.value.code == 2
