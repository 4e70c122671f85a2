"""Runs a role (server, agent) as a process of a simulated machine, and starts it again when it ended.

Laws: a role is built by the same function production calls; TERM asks it to close and it then exits 0,
KILL asks nobody; what starts it again is no part of the system, as a service manager is not.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from llmgw.aio.tasks import Tasks
from llmgw.ports import LoopOwner, SpawnSpec
from llmgw.sim.machine import Program, SimMachine, SimProcess

Build = Callable[[SimProcess], Awaitable[LoopOwner]]


class Role:
    """The program of a role's process."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._stop = asyncio.Event()
        self.running: LoopOwner | None = None

    def catches(self, signum: int) -> bool:
        """TERM and INT ask it to end."""
        if signum in (signal.SIGTERM, signal.SIGINT):
            self._stop.set()
            return True
        return False

    async def run(self, process: SimProcess) -> int:
        """Until it ends by itself (a failure goes through) or is asked to."""
        role = await self._build(process)
        self.running = role
        async with Tasks(lambda what, why: None) as tasks:
            work = tasks.start(role.run(), name=f"{process.title} runs")
            asked = tasks.start(self._stop.wait(), name=f"{process.title} is asked to stop")
            await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
            self.running = None
            await role.aclose()
            if work.done():
                work.result()
        return 0


class Keeper:
    """Keeps one role running on one machine, as a service manager does."""

    def __init__(
        self,
        machine: SimMachine,
        spec: SpawnSpec,
        program: Callable[[], Program],
        rest_s: Callable[[], float],
    ) -> None:
        self._machine = machine
        self._spec = spec
        self._program = program
        self._rest_s = rest_s
        self.process: SimProcess | None = None
        self.kept = True

    async def keep(self) -> None:
        """Start it, and again a while after it ended, until let go."""
        while self.kept:
            if self._machine.on:
                self.process = self._machine.start(self._spec, self._program())
                await asyncio.shield(self.process.exited)
                self.process = None
            await asyncio.sleep(self._rest_s())

    @property
    def title(self) -> str:
        """Which role, on which machine."""
        return f"{self._spec.argv[0]} of {self._machine.name}"

    @property
    def role(self) -> LoopOwner | None:
        """What runs in its process now, once built."""
        process = self.process
        program = process.program if process is not None and process.alive else None
        return program.running if isinstance(program, Role) else None

    def signal(self, signum: int) -> bool:
        """Signal its process; whether there was one."""
        process = self.process
        if process is None or not process.alive:
            return False
        self._machine.kill(process.identity, signum)
        return True

    async def stop(self, bound_s: float) -> bool:
        """Ask it to end and start it no more; whether it ended within the bound."""
        self.kept = False
        process = self.process
        if process is None or not self.signal(signal.SIGTERM):
            return True
        try:
            async with asyncio.timeout(bound_s):
                await asyncio.shield(process.exited)
        except TimeoutError:
            return False
        return True
