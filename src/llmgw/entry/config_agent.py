"""Decides what `agent.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; `None` means "find it out" (A1), never "none"; beyond loopback the
stream needs TLS or a written `insecure: true`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from llmgw.core import defaults
from llmgw.core.shape import Problem, Shape, shown
from llmgw.entry.config_common import Server, Text, insecure_problem, read_settings, servers_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class AgentWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    server: Server | None = None
    servers: tuple[Server, ...] = ()
    id: Text | None = None
    address: Text | None = None
    labels: dict[str, str] = {}
    insecure: bool = False
    gpus: Literal["auto", "off"] = "auto"
    gpu_class: Text | None = None
    model_dirs: tuple[Text, ...] = ()
    weights_dir: Text = defaults.WEIGHTS_DIR
    state_dir: Text = defaults.AGENT_STATE_DIR
    engines: dict[str, Text] = {}


AGENT_LATER = frozenset({"tls", "fabrics", "user"})
"""Keys of agent.yaml whose feature this version does not have yet."""


class AgentConfig(msgspec.Struct, frozen=True):
    """`agent.yaml`, resolved. `None`: discovered by the agent."""

    path: Path
    servers: tuple[str, ...]  # host:port, `server` first, then `servers`, without repeats (A2)
    id: str | None
    address: str | None
    labels: Mapping[str, str]
    insecure: bool
    gpus: bool  # False: cards are not looked for
    gpu_class: str | None  # wins over the class derived from the product (I9)
    model_dirs: tuple[Path, ...]
    weights_dir: Path
    state_dir: Path
    engines: Mapping[str, str]  # install name -> path, besides those found


def load_agent_config(path: Path) -> AgentConfig:
    """Read and check the file. Raises `ConfigError`, also when it cannot be read."""
    settings, written = read_settings(path, Shape(AgentWritten, AGENT_LATER))
    servers, problems = servers_of(written.server, written.servers)
    problems += tuple(
        problem
        for server, place in servers.items()
        for problem in insecure_problem(
            place,
            server,
            written.insecure,
            "dial 127.0.0.1, or write insecure: true to go without",
        )
    )
    if written.id is not None and _NAME.fullmatch(written.id) is None:
        text = "a node's id is letters, digits and . _ -, and begins with a letter or digit"
        problems += (Problem("id", shown("id", written.id), text),)
    if problems:
        raise settings.error(problems)
    return AgentConfig(
        path=path,
        servers=tuple(servers),
        id=written.id,
        address=written.address,
        labels=written.labels,
        insecure=written.insecure,
        gpus=written.gpus == "auto",
        gpu_class=written.gpu_class,
        model_dirs=tuple(settings.resolved(folder) for folder in written.model_dirs),
        weights_dir=settings.resolved(written.weights_dir),
        state_dir=settings.resolved(written.state_dir),
        engines={name: str(settings.located(place)) for name, place in written.engines.items()},
    )
