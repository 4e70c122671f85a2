"""Decides what `server.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; sizes are bytes and durations seconds once read; beyond loopback the
admin and agent listeners need TLS or a written `insecure: true`.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmgw.core.catalog import Catalog, EngineTraits
from llmgw.core.inventory import PresenceLimits
from llmgw.core.placement import PortRange
from llmgw.entry.config_common import Address
from llmgw.ports import HttpTimeouts


class ClientsConfig(msgspec.Struct, frozen=True):
    """The client listener."""

    listen: Address
    max_body_bytes: int


class ListenerConfig(msgspec.Struct, frozen=True):
    """The admin or the agent listener. `insecure`: beyond loopback without TLS, as written."""

    listen: Address
    insecure: bool


class ControlConfig(msgspec.Struct, frozen=True):
    """How the control plane decides."""

    settling_s: float
    tick_s: float
    foreign_memory_bytes: int
    presence: PresenceLimits
    drain_grace_s: float
    ports: PortRange


class RouterSettings(msgspec.Struct, frozen=True):
    """What the server's own router processes are started with."""

    processes: int
    timeouts: HttpTimeouts


class UsageConfig(msgspec.Struct, frozen=True):
    """How usage rows reach the store."""

    flush_s: float


class ServerConfig(msgspec.Struct, frozen=True):
    """`server.yaml`, resolved; `catalog` is validated with the engines given to `load_server_config`."""

    path: Path  # the file itself
    clients: ClientsConfig
    admin: ListenerConfig
    agents: ListenerConfig
    store: str  # a URL, such as sqlite:////var/lib/llmgw/llmgw.db
    state_dir: Path
    control: ControlConfig
    router: RouterSettings
    usage: UsageConfig
    catalog: Catalog


def load_server_config(path: Path, engines: Mapping[str, EngineTraits]) -> ServerConfig:
    """Read and check the file. Raises `ConfigError`, also when it cannot be read."""
    raise NotImplementedError
