"""Decides what `router.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; what a router serves comes over its watch stream, never from this file.
"""

from pathlib import Path

import msgspec

from llmgw.entry.config_server import ClientsConfig


class RouterConfig(msgspec.Struct, frozen=True):
    """`router.yaml`, resolved."""

    path: Path
    servers: tuple[str, ...]  # host:port or unix:/path, `server` first, then `servers`
    clients: ClientsConfig


def load_router_config(path: Path) -> RouterConfig:
    """Read and check the file. Raises `ConfigError`, also when it cannot be read."""
    raise NotImplementedError
