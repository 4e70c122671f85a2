"""A simulated machine: its processes with their pids, and its disk; what survives a kill and what does not.

Laws: a process ends only by its own return, by a signal it does not catch, or with its machine; a
killed one takes no further step; files written stay written (they were synced), and a machine that
starts again has another boot id, the same pids, and none of its processes.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from llmgw.aio.tasks import Failed, Tasks, outcome
from llmgw.ports import ProcessId, SpawnFailed, SpawnSpec
from llmgw.sim.loop import SimLoop
from llmgw.sim.network import SimNetwork

FIRST_PID = 100
CRASHED = 1  # exit status of an interpreter that dies of an exception
TICKS_PER_S = 100  # a kernel's clock ticks, in which start times are counted


class Program(Protocol):
    """What a process runs: a coroutine to its exit status, and the signals it catches."""

    async def run(self, process: "SimProcess") -> int:
        """Until it exits by itself."""
        ...

    def catches(self, signum: int) -> bool:
        """Take a signal; whether it goes on running (KILL is never asked)."""
        ...


ProgramFor = Callable[["SimMachine", SpawnSpec], Program]
"""Which program a command line starts. Raises `SpawnFailed` for one that is not there."""


class End(msgspec.Struct, frozen=True):
    """How a process ended: its status (negative: a signal), tasks it left behind, what it died of."""

    status: int
    leaked: tuple[str, ...] = ()
    crash: Exception | None = None


class Watcher(Protocol):
    """Hears what happens to processes; the checkers' eyes, outside of the system."""

    def started(self, process: "SimProcess") -> None:
        """It runs from now."""
        ...

    def signalled(self, process: "SimProcess", signum: int) -> None:
        """It is about to get a signal."""
        ...

    def ended(self, process: "SimProcess", end: End) -> None:
        """It is over."""
        ...


class SimProcess:
    """One process of a machine."""

    def __init__(self, machine: "SimMachine", identity: ProcessId, spec: SpawnSpec, program: Program) -> None:
        self.machine = machine
        self.identity = identity
        self.spec = spec
        self.program = program
        self.group = identity.pid
        self.name = f"{machine.name}/{identity.boot_id}/{identity.pid}"
        self.title = spec.argv[0]
        self.exited: asyncio.Future[int] = machine.network.loop.create_future()

    @property
    def pid(self) -> int:
        """Its number."""
        return self.identity.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return not self.exited.done()

    def say(self, line: str) -> None:
        """Write a line to its log."""
        if self.spec.log_path:
            self.machine.append(self.spec.log_path, line.encode() + b"\n")


