"""The command line: which role runs, what is imported for it, and how wrong use is answered."""

import ast
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from llmgw.entry import main

HEAVY = ("sqlalchemy", "starlette", "uvicorn", "uvloop", "rich", "websockets", "alembic", "jinja2")
PACKAGE = Path(main.__file__).parents[1]


def run(*arguments: str, importtime: bool = False) -> subprocess.CompletedProcess[str]:
    options = ["-X", "importtime"] if importtime else []
    command = [sys.executable, *options, "-m", "llmgw", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_version_is_one_line() -> None:
    done = run("--version")
    assert re.fullmatch(r"llmgw \d+\.\d+\.\d+\n", done.stdout)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_verb_for_people_and_no_other() -> None:
    done = run("--help")
    assert done.returncode == 0
    for verb in ("up", "server", "router", "agent", "ctl", "keys", "db", "sim"):
        assert re.search(rf"^  {verb} ", done.stdout, re.MULTILINE)
    assert "sim-engine" not in done.stdout


def test_an_unknown_verb_is_answered_with_near_ones_and_exit_code_2() -> None:
    done = run("serve")
    assert done.returncode == 2
    assert done.stderr.startswith("llmgw: unknown verb 'serve'; did you mean server?\nusage: llmgw VERB")
    assert done.stdout == ""


def test_no_verb_is_a_usage_error() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: llmgw VERB" in done.stderr


def test_only_the_module_of_the_role_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fake_import(name: str) -> types.SimpleNamespace:
        asked.append(name)
        return types.SimpleNamespace(main=len)

    monkeypatch.setattr("importlib.import_module", fake_import)
    assert main.dispatch(["keys", "key", "list"]) == 2
    assert asked == ["llmgw.entry.keys"]


def test_a_package_that_is_not_installed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake_import(name: str) -> None:
        raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")

    monkeypatch.setattr("importlib.import_module", fake_import)
    assert main.dispatch(["server"]) == 1
    assert (
        capsys.readouterr().err
        == f"llmgw: the Python package 'msgspec' is not installed for {sys.executable}\n"
    )


def test_an_old_python_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert main.dispatch(["up"]) == 1
    said = capsys.readouterr().err
    assert said == f"llmgw: needs Python 3.11 or newer, this is 3.9.2 ({sys.executable})\n"


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "entry/__init__.py", "entry/main.py"])
def test_what_runs_before_the_version_check_can_be_read_by_old_pythons(name: str) -> None:
    tree = ast.parse((PACKAGE / name).read_text(), feature_version=(3, 6))
    for node in ast.walk(tree):
        # Evaluated when the function is defined, where old Pythons know no list[str].
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Subscript):
            pytest.fail(f"{name}:{node.lineno}: quote the annotation of {node.arg}")


def test_a_reader_that_closes_the_pipe_gets_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "llmgw", "--help"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=30)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)])
def test_before_a_role_is_known_nothing_heavy_is_imported(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, importtime=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert not {name for name in imported if name.partition(".")[0] in (*HEAVY, "msgspec", "asyncio")}
