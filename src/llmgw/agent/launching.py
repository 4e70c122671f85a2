"""Decides whether a shard can be started on this node, and with which command and environment (A16, A17).

Laws: what is wrong is said in seconds, before anything runs; an engine sees only the cards it was given;
a profile's environment wins over the node's, never over placement's; secrets are resolved here and are
only ever in the environment of the process that needs them.
"""

from collections.abc import Mapping
from typing import assert_never

import msgspec

from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.core.catalog import SecretRef
from llmgw.core.inventory import EngineInstall, NodeReport
from llmgw.core.reason import Explained, Failure
from llmgw.core.weights import BadSource, FileKind, LocalSource, Weights, judge, parse_source
from llmgw.engines import ADAPTERS
from llmgw.engines.adapter import Command, EngineAdapter, Launch
from llmgw.wire.agent_v1 import ShardSpec


class Ready(msgspec.Struct, frozen=True):
    """A shard that may be started: its one process."""

    command: Command


async def prepare(
    spec: ShardSpec, node: NodeReport, settings: AgentSettings, ports: AgentPorts
) -> Ready | Explained:
    """The command of a shard, or why it cannot be started here."""
    adapter = ADAPTERS.get(spec.engine)
    if adapter is None:
        known = ", ".join(sorted(ADAPTERS))
        text = f"this agent does not know the engine {spec.engine}; it knows {known}"
        return Explained(Failure.BAD_PROFILE, text)
    install = choose_install(spec, adapter, node)
    if isinstance(install, Explained):
        return install
    wrong = (
        _check_gpus(spec, node)
        or await _check_program(spec, install, ports)
        or await _check_port(spec, adapter, ports)
    )
    if wrong is not None:
        return wrong
    path = await _find_weights(spec, adapter, ports)
    if isinstance(path, Explained):
        return path
    env = await _resolve(spec.env, settings, ports)
    if isinstance(env, Explained):
        return env
    return _command(adapter, _launch(spec, install, path, env, settings.python))


def _command(adapter: EngineAdapter, launch: Launch) -> Ready | Explained:
    refused = adapter.refuse(launch)
    if refused is not None:
        return refused
    commands = adapter.commands(launch)
    if len(commands) != 1:
        text = f"a shard of {len(commands)} processes is not available in this version"
        return Explained(Failure.BAD_PROFILE, text)
    return Ready(commands[0])


def choose_install(spec: ShardSpec, adapter: EngineAdapter, node: NodeReport) -> EngineInstall | Explained:
    """How the engine is run here. Engines nobody could look for are assumed to be where they usually are."""
    engines = node.engines
    if engines is None:
        return EngineInstall(spec.engine)
    if spec.install is not None:
        named = engines.get(spec.install)
        if named is None or named.kind != spec.engine:
            known = ", ".join(sorted(n for n, e in engines.items() if e.kind == spec.engine)) or "none"
            text = f"there is no install {spec.install} of {spec.engine} here; there is {known}"
            return Explained(Failure.ENGINE_NOT_INSTALLED, text)
        return named
    usual = engines.get(spec.engine)
    if usual is not None and usual.kind == spec.engine:
        return usual
    other = next((engine for engine in engines.values() if engine.kind == spec.engine), None)
    if other is not None:
        return other
    places = " or ".join((*adapter.locate.binaries, *adapter.locate.modules))
    text = f"{spec.engine} is not installed on this node: looked for {places}"
    return Explained(Failure.ENGINE_NOT_INSTALLED, text)


async def _check_program(spec: ShardSpec, install: EngineInstall, ports: AgentPorts) -> Explained | None:
    """It was there when the node was looked at, up to a minute ago."""
    if install.path is None:
        return None
    found = await ports.checks.file(install.path)
    match found.kind:
        case FileKind.MISSING:
            text = f"{spec.engine} is not installed on this node any more: there is nothing at {install.path}"
            return Explained(Failure.ENGINE_NOT_INSTALLED, text)
        case FileKind.SILENT:
            return Explained(Failure.SPAWN_FAILED, f"cannot start {install.path}: {found.detail}")
        case FileKind.FILE | FileKind.FOLDER | FileKind.UNREADABLE:  # starting it says what is wrong
            return None
        case _:
            assert_never(found.kind)


