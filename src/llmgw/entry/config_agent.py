"""Decides what `agent.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; `None` means "find it out" (A1), never "none"; beyond loopback the
stream needs TLS or a written `insecure: true`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec


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
    raise NotImplementedError
