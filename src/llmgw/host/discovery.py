"""Finds out what this node is; implements `ports.NodeProbe` (A1, A3, A4, A6).

Laws: each part is looked at away from the loop and with a bound; one that hangs or fails yields its last
value, with its age, and cuts no other part short; a part that hangs is not asked again until it answered;
what is written wins over what is found; what could not be learned is `None`.
"""

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import psutil

from llmgw.core.inventory import EngineInstall, Filesystem, Gpu, NodeReport, WeightFile
from llmgw.host import disks, netports
from llmgw.host.installed import EngineSearch, find_engines
from llmgw.host.nvidia import CardsUnknown, NvidiaCards
from llmgw.host.offloop import OffLoop
from llmgw.ports import NodeVitals

T = TypeVar("T")

QUICK_S = 3.0  # memory, ports, cards, one filesystem
SLOW_S = 15.0  # engines and weight files
ANYWHERE = "192.0.2.1:9"  # of no network: reached by the default route, if there is one
_CGROUP = Path("/sys/fs/cgroup")

_LOG = logging.getLogger(__name__)


class HostDescription(msgspec.Struct, frozen=True):
    """What is written about this node, and where to look for the rest."""

    id: str
    servers: tuple[str, ...]
    version: str
    engines: EngineSearch
    marker: Mapping[str, str]  # of our own processes, which are not foreign on a card
    state_dir: Path
    weights_dir: Path
    model_dirs: tuple[Path, ...] = ()
    address: str | None = None
    labels: Mapping[str, str] = {}
    gpus: bool = True
    gpu_class: str | None = None


class Remembered(Generic[T]):
    """One look at the machine, with its last answer."""

    def __init__(self, name: str, off_loop: OffLoop, look: Callable[[], T], within: float) -> None:
        self._name = name
        self._off_loop = off_loop
        self._look = look
        self._within = within
        self._value: T | None = None
        self._at: float | None = None
        self._begun = 0
        self._ended = 0
        self._complained = False

    async def read(self) -> tuple[T | None, float]:
        """The value and its age in seconds; 0 when it is of now, and for one never learned."""
        if self._begun == self._ended:
            try:
                self._value = await self._off_loop.run(self._looked, within=self._within)
            except TimeoutError:
                self._complain(f"no answer within {self._within:g} s")
            except (OSError, CardsUnknown, subprocess.SubprocessError, ValueError) as error:
                self._complain(str(error))
            else:
                self._at = self._now()
                self._complained = False
                return self._value, 0.0
        if self._at is None:
            return None, 0.0
        return self._value, self._now() - self._at

    def _looked(self) -> T:
        self._begun += 1  # counted by the one thread that looks
        try:
            return self._look()
        finally:
            self._ended += 1

    def _complain(self, why: str) -> None:
        if not self._complained:
            _LOG.warning("looking at %s of this node: %s; the last known value stands", self._name, why)
        self._complained = True

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class HostProbe:
    """The `NodeProbe` of production."""

    def __init__(self, described: HostDescription, off_loop: OffLoop, quick_s: float = QUICK_S) -> None:
        self._described = described
        self._quick_s = quick_s
        self._off_loop = off_loop
        cards = NvidiaCards(described.marker, described.gpu_class)
        folders = (described.weights_dir, *described.model_dirs)
        self._address = self._part("the address", lambda: _address(described.servers))
        self._memory = self._part("memory", _memory)
        self._cards: Remembered[tuple[Gpu, ...]] = self._part("GPUs", cards.read)
        self._engines: Remembered[dict[str, EngineInstall]] = self._part(
            "engines", lambda: find_engines(described.engines), SLOW_S
        )
        self._weights: Remembered[tuple[WeightFile, ...]] = self._part(
            "weights", lambda: disks.weight_files(folders), SLOW_S
        )
        self._disks: dict[str, Remembered[Filesystem]] = {}

    def _part(self, name: str, look: Callable[[], T], within: float | None = None) -> Remembered[T]:
        return Remembered(name, self._off_loop, look, within or self._quick_s)

    async def report(self) -> NodeReport:
        """The whole node."""
        described = self._described
        address, memory, cards, engines, weights, filesystems = await asyncio.gather(
            self._address.read(),
            self._memory.read(),
            self._read_cards(),
            self._engines.read(),
            self._weights.read(),
            self._read_disks(),
        )
        total, available = memory[0] or (None, None)
        return NodeReport(
            id=described.id,
            address=described.address or address[0] or "127.0.0.1",
            labels=described.labels,
            agent_version=described.version,
            cpus=len(os.sched_getaffinity(0)),
            memory_total_bytes=total,
            memory_available_bytes=available,
            gpus=cards[0],
            fabrics=None,
            filesystems=filesystems[0],
            weights=weights[0],
            engines=engines[0],
        )

    async def vitals(self, ports: range) -> NodeVitals:
        """What a heartbeat carries."""
        listening = self._part("ports", lambda: netports.listening(ports))
        memory, cards, filesystems, used = await asyncio.gather(
            self._memory.read(), self._read_cards(), self._read_disks(), listening.read()
        )
        total, available = memory[0] or (None, None)
        ages = {"memory": memory[1], "gpus": cards[1], "filesystems": filesystems[1]}
        return NodeVitals(
            memory_total_bytes=total,
            memory_available_bytes=available,
            gpus=cards[0],
            filesystems=filesystems[0],
            ports_in_use=used[0],
            stale_s={name: round(age, 1) for name, age in ages.items() if age > 0},
        )

    async def _read_cards(self) -> tuple[tuple[Gpu, ...] | None, float]:
        return await self._cards.read() if self._described.gpus else ((), 0.0)

    async def _read_disks(self) -> tuple[tuple[Filesystem, ...] | None, float]:
        described = self._described
        mounts = disks.mounts_of((described.weights_dir, *described.model_dirs, described.state_dir))
        for mount in mounts:
            if mount.path not in self._disks:
                self._disks[mount.path] = self._part(f"the disk at {mount.path}", _on(mount))
        looks = await asyncio.gather(*(self._disks[mount.path].read() for mount in mounts))
        found = tuple(
            value if value is not None else Filesystem(mount.path)
            for mount, (value, _) in zip(mounts, looks, strict=True)
        )
        return found, max((age for _, age in looks), default=0.0)


def _on(mount: disks.Mount) -> Callable[[], Filesystem]:
    return lambda: disks.filesystem(mount)


def _address(servers: tuple[str, ...]) -> str | None:
    """This machine's address on the way to the control plane; a UDP connect sends nothing (A1)."""
    for server in (*servers, ANYWHERE):
        host, _, port = server.rpartition(":")
        try:
            known = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        except (OSError, ValueError):
            continue  # a name that is not known now, or a Unix socket
        for family, kind, protocol, _, target in known:
            with socket.socket(family, kind, protocol) as probe:
                try:
                    probe.connect(target)
                except OSError:
                    continue
                return str(probe.getsockname()[0])
    return None


def _memory() -> tuple[int, int]:
    """Total and available bytes: the machine's, or those of the container this runs in."""
    machine = psutil.virtual_memory()
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is None or used is None or limit >= machine.total:
        return machine.total, machine.available
    return limit, max(0, min(machine.available, limit - used))


def _cgroup(name: str) -> int | None:
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
