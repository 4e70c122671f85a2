"""Each promise is asked of this machine and of a simulated one, on the loop that belongs to it."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from llmgw.host.statefiles import StateFolder
from llmgw.ports import Processes, SpawnSpec, StateFiles
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import Program, SimFiles, SimMachine, SimProcess, no_such_program
from llmgw.sim.network import SimNetwork
from tests.sim.test_machine import Scripted, Witness, for_ever

MARK = "LLMGW_TEST_MARK"
LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "linux": asyncio.new_event_loop,
    "simulated": lambda: SimLoop(SimNetwork(random.Random(1))),
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS


class Bench:
    """A machine with the few programs the promises need: they sleep, exit, ignore TERM, or have a child."""

    def __init__(self, processes: Processes, folder: str) -> None:
        self.processes = processes
        self._folder = folder

    def spec(self, script: str, **env: str) -> SpawnSpec:
        whole = {"PATH": os.environ["PATH"], MARK: self._folder, **env}
        argv = (script,) if script.startswith("/") else ("sh", "-c", script)
        return SpawnSpec(argv, whole, f"{self._folder}/log")

    @property
    def forks(self) -> bool:
        """Whether a script that sleeps does so in a child of its shell."""
        return isinstance(self.processes, LinuxProcesses)

    @property
    def marker(self) -> dict[str, str]:
        return {MARK: self._folder}


SLEEP = "exec sleep 1000"
EXIT = "exit 7"
STUBBORN = "trap '' TERM; echo deaf; sleep 1000"
PARENT = "sleep 1000 & exit 0"
MISSING = "/nowhere/engine"


def _program(machine: SimMachine, spec: SpawnSpec) -> Program:
    async def exits(process: SimProcess) -> int:
        return 7

    async def leaves_a_child(process: SimProcess) -> int:
        machine.start(spec, Scripted(for_ever), group=process.group)
        return 0

    programs: dict[str, Program] = {
        SLEEP: Scripted(for_ever),
        EXIT: Scripted(exits),
        STUBBORN: Scripted(for_ever, catches=(signal.SIGTERM,)),
        PARENT: Scripted(leaves_a_child),
    }
    return programs.get(spec.argv[-1]) or no_such_program(machine, spec)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimLoop):
        yield Bench(SimMachine("n1", "10.0.0.1", loop.network, _program, Witness()), str(tmp_path))
        loop.release_the_dead()
        return
    processes = LinuxProcesses(OffLoop())
    made = Bench(processes, str(tmp_path))
    yield made
    for identity in await processes.marked(made.marker):
        processes.kill(identity, signal.SIGKILL)
    processes.let_go()


@pytest.fixture
async def files(tmp_path: Path) -> StateFiles:
    loop = asyncio.get_running_loop()
    if isinstance(loop, SimLoop):
        machine = SimMachine("n1", "10.0.0.1", loop.network, no_such_program, Witness())
        return SimFiles(machine, "/state")
    return StateFolder(tmp_path)
