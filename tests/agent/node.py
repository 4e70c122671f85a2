"""A real agent for tests: real processes, files, sockets and clock, in a folder of the test's own.

Law: everything it starts carries the marker of its state directory, and is killed when the test ends.
"""

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from llmgw.agent.records import agent_marker
from llmgw.agent.settings import AgentPorts, AgentSettings, AgentTimings
from llmgw.aio.tasks import Tasks
from llmgw.core.catalog import ArgValue
from llmgw.core.claims import Claim
from llmgw.core.inventory import EngineInstall, NodeReport
from llmgw.entry.agent import build_agent
from llmgw.host.checks import HostChecks
from llmgw.host.clock import SystemClock
from llmgw.host.logs import HostLogs
from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from llmgw.host.statefiles import StateFolder
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.streams import StreamDialer
from llmgw.ports import NodeVitals
from llmgw.wire.agent_v1 import ShardKey, ShardSpec, StartShard, StopShard

QUICK = AgentTimings(reconnect_first=0.05, reconnect_cap=0.2, follow=0.05, look=60.0)


class FixedProbe:
    """A node that is what the test says."""

    def __init__(self, report: NodeReport) -> None:
        self.found = report

    async def report(self) -> NodeReport:
        return self.found

    async def vitals(self, ports: range) -> NodeVitals:
        return NodeVitals(memory_available_bytes=1000, ports_in_use=())


def wheel() -> EngineInstall:
    return EngineInstall("llama.cpp", path=sys.executable, module="xllamacpp")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """One machine's agent, which can be ended and begun again over the same state directory."""

    def __init__(self, folder: Path, *servers: str) -> None:
        self.state = folder / "state"
        self.servers = servers
        self.timings = QUICK
        self.stop_engines = False
        self.env: Mapping[str, str] = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.probe = FixedProbe(
            NodeReport(
                id="n1",
                address="127.0.0.1",
                gpus=(),
                engines={"llama.cpp": wheel(), "sim": EngineInstall("sim")},
            )
        )

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        """The agent runs; leaving ends it like SIGTERM does."""
        folder = StateFolder(self.state)
        folder.hold()
        off_loop = OffLoop()
        processes = LinuxProcesses(off_loop)
        upstream = UpstreamPool()
        ports = AgentPorts(
            clock=SystemClock(),
            dialer=StreamDialer(),
            upstream=upstream,
            processes=processes,
            files=folder,
            probe=self.probe,
            checks=HostChecks(off_loop),
            logs=HostLogs(self.state / "logs", off_loop),
            draw=random.Random(1),
        )
        settings = AgentSettings(
            id="n1",
            servers=self.servers,
            state_dir=str(self.state),
            python=sys.executable,
            version="test",
            engine_env=self.env,
            stop_engines=self.stop_engines,
            timings=self.timings,
        )
        agent = build_agent(settings, ports)
        async with Tasks() as tasks:
            running = tasks.start(agent.run(), name="agent")
            try:
                yield
            finally:
                await agent.aclose()
                await running
                processes.let_go()
                await upstream.aclose()
                folder.release()

    async def kill_all(self) -> None:
        """Nothing this node started survives the test."""
        processes = LinuxProcesses(OffLoop())
        for identity in await processes.marked(agent_marker("n1", str(self.state))):
            processes.kill(identity, signal.SIGKILL)
            handle = processes.adopt(identity)
            if handle is not None:
                async with asyncio.timeout(5):
                    await handle.wait()


def spec(
    port: int,
    *,
    source: str | None = None,
    engine: str = "llama.cpp",
    generation: int = 1,
    args: Mapping[str, ArgValue] | None = None,
    **changes: object,
) -> ShardSpec:
    made = ShardSpec(
        key=ShardKey("tiny-1a2b3c4d", 0, generation),
        model="tiny",
        profile="cpu",
        fingerprint="f1",
        engine=engine,
        source=source,
        shard_count=1,
        address="127.0.0.1",
        port=port,
        claim=Claim(memory_bytes=10**9, ports=(port,)),
        engine_key="k-secret",
        args=args or {},
    )
    return msgspec.structs.replace(made, **changes)


def start(wanted: ShardSpec, term: int = 1) -> StartShard:
    return StartShard(term, wanted)


def stop(wanted: ShardSpec, term: int = 1, grace_s: float = 5.0) -> StopShard:
    return StopShard(term, wanted.key, grace_s)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
