"""`make setup` ends with one line a person can act on when the machine lacks something."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.style.source import ROOT

# Programs the scripts use; a PATH of only these stands for a machine without anything else.
TOOLS = ("sh", "cat", "cksum", "dirname", "basename", "uname", "tr", "mktemp", "rm", "tail", "id")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout with only scripts and locks, and a folder `bin` of the programs that machine has."""
    for folder in ("scripts", "requirements"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def program(machine: Path, name: str, text: str) -> None:
    file = machine / "bin" / name
    file.unlink(missing_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)


def setup(machine: Path, what: str = "all", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(machine / "scripts" / "setup.sh"), what],
        env={"PATH": str(machine / "bin"), **env},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_an_old_python_is_refused_with_one_line(machine: Path) -> None:
    program(machine, "python3", '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    done = setup(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "llmgw: needs Python 3.11 or newer, found Python 3.9.2; "
        "install one, or name it: make PYTHON=/path/to/python3 ..."
    ]


def test_no_python_is_refused_with_one_line(machine: Path) -> None:
    done = setup(machine)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "found no python3" in done.stderr


def test_a_newer_python_beside_an_old_one_is_used(machine: Path) -> None:
    program(machine, "python3", "exit 1")
    program(machine, "python3.12", 'case "$2" in *ensurepip*|*ctypes*) exit 1 ;; esac')
    program(machine, "id", "echo 1000")
    done = setup(machine)
    assert done.returncode == 1
    assert "sudo apt-get install python3.12-venv" in done.stderr


def test_without_rights_missing_packages_are_named_in_one_line(machine: Path) -> None:
    program(machine, "python3", 'case "$2" in *ensurepip*|*libgomp*) exit 1 ;; esac')
    program(machine, "id", "echo 1000")
    done = setup(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "llmgw: these system packages are missing; run: sudo apt-get install python3-venv libgomp1"
    ]


def test_root_gets_missing_packages_installed_from_fresh_lists(machine: Path) -> None:
    program(machine, "id", "echo 0")
    program(
        machine,
        "python3",
        'case "$2" in *ensurepip*) [ -e "$0.venv" ] ;; *libgomp*) [ -e "$0.venv" ] ;; esac',
    )
    program(
        machine,
        "apt-get",
        'bin=${0%/*}\necho "$*" >>"$bin/calls"\n'
        'case $1 in update) echo >"$bin/lists" ;;\n'
        'install) [ -e "$bin/lists" ] && echo >"$bin/python3.venv" || exit 100 ;; esac',
    )
    done = setup(machine)
    calls = (machine / "bin" / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.split()[0] for call in calls] == ["install", "update", "install"]
    assert calls[0].endswith("python3-venv libgomp1")
    assert "llmgw: installing python3-venv libgomp1 (apt)" in done.stderr


def test_a_finished_setup_is_not_done_again(machine: Path) -> None:
    (machine / ".venv" / "bin").mkdir(parents=True)
    program(machine, "python3", "exit 1")  # anything but the stamp would fail
    shutil.copy(machine / "bin" / "python3", machine / ".venv" / "bin" / "python")
    stamp = ". scripts/common.sh; wanted requirements/run.txt"
    wanted = subprocess.run(
        ["/bin/sh", "-c", stamp],
        cwd=machine,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (machine / ".venv" / ".setup-run").write_text(wanted, encoding="utf-8")
    assert setup(machine, "run").returncode == 0
    (machine / "requirements" / "run.txt").write_text("changed==1\n", encoding="utf-8")
    assert setup(machine, "run").returncode == 1


def test_an_unknown_part_is_refused(machine: Path) -> None:
    assert "knows run and all, not 'most'" in setup(machine, "most").stderr


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "scripts").glob("*.sh")))
def test_every_script_is_read_by_a_plain_shell(script: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-n", str(ROOT / "scripts" / script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
