"""Who holds a port, and what is left of a run."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.entry.process import CannotRun
from llmgw.entry.up_machine import check_port, gone, marked, program, sweep

WAITS = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
DEAF = [
    sys.executable,
    "-c",
    "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True)\nwhile True: signal.pause()",
]


def start(command: list[str], mark: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "LLMGW_MARK_TEST": mark})
    assert process.stdout is not None
    process.stdout.readline()  # it is up, and deaf when it should be
    return process


def test_a_free_port_is_fine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    check_port(f"127.0.0.1:{port}", "--port", ())


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_said_with_who_takes_it(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        with pytest.raises(CannotRun) as refused:
            check_port(f"{host}:{port}", "--port", ())
        text = str(refused.value)
        assert text.startswith(f"port {port} is taken by ")
        assert f"(pid {os.getpid()}); stop that, or choose another port with --port" in text
        assert "\n" not in text
        check_port(f"{host}:{port}", "--port", [os.getpid()])


def test_a_port_shared_by_reuseport_counts_as_taken() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as one, pytest.raises(CannotRun):
        check_port(f"127.0.0.1:{one.getsockname()[1]}", "--port", ())


def test_an_address_that_is_not_this_machines_is_said() -> None:
    with pytest.raises(CannotRun, match=r"cannot listen at 192\.0\.2\.99:8080: .*--admin-port"):
        check_port("192.0.2.99:8080", "--admin-port", ())


async def test_marked_processes_are_found_and_ended_also_deaf_ones() -> None:
    mark = {"LLMGW_MARK_TEST": f"sweep-{os.getpid()}"}
    willing, deaf = start(WAITS, mark["LLMGW_MARK_TEST"]), start(DEAF, mark["LLMGW_MARK_TEST"])
    other = start(WAITS, "other")
    try:
        assert set(marked([mark])) == {willing.pid, deaf.pid}
        assert not await gone([mark], "signal", 0.0)
        await sweep([mark], 0.5)
        assert (willing.wait(5), deaf.wait(5)) == (-15, -9)
        assert other.poll() is None
        assert await gone([mark], "", 5.0)
    finally:
        for process in (willing, deaf, other):
            process.kill()
            process.communicate()


def test_this_program_is_called_by_its_name_only_where_a_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "a folder" / "llmgw"
    here.parent.mkdir()
    here.write_text("#!/bin/sh\n")
    here.chmod(0o755)
    assert shlex.split(program(str(here))) == [str(here)]
    assert shlex.split(program("/x/llmgw/__main__.py")) == [sys.executable, "-m", "llmgw"]
    monkeypatch.setenv("PATH", str(here.parent))
    assert program(str(here)) == "llmgw"
