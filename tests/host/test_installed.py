"""Engines are found without running any."""

import sys
from pathlib import Path

import pytest

from llmgw.core.inventory import EngineInstall
from llmgw.host.installed import EngineSearch, find_engines, kind_of


def trap(folder: Path, name: str) -> Path:
    """A program that, started for whatever reason, leaves a trace."""
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {folder}/started\n")
    program.chmod(0o755)
    return program


def test_a_program_on_the_path_is_found_and_not_started(tmp_path: Path) -> None:
    program = trap(tmp_path, "llama-server")
    found = find_engines(EngineSearch(str(tmp_path), sys.executable))
    assert found["llama.cpp"] == EngineInstall("llama.cpp", path=str(program))
    assert not (tmp_path / "started").exists()


def test_without_a_program_the_python_package_is_found() -> None:
    pytest.importorskip("xllamacpp")
    found = find_engines(EngineSearch("/nowhere", sys.executable))
    assert (found["llama.cpp"].path, found["llama.cpp"].module) == (sys.executable, "xllamacpp")
    assert found["llama.cpp"].version


def test_the_simulated_engine_is_always_there() -> None:
    assert find_engines(EngineSearch("/nowhere", sys.executable))["sim"] == EngineInstall("sim")


def test_what_is_written_wins_and_several_installs_have_names(tmp_path: Path) -> None:
    found_one, own, newer = (trap(tmp_path, name) for name in ("llama-server", "own", "newer"))
    written = {"llama.cpp": str(own), "llama.cpp-b9": str(newer), "vllm": str(own)}
    found = find_engines(EngineSearch(str(found_one.parent), sys.executable, written))
    assert found["llama.cpp"].path == str(own)
    assert found["llama.cpp-b9"] == EngineInstall("llama.cpp", path=str(newer))
    assert found["vllm"].kind == "vllm"
    assert not (tmp_path / "started").exists()


def test_a_written_path_with_nothing_to_run_is_not_offered(tmp_path: Path) -> None:
    trap(tmp_path, "llama-server")
    written = {"llama.cpp": str(tmp_path / "missing")}
    assert "llama.cpp" not in find_engines(EngineSearch(str(tmp_path), sys.executable, written))


def test_a_written_interpreter_is_asked_for_the_module(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    with_it = find_engines(EngineSearch("/nowhere", sys.executable, {"llama.cpp-p": sys.executable}))
    assert with_it["llama.cpp-p"].module == "xllamacpp"
    without = tmp_path / "python3"
    without.write_text("#!/bin/sh\nexit 1\n")
    without.chmod(0o755)
    found = find_engines(EngineSearch("/nowhere", sys.executable, {"llama.cpp-p": str(without)}))
    assert "llama.cpp-p" not in found


def test_an_install_is_of_the_engine_its_name_begins_with() -> None:
    assert [kind_of(name) for name in ("llama.cpp", "llama.cpp-b9", "sim", "simple", "vllm-0.33")] == [
        *("llama.cpp", "llama.cpp", "sim", "simple", "vllm-0.33")
    ]