class SimMachine:
    """One host: implements `ports.Processes` for whoever runs on it."""

    def __init__(
        self, name: str, address: str, network: SimNetwork, program_for: ProgramFor, watcher: Watcher
    ) -> None:
        self.name = name
        self.address = address
        self.network = network
        self.files: dict[str, bytes] = {}
        self.on = True
        self._program_for = program_for
        self._watcher = watcher
        self._boots = 1
        self._next_pid = FIRST_PID
        self._running: dict[int, SimProcess] = {}
        self._tasks = Tasks()

    # ------------------------------------------------------------ ports.Processes

    def boot_id(self) -> str:
        """Changes with every restart of the machine."""
        return f"boot-{self._boots}"

    async def spawn(self, spec: SpawnSpec) -> "SimHandle":
        """Start a process. Raises `SpawnFailed`."""
        if self.network.closed:
            raise SpawnFailed("the simulation is over")
        return SimHandle(self.start(spec, self._program_for(self, spec)))

    def adopt(self, identity: ProcessId) -> "SimHandle | None":
        """A handle on a live process with exactly this identity."""
        process = self._running.get(identity.pid)
        if process is None or process.identity != identity:
            return None
        return SimHandle(process, adopted=True)

    async def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        """Live processes whose environment holds all of these."""
        wanted = marker.items()
        return [one.identity for one in self._running.values() if wanted <= dict(one.spec.env).items()]

    def alive(self, identity: ProcessId) -> bool:
        """Whether exactly this process runs."""
        return self.adopt(identity) is not None

    def kill(self, identity: ProcessId, signum: int) -> None:
        """Signal one process if it still has this identity."""
        process = self._running.get(identity.pid)
        if process is not None and process.identity == identity:
            self._signal(process, signum)

    # ------------------------------------------------------------ used by the world and by handles

    def start(self, spec: SpawnSpec, program: Program, group: int | None = None) -> SimProcess:
        """Start a process that runs `program`, in a context and, unless one is given, a group of its own."""
        assert self.on, f"{self.name} is off"
        loop = self._loop()
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        process = SimProcess(
            self, ProcessId(self.boot_id(), pid, int(loop.time() * TICKS_PER_S)), spec, program
        )
        process.group = pid if group is None else group
        self._running[pid] = process
        self.network.pids[process.name] = pid
        self._watcher.started(process)
        with self.network.running_as(self.address, process.name):
            self._tasks.start(self._run(process), name=process.title)
        return process

    async def _run(self, process: SimProcess) -> None:
        status = await outcome(process.program.run(process))
        if isinstance(status, Failed):
            self._end(process, End(CRASHED, crash=status.failure))
        else:
            left = self._loop().tasks_of(process.name)
            self._end(process, End(status, tuple(task.get_name() for task in left)))

    def _loop(self) -> SimLoop:
        loop = self.network.loop
        assert isinstance(loop, SimLoop)
        return loop

    def _end(self, process: SimProcess, end: End) -> None:
        if self._running.pop(process.pid, None) is None:
            return
        self.network.process_died(process.name)
        process.exited.set_result(end.status)
        self._watcher.ended(process, end)

    def signal_group(self, group: int, signum: int) -> None:
        """Signal every process of a group."""
        for process in [one for one in self._running.values() if one.group == group]:
            self._signal(process, signum)

    def _signal(self, process: SimProcess, signum: int) -> None:
        self._watcher.signalled(process, signum)
        if signum == signal.SIGKILL or not process.program.catches(signum):
            self._end(process, End(-signum))

    def holder(self, pid: int) -> ProcessId | None:
        """Which process has this number now."""
        process = self._running.get(pid)
        return None if process is None else process.identity

    def processes(self) -> list[SimProcess]:
        """Live processes, oldest first."""
        return list(self._running.values())

    def power_off(self) -> None:
        """All processes gone without a word to anyone; the next boot has another id."""
        self.on = False
        self.network.host_down(self.address)
        for process in self.processes():
            self._end(process, End(-signal.SIGKILL))
        self._boots += 1
        self._next_pid = FIRST_PID  # so that old pids come again, for other processes

    def power_on(self) -> None:
        """It answers again, and runs nothing."""
        self.on = True
        self.network.host_up(self.address)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file of its disk."""
        self.files[path] = self.files.get(path, b"") + data


class SimHandle:
    """Implements `ports.ProcessHandle`."""

    def __init__(self, process: SimProcess, *, adopted: bool = False) -> None:
        self._process = process
        self._adopted = adopted

    @property
    def identity(self) -> ProcessId:
        """Boot id, pid and start time."""
        return self._process.identity

    async def wait(self) -> int | None:
        """Exit status; `None` for one that was adopted."""
        status = await asyncio.shield(self._process.exited)
        return None if self._adopted else status

    def signal_group(self, signum: int) -> None:
        """Signal its process group, which may outlive its leader; never another process's."""
        machine, identity = self._process.machine, self._process.identity
        if machine.boot_id() == identity.boot_id and machine.holder(identity.pid) in (None, identity):
            machine.signal_group(self._process.group, signum)


class SimFiles:
    """Implements `ports.StateFiles` on a machine's disk."""

    def __init__(self, machine: SimMachine, folder: str, is_full: Callable[[], bool] = lambda: False) -> None:
        self._files = machine.files
        self._folder = folder
        self._is_full = is_full

    def read(self, name: str) -> bytes | None:
        """The content, or `None`."""
        return self._files.get(self.path(name))

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all. Raises `OSError` when the disk is full."""
        if self._is_full():
            raise OSError(28, "No space left on device", self.path(name))
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
