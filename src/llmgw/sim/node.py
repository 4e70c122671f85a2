"""A simulated machine as its agent looks at it: hardware, memory in use, ports, files, logs.

Laws: what is reported follows from what runs on the machine, never from what anybody believes; a
machine's clock may be wrong by a fixed amount, durations never are.
"""

import asyncio

import msgspec

from llmgw.core.inventory import EngineInstall, Filesystem, Gpu, NodeReport
from llmgw.core.units import GB
from llmgw.core.weights import FileFacts, FileKind
from llmgw.ports import NodeVitals
from llmgw.sim.machine import SimMachine

EPOCH = 1_800_000_000.0  # wall time at virtual second 0
_SYSTEM_BYTES = GB  # what a machine uses without engines


class SimClock:
    """`ports.Clock`: wall time, off by a machine's error."""

    def __init__(self, off_by_s: float = 0.0) -> None:
        self.off_by_s = off_by_s

    def now(self) -> float:
        """Seconds since the epoch, as this machine has it."""
        return self.at(asyncio.get_running_loop().time())

    def at(self, time: float) -> float:
        """The same at a moment of the loop's time."""
        return EPOCH + time + self.off_by_s


class Hardware(msgspec.Struct, frozen=True):
    """What a machine is made of."""

    memory_bytes: int
    cards: int = 0
    card_bytes: int = 24 * GB
    gpu_class: str = "sim-24g"
    labels: dict[str, str] = {}


def describe(machine: SimMachine, hardware: Hardware) -> NodeReport:
    """The node as found at rest."""
    return NodeReport(
        id=machine.name,
        address=machine.address,
        labels=hardware.labels,
        agent_version="sim",
        cpus=8,
        memory_total_bytes=hardware.memory_bytes,
        memory_available_bytes=hardware.memory_bytes - _SYSTEM_BYTES,
        gpus=_cards(hardware),
        fabrics=(),
        filesystems=(Filesystem("/", 1000 * GB, 900 * GB, shared=False),),
        weights=(),
        engines={"sim": EngineInstall("sim")},
        ports_in_use=(),
    )


def _cards(hardware: Hardware) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            product="Simulated 24 GB",
            gpu_class=hardware.gpu_class,
            memory_total_bytes=hardware.card_bytes,
            memory_used_bytes=0,
            ecc_uncorrected=0,
            foreign=(),
            nvlink_peers=(),
        )
        for index in range(hardware.cards)
    )


class SimProbe:
    """`ports.NodeProbe` on a simulated machine."""

    def __init__(self, machine: SimMachine, hardware: Hardware) -> None:
        self._machine = machine
        self._hardware = hardware

    async def report(self) -> NodeReport:
        """The whole node."""
        return describe(self._machine, self._hardware)

    async def vitals(self, ports: range) -> NodeVitals:
        """What a heartbeat carries."""
        taken = (port for port in self._machine.network.ports_of(self._machine.address) if port in ports)
        return NodeVitals(
            memory_total_bytes=self._hardware.memory_bytes,
            memory_available_bytes=self._hardware.memory_bytes - _SYSTEM_BYTES,
            gpus=_cards(self._hardware),
            filesystems=(Filesystem("/", 1000 * GB, 900 * GB, shared=False),),
            ports_in_use=tuple(taken),
        )


class SimChecks:
    """`ports.NodeChecks` on a simulated machine."""

    def __init__(self, machine: SimMachine) -> None:
        self._machine = machine

    async def port_free(self, address: str, port: int) -> bool:
        """Whether nothing listens there."""
        return not self._machine.network.port_taken(self._machine.address, port)

    async def file(self, path: str) -> FileFacts:
        """A look at the simulated disk."""
        data = self._machine.files.get(path)
        if data is None:
            return FileFacts(FileKind.MISSING)
        return FileFacts(FileKind.FILE, len(data), data[:64])

    async def secret(self, path: str) -> str:
        """The content of a file. Raises `OSError`."""
        data = self._machine.files.get(path)
        if data is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return data.decode().removesuffix("\n")


class SimLogs:
    """`ports.EngineLogs` on a simulated disk."""

    def __init__(self, machine: SimMachine, folder: str) -> None:
        self._files = machine.files
        self._folder = folder

    def path(self, name: str) -> str:
        """Where it goes."""
        return f"{self._folder}/{name}.log"

    async def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The last lines."""
        text = self._files.get(self.path(name), b"").decode()
        return tuple(text.splitlines()[-lines:])

    async def read(self, name: str, offset: int | None) -> tuple[tuple[str, ...], int]:
        """Whole lines after an offset."""
        data = self._files.get(self.path(name), b"")
        start = len(data) if offset is None or offset > len(data) else offset
        end = data.rfind(b"\n", start) + 1
        if end == 0:
            return (), start
        return tuple(data[start:end].decode().splitlines()), end

    async def trim(self) -> None:
        """Simulated disks do not fill."""
