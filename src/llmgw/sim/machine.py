"""A simulated machine: its processes with their pids, and its disk; what survives a kill and what does not.

Laws: a process ends only by its own return, by a signal it does not ignore, or with its machine; a
killed one takes no further step; files written stay written (they were synced), and a machine that
starts again has another boot id and none of its processes.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from llmgw.ports import ProcessId, SpawnFailed, SpawnSpec
from llmgw.sim.network import SimNetwork


class Program(Protocol):
    """What a process runs: a coroutine to its exit status, and how it takes signals."""

    async def run(self) -> int:
        """Until it exits by itself."""
        ...

    def ignores(self, signum: int) -> bool:
        """Whether a signal does nothing (KILL is never asked)."""
        ...


ProgramFor = Callable[["SimMachine", SpawnSpec], Program]
"""Which program a command line starts. Raises `SpawnFailed` for one that is not there."""


class _Running(msgspec.Struct):
    identity: ProcessId
    group: int
    env: Mapping[str, str]
    program: Program
    name: str
    exited: asyncio.Future[int]


class SimMachine:
    """One host: implements `ports.Processes` for whoever runs on it."""

    def __init__(self, name: str, network: SimNetwork, program_for: ProgramFor) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.spawned = 0
        self._network = network
        self._program_for = program_for
        self._boots = 1
        self._next_pid = 100
        self._running: dict[int, _Running] = {}

    # ------------------------------------------------------------ ports.Processes

    def boot_id(self) -> str:
        """Changes with every restart of the machine."""
        return f"{self.name}-boot-{self._boots}"

    async def spawn(self, spec: SpawnSpec) -> "SimHandle":
        """Start a process. Raises `SpawnFailed`."""
        program = self._program_for(self, spec)
        return SimHandle(self, self.start(spec.argv[0], program.run, spec.env, program))

    def adopt(self, identity: ProcessId) -> "SimHandle | None":
        """A handle on a live process with exactly this identity."""
        running = self._running.get(identity.pid)
        if running is None or running.identity != identity:
            return None
        return SimHandle(self, running, adopted=True)

    def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        """Live processes whose environment holds all of these."""
        wanted = marker.items()
        return [one.identity for one in self._running.values() if wanted <= dict(one.env).items()]

    def kill(self, identity: ProcessId, signum: int) -> None:
        """Signal one process if it still has this identity."""
        running = self._running.get(identity.pid)
        if running is not None and running.identity == identity:
            self._signal(running, signum)

    # ------------------------------------------------------------ used by the world and by handles

    def start(
        self, title: str, run: Callable[[], Awaitable[int]], env: Mapping[str, str], program: Program
    ) -> _Running:
        """Start a process that runs `run` in a context of its own."""
        loop = self._network.loop
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        identity = ProcessId(self.boot_id(), pid, int(loop.time() * 100))
        name = f"{self.name}/{pid}/{title}"
        running = _Running(identity, pid, env, program, name, loop.create_future())
        self._running[pid] = running
        self.spawned += 1
        with self._network.running_as(self.name, name):
            loop.create_task(self._run(running, run))
        return running

    async def _run(self, running: _Running, run: Callable[[], Awaitable[int]]) -> None:
        self.ended(running, await run())

    def ended(self, running: _Running, status: int) -> None:
        """A process is over: nothing of it runs again, its sockets are closed by the kernel."""
        if self._running.pop(running.identity.pid, None) is None:
            return
        self._network.process_died(running.name)
        if not running.exited.done():
            running.exited.set_result(status)

    def signal_group(self, group: int, signum: int) -> None:
        """Signal every process of a group."""
        for running in [one for one in self._running.values() if one.group == group]:
            self._signal(running, signum)

    def _signal(self, running: _Running, signum: int) -> None:
        if signum == signal.SIGKILL or not running.program.ignores(signum):
            self.ended(running, -signum)

    def pids(self) -> list[int]:
        """Pids of live processes."""
        return sorted(self._running)

    def power_off(self) -> None:
        """All processes gone without a word; the next boot has another id."""
        for running in list(self._running.values()):
            self.ended(running, -signal.SIGKILL)
        self._boots += 1


class SimHandle:
    """Implements `ports.ProcessHandle`."""

    def __init__(self, machine: SimMachine, running: _Running, *, adopted: bool = False) -> None:
        self._machine = machine
        self._running = running
        self._adopted = adopted

    @property
    def identity(self) -> ProcessId:
        """Boot id, pid and start time."""
        return self._running.identity

    async def wait(self) -> int | None:
        """Exit status; `None` for one that was adopted."""
        status = await asyncio.shield(self._running.exited)
        return None if self._adopted else status

    def signal_group(self, signum: int) -> None:
        """Signal its process group."""
        self._machine.signal_group(self._running.group, signum)


class SimFiles:
    """Implements `ports.StateFiles` on a machine's disk."""

    def __init__(self, machine: SimMachine, folder: str) -> None:
        self._files = machine.files
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        """The content, or `None`."""
        return self._files.get(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all."""
        self._files[self.path(name)] = data

    def remove(self, name: str) -> None:
        """No error when it is not there."""
        self._files.pop(self.path(name), None)

    def names(self, prefix: str) -> list[str]:
        """Names that begin with `prefix`."""
        start = self.path(prefix)
        cut = len(self._folder) + 1
        return sorted(path[cut:] for path in self._files if path.startswith(start))

    def path(self, name: str) -> str:
        """Absolute path."""
        return f"{self._folder}/{name}"


def no_such_program(_machine: SimMachine, spec: SpawnSpec) -> Program:
    """A machine on which nothing is installed."""
    raise SpawnFailed(f"{spec.argv[0]}: no such file")
