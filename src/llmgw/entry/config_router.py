"""Decides what `router.yaml` means: settings with defaults filled in, or every problem in it.

Laws: unknown keys are refused; what a router serves comes over its watch stream, never from this file.
"""

from pathlib import Path

import msgspec

from llmgw.core.shape import Shape
from llmgw.entry.config_common import (
    CLIENTS_LATER,
    ClientsConfig,
    ClientsWritten,
    Server,
    insecure_problem,
    read_settings,
    servers_of,
)


class RouterWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    server: Server | None = None
    servers: tuple[Server, ...] = ()
    clients: ClientsWritten = ClientsWritten()


ROUTER_LATER = frozenset({*CLIENTS_LATER, "tls", "limits", "metrics"})
"""Keys of router.yaml whose feature this version does not have yet."""


class RouterConfig(msgspec.Struct, frozen=True):
    """`router.yaml`, resolved."""

    path: Path
    servers: tuple[str, ...]  # host:port or unix:/path, `server` first, then `servers`
    clients: ClientsConfig


def load_router_config(path: Path) -> RouterConfig:
    """Read and check the file. Raises `ConfigError`, also when it cannot be read."""
    settings, written = read_settings(path, Shape(RouterWritten, ROUTER_LATER))
    servers, problems = servers_of(written.server, written.servers)
    problems += tuple(
        problem
        for server, place in servers.items()
        for problem in insecure_problem(place, server, False, "dial 127.0.0.1")
    )
    if problems:
        raise settings.error(problems)
    return RouterConfig(
        path, tuple(servers), ClientsConfig(written.clients.listen, written.clients.max_body_mb)
    )
