"""Processes of this machine, for real: started, found, watched, signalled by identity alone."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from llmgw.ports import ProcessHandle, SpawnFailed, SpawnSpec

MARK = "LLMGW_TEST_MARK"


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[LinuxProcesses]:
    made = LinuxProcesses(OffLoop())
    yield made
    for identity in await made.marked({MARK: str(tmp_path)}):
        made.kill(identity, signal.SIGKILL)
    made.let_go()


class Starter:
    def __init__(self, processes: LinuxProcesses, folder: Path) -> None:
        self.processes = processes
        self.folder = folder
        self.log = folder / "log"

    def spec(self, *argv: str, **env: str) -> SpawnSpec:
        whole = {"PATH": os.environ["PATH"], MARK: str(self.folder), **env}
        return SpawnSpec(argv, whole, str(self.log))

    async def start(self, *argv: str, **env: str) -> ProcessHandle:
        return await self.processes.spawn(self.spec(*argv, **env))


@pytest.fixture
def starter(processes: LinuxProcesses, tmp_path: Path) -> Starter:
    return Starter(processes, tmp_path)


async def test_output_is_appended_to_the_log_and_the_status_comes_back(starter: Starter) -> None:
    starter.log.write_text("before\n")
    handle = await starter.start("sh", "-c", "echo out; echo err >&2; exit 7")
    assert await handle.wait() == 7
    assert starter.log.read_text() == "before\nout\nerr\n"
    assert await handle.wait() == 7


async def test_a_signal_is_a_negative_status(starter: Starter) -> None:
    handle = await starter.start("sleep", "1000")
    handle.signal_group(signal.SIGKILL)
    assert await handle.wait() == -signal.SIGKILL


async def test_an_exit_is_seen_within_milliseconds(starter: Starter) -> None:
    handle = await starter.start("sleep", "1000")
    loop = asyncio.get_running_loop()
    began = loop.time()
    handle.signal_group(signal.SIGKILL)
    await handle.wait()
    assert loop.time() - began < 0.2


async def test_what_cannot_be_started_says_why(starter: Starter) -> None:
    with pytest.raises(SpawnFailed, match="cannot start /nowhere/x: No such file"):
        await starter.start("/nowhere/x")


async def test_the_group_is_signalled_children_included(starter: Starter, processes: LinuxProcesses) -> None:
    handle = await starter.start("sh", "-c", "sleep 1000 & echo started; wait")
    await until_logged(starter, "started")
    marked = await processes.marked({MARK: str(starter.folder)})
    assert len(marked) == 2
    handle.signal_group(signal.SIGKILL)
    await handle.wait()
    await gone(processes, starter)


async def test_a_group_outlives_its_leader_and_can_still_be_signalled(
    starter: Starter, processes: LinuxProcesses
) -> None:
    handle = await starter.start("sh", "-c", "sleep 1000 & exit 0")
    assert await handle.wait() == 0
    assert len(await processes.marked({MARK: str(starter.folder)})) == 1
    handle.signal_group(signal.SIGKILL)
    await gone(processes, starter)


async def test_processes_are_found_by_their_whole_marker(starter: Starter, processes: LinuxProcesses) -> None:
    handle = await starter.start("sleep", "1000", SHARD="a/0")
    assert await processes.marked({MARK: str(starter.folder), "SHARD": "a/0"}) == [handle.identity]
    assert await processes.marked({MARK: str(starter.folder), "SHARD": "a"}) == []
    assert await processes.marked({MARK: str(starter.folder), "SHARD": "a/0", "MORE": "x"}) == []


async def test_another_processes_child_is_adopted_watched_and_stopped(
    starter: Starter, processes: LinuxProcesses
) -> None:
    await starter.start("sh", "-c", "sleep 1000 & echo started; wait")
    await until_logged(starter, "started")
    marked = await processes.marked({MARK: str(starter.folder)})
    child = max(marked, key=lambda identity: identity.pid)
    adopted = processes.adopt(child)
    assert adopted is not None and adopted.identity == child
    processes.kill(child, signal.SIGKILL)
    assert await adopted.wait() is None


async def test_only_the_exact_identity_is_adopted_or_killed(
    starter: Starter, processes: LinuxProcesses
) -> None:
    handle = await starter.start("sleep", "1000")
    identity = handle.identity
    for wrong in (
        msgspec.structs.replace(identity, start_time=identity.start_time + 1),
        msgspec.structs.replace(identity, boot_id="another boot"),
    ):
        assert processes.adopt(wrong) is None
        processes.kill(wrong, signal.SIGKILL)
    assert processes.adopt(identity) is not None


async def test_a_zombie_is_dead(processes: LinuxProcesses, tmp_path: Path) -> None:
    child = sleeping({MARK: str(tmp_path)})
    (identity,) = await processes.marked({MARK: str(tmp_path)})
    watched = processes.adopt(identity)
    assert watched is not None
    child.kill()
    await watched.wait()  # nobody has collected its status: it is a zombie now
    assert processes.adopt(identity) is None
    assert await processes.marked({MARK: str(tmp_path)}) == []
    child.wait()


async def test_letting_go_leaves_processes_running(tmp_path: Path) -> None:
    first = LinuxProcesses(OffLoop())
    starter = Starter(first, tmp_path)
    identity = (await starter.start("sleep", "1000")).identity
    first.let_go()
    second = LinuxProcesses(OffLoop())
    adopted = second.adopt(identity)
    assert adopted is not None
    second.kill(identity, signal.SIGKILL)
    await adopted.wait()


async def test_no_descriptor_of_ours_reaches_an_engine(starter: Starter) -> None:
    code = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    handle = await starter.start(sys.executable, "-c", code)
    await handle.wait()
    assert starter.log.read_text().strip() == "[0, 1, 2, 3]"  # 3 is the listing itself


def sleeping(env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], env={**os.environ, **env})


async def until_logged(starter: Starter, text: str) -> None:
    async with asyncio.timeout(10):
        while text not in starter.log.read_text():  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.005)


async def gone(processes: LinuxProcesses, starter: Starter) -> None:
    async with asyncio.timeout(10):
        while await processes.marked({MARK: str(starter.folder)}):
            pass  # each look gives the machine its turn
