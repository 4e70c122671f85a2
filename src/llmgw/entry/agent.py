"""Runs `llmgw agent`: joins a node's settings, its adapters and the agent; or describes the node and exits.

Laws: one agent a state directory; SIGTERM leaves engines running for the next agent, unless told
`--stop-engines`; describing changes nothing on the machine.
"""

import argparse
import asyncio
import os
import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmgw import __version__
from llmgw.agent.agent import Agent
from llmgw.agent.connection import CLUSTER_FILE
from llmgw.agent.records import agent_marker
from llmgw.agent.settings import AgentPorts, AgentSettings, AgentTimings
from llmgw.aio.tasks import Tasks
from llmgw.core import defaults
from llmgw.entry.config_agent import AgentConfig, load_agent_config
from llmgw.entry.config_common import ConfigError
from llmgw.entry.describe import describe_lines
from llmgw.entry.process import CannotRun, Stop, configure_logging, run_role
from llmgw.host.checks import HostChecks
from llmgw.host.clock import SystemClock
from llmgw.host.discovery import HostDescription, HostProbe
from llmgw.host.installed import EngineSearch
from llmgw.host.logs import HostLogs
from llmgw.host.offloop import OffLoop
from llmgw.host.processes import LinuxProcesses
from llmgw.host.statefiles import StateFolder, StateFolderBusy
from llmgw.net.http1.pool import UpstreamPool
from llmgw.net.streams import StreamDialer

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
LOOPBACK_RETRY_S = 0.1  # both were just started together, as a rule
OUR_VARIABLES = "LLMGW_"  # not for engines: tokens, lifelines, markers of whoever started the agent


class AgentOptions(msgspec.Struct, frozen=True):
    """What the command line says."""

    config: AgentConfig | None
    describe: bool
    as_json: bool
    stop_engines: bool
    forget_cluster: bool


def build_agent(settings: AgentSettings, ports: AgentPorts) -> Agent:
    """The agent; `run` it until it is closed. The simulator passes ports of its own.

    Raises `OSError` when the state directory cannot be written.
    """
    return Agent(settings, ports)


def main(argv: list[str]) -> int:
    """`llmgw agent [-c agent.yaml] [--describe [--json]] [--stop-engines]`."""
    given = _parser().parse_args(argv)
    configure_logging("agent", verbose=given.verbose)
    try:
        config = None if given.config is None else load_agent_config(given.config)
    except ConfigError as error:
        for line in error.lines:
            print(f"llmgw: {line}", file=sys.stderr)
        return 1
    options = AgentOptions(config, given.describe, given.json, given.stop_engines, given.forget_cluster)
    environ = dict(os.environ)
    if options.describe:
        return run_role(lambda stop: _describe(options, environ))
    return run_role(lambda stop: serve(options, environ, stop))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="llmgw agent", description="Runs engines on this machine.")
    made.add_argument("-c", "--config", type=Path, help="agent.yaml")
    made.add_argument("--describe", action="store_true", help="print what would be reported, and exit")
    made.add_argument("--json", action="store_true", help="with --describe: as JSON")
    made.add_argument("--stop-engines", action="store_true", help="stop engines when the agent is stopped")
    made.add_argument("--forget-cluster", action="store_true", help="let this node join another cluster")
    made.add_argument("-v", "--verbose", action="store_true", help="log more")
    return made


async def _describe(options: AgentOptions, environ: Mapping[str, str]) -> int:
    report = await HostProbe(description(options.config, environ), OffLoop()).report()
    if options.as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print("\n".join(describe_lines(report)))
    return 0


async def serve(options: AgentOptions, environ: Mapping[str, str], stop: Stop) -> int:
    """Run until asked to stop. Raises `CannotRun`."""
    config = options.config
    if config is None:
        raise CannotRun("an agent needs -c agent.yaml, with at least `server: host:port`")
    folder = _claim(config.state_dir)
    processes = LinuxProcesses(off_loop := OffLoop())
    upstream = UpstreamPool()
    try:
        if options.forget_cluster:
            folder.remove(CLUSTER_FILE)
        described = description(config, environ)
        ports = AgentPorts(
            clock=SystemClock(),
            dialer=StreamDialer(),
            upstream=upstream,
            processes=processes,
            files=folder,
            probe=HostProbe(described, off_loop),
            checks=HostChecks(off_loop),
            logs=HostLogs(config.state_dir / "logs", off_loop),
            draw=random.SystemRandom(),
        )
        settings = AgentSettings(
            id=described.id,
            servers=config.servers,
            state_dir=str(config.state_dir),
            python=sys.executable,
            version=__version__,
            engine_env={k: v for k, v in environ.items() if not k.startswith(OUR_VARIABLES)},
            stop_engines=options.stop_engines,
            timings=timings_for(config.servers),
        )
        await _run(build_agent(settings, ports), stop)
    except OSError as error:
        raise CannotRun(f"cannot use {config.state_dir}: {error.strerror or error}") from error
    finally:
        processes.let_go()
        await upstream.aclose()
        folder.release()
    return 0


async def _run(agent: Agent, stop: Stop) -> None:
    async with Tasks() as tasks:
        running = tasks.start(agent.run(), name="agent")
        asked = tasks.start(stop.requested.wait(), name="stop")
        await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
        closing = tasks.start(agent.aclose(), name="close the agent")
        hurried = tasks.start(stop.hurried.wait(), name="stop at once")
        await asyncio.wait((closing, hurried), return_when=asyncio.FIRST_COMPLETED)
        if running.done() and not running.cancelled():
            running.result()


def timings_for(servers: tuple[str, ...]) -> AgentTimings:
    """The usual timings; a server on this machine is dialled again sooner, which burdens nobody else."""
    hosts = (server.rpartition(":")[0].strip("[]") for server in servers)
    if all(host in LOOPBACK for host in hosts):
        return AgentTimings(reconnect_first=LOOPBACK_RETRY_S)
    return AgentTimings()


def description(config: AgentConfig | None, environ: Mapping[str, str]) -> HostDescription:
    """What is written about this node, with the rest to be found."""
    id = (config.id if config is not None else None) or socket.gethostname()
    state_dir = config.state_dir if config is not None else Path(defaults.AGENT_STATE_DIR)
    engines = EngineSearch(environ.get("PATH", os.defpath), sys.executable)
    described = HostDescription(
        id=id,
        servers=(),
        version=__version__,
        engines=engines,
        marker=agent_marker(id, str(state_dir)),
        state_dir=state_dir,
        weights_dir=Path(defaults.WEIGHTS_DIR),
    )
    if config is None:
        return described
    return msgspec.structs.replace(
        described,
        servers=config.servers,
        engines=msgspec.structs.replace(engines, written=config.engines),
        weights_dir=config.weights_dir,
        model_dirs=config.model_dirs,
        address=config.address,
        labels=config.labels,
        gpus=config.gpus,
        gpu_class=config.gpu_class,
    )


def _claim(state_dir: Path) -> StateFolder:
    try:
        folder = StateFolder(state_dir)
        folder.hold()
    except StateFolderBusy as busy:
        raise CannotRun(f"another agent runs: {busy}; stop it, or give this one another state_dir") from busy
    except OSError as error:
        raise CannotRun(f"state_dir: cannot use {state_dir}: {error.strerror or error}") from error
    return folder
