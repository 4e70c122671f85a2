"""`llmgw ctl` as a process: quick to start, finds the server of this machine, streams logs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.entry.folders import default_data_folder
from tests.ctl.conftest import Running, running
from tests.web.stub import TOKEN

__all__ = ["running"]

HEAVY = ("sqlalchemy", "starlette", "uvicorn", "uvloop", "rich", "asyncio", "jinja2", "yaml")


def command(*argv: str, importtime: bool = False) -> list[str]:
    return [sys.executable, *(["-X", "importtime"] if importtime else []), "-m", "llmgw", "ctl", *argv]


def environment(data_home: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LLMGW_")}
    return {**clean, "XDG_DATA_HOME": str(data_home), "HOME": str(data_home), **more}


def run(*argv: str, data_home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(data_home, **more)
    return subprocess.run(command(*argv), capture_output=True, text=True, check=False, timeout=30, env=env)


@pytest.fixture
def installed(tmp_path: Path, running: Running) -> Path:
    """A data home in which the running server's token and address lie."""
    folder = tmp_path / "llmgw"
    folder.mkdir()
    (folder / "admin-token").write_text(TOKEN + "\n")
    (folder / "admin-address").write_text(f"127.0.0.1:{running.port}\n")
    return tmp_path


@pytest.mark.parametrize("argv", [("--help",), ("status", "--help"), ("status",)])
def test_ctl_imports_nothing_of_the_server(argv: tuple[str, ...], installed: Path) -> None:
    done = subprocess.run(
        command(*argv, importtime=True),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=environment(installed),
    )
    assert done.returncode == 0
    rows = [line.rpartition("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {name.strip() for _, _, name in rows}
    assert not {name for name in imported if name.partition(".")[0] in HEAVY}
    times = re.findall(r"import time:\s+(\d+) \|", done.stderr)
    print(f"llmgw ctl {' '.join(argv)}: {sum(map(int, times)) / 1000:.0f} ms in imports (traced)")


def test_ctl_finds_the_server_of_this_machine(installed: Path) -> None:
    done = run("routers", data_home=installed)
    assert (done.returncode, done.stderr) == (0, "")
    assert "r-1" in done.stdout


def test_the_environment_names_another_server(installed: Path) -> None:
    done = run("routers", data_home=installed, LLMGW_SERVER="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")


def test_without_any_server_it_says_where_it_looked(tmp_path: Path) -> None:
    done = run("status", data_home=tmp_path)
    assert done.returncode == 3
    assert str(tmp_path / "llmgw") in done.stderr


def test_a_locale_without_the_letters_is_no_error(installed: Path, running: Running) -> None:
    running.admin.log_lines = ("模型 é",)
    done = run(
        "logs", "smollm2-0badcafe", data_home=installed, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    assert (done.returncode, done.stdout) == (0, "?? ?\n")


def test_followed_lines_come_at_once_and_ctrl_c_ends_quietly(installed: Path) -> None:
    with subprocess.Popen(
        command("logs", "smollm2-0badcafe", "-f"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(installed),
    ) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert [following.stdout.readline(), following.stdout.readline()] == [
            "loading model\n",
            "listening\n",
        ]
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 130
        assert following.stderr.read() == ""


def test_the_data_folder_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    assert default_data_folder({}) == Path("/home/x/.local/share/llmgw")
    assert default_data_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/llmgw")
    assert default_data_folder({"XDG_DATA_HOME": "relative"}) == Path("/home/x/.local/share/llmgw")