def _check_gpus(spec: ShardSpec, node: NodeReport) -> Explained | None:
    if node.gpus is None:
        return None  # unknown is not missing
    missing = sorted(set(spec.claim.gpus) - {gpu.index for gpu in node.gpus})
    if not missing:
        return None
    wanted = ", ".join(str(index) for index in missing)
    there = ", ".join(str(gpu.index) for gpu in node.gpus) or "none"
    return Explained(Failure.GPU_MISSING, f"needs GPU {wanted}, this node has {there}")


async def _check_port(spec: ShardSpec, adapter: EngineAdapter, ports: AgentPorts) -> Explained | None:
    if not adapter.serves_http(spec.key.rank):
        return None
    where = f"port {spec.port} of {spec.address}"
    try:
        free = await ports.checks.port_free(spec.address, spec.port)
    except OSError as error:
        text = f"cannot listen on {where}: {error.strerror or error}; is `address` in agent.yaml this node's?"
        return Explained(Failure.PORT_BUSY, text)
    return None if free else Explained(Failure.PORT_BUSY, f"{where} is taken by another process")


async def _find_weights(spec: ShardSpec, adapter: EngineAdapter, ports: AgentPorts) -> str | Explained | None:
    if adapter.weights is Weights.NONE:
        return None
    if spec.source is None:
        return Explained(Failure.WEIGHTS_MISSING, f"{spec.model} has no source, which {spec.engine} needs")
    match parse_source(spec.source):
        case BadSource(text):
            return Explained(Failure.WEIGHTS_MISSING, text)
        case LocalSource(path):
            return judge(adapter.weights, path, await ports.checks.file(path)) or path


async def _resolve(
    env: Mapping[str, str | SecretRef], settings: AgentSettings, ports: AgentPorts
) -> dict[str, str] | Explained:
    found: dict[str, str] = {}
    for name, value in env.items():
        if isinstance(value, str):
            found[name] = value
        elif value.from_file is not None:
            try:
                found[name] = await ports.checks.secret(value.from_file)
            except OSError as error:
                text = f"env {name}: cannot read {value.from_file}: {error.strerror or error}"
                return Explained(Failure.BAD_PROFILE, text)
        elif value.from_env is not None:
            held = settings.engine_env.get(value.from_env)
            if held is None:
                text = f"env {name}: the agent's environment has no {value.from_env}"
                return Explained(Failure.BAD_PROFILE, text)
            found[name] = held
    return found


def _launch(
    spec: ShardSpec, install: EngineInstall, path: str | None, env: Mapping[str, str], python: str
) -> Launch:
    return Launch(
        model=spec.model,
        install=install,
        python=python,
        address=spec.address,
        port=spec.port,
        model_path=path,
        rank=spec.key.rank,
        shard_count=spec.shard_count,
        engine_key=spec.engine_key,
        context_length=spec.context_length,
        gpus=spec.claim.gpus,
        tensor_parallel=spec.tensor_parallel,
        pipeline_parallel=spec.pipeline_parallel,
        args=spec.args,
        env=env,
    )


def environment(
    command: Command, spec: ShardSpec, marker: Mapping[str, str], settings: AgentSettings
) -> dict[str, str]:
    """The whole environment of a shard's process."""
    cards = ",".join(str(index) for index in spec.claim.gpus)
    placed = {
        # Empty hides every card: an engine on the CPU must not fill one it did not claim.
        "CUDA_VISIBLE_DEVICES": cards,
        "HIP_VISIBLE_DEVICES": cards,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # so that indices mean what NVML means by them
    }
    return {**settings.engine_env, **command.env, **placed, **marker}
