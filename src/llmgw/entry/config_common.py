"""Decides what the config files share: how one is read, how addresses are written, how errors read.

Laws: every problem in a file is reported, one line each, with file, line, path, value and what is
accepted (C1); nothing is started from a file with a problem; paths are relative to the file they stand in.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from llmgw.core import defaults
from llmgw.core.shape import Duration, Problem, Shape, Wrong, accepts, shown
from llmgw.core.units import write_duration
from llmgw.entry.yaml_strict import Document, YamlError, read_yaml
from llmgw.net.addresses import BadAddress, TcpAddress, UnixAddress, parse_address, tcp_address

T = TypeVar("T")

_HOST = re.compile(r"(?!\d+(\.\d+)*$)[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")  # a name, not a mistyped number


class ConfigError(Exception):
    """A config file that cannot be used; `lines` has one line per problem, `str()` all of them."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


# ---------------------------------------------------------------- values


def _is_host(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return _HOST.fullmatch(host) is not None


def is_listen(text: str) -> bool:
    """Whether it is `host:port`."""
    try:
        return _is_host(tcp_address(text).host)
    except BadAddress:
        return False


def server_address(text: str) -> str | None:
    """A `server:` as dialled, `host:port` (a port left out is added) or `unix:/path`; `None` if neither."""
    bare = text.removeprefix("[").removesuffix("]")
    if _is_host(bare):
        return str(TcpAddress(bare, defaults.AGENT_PORT))
    try:
        address = parse_address(text)
    except BadAddress:
        return None
    return str(address) if isinstance(address, UnixAddress) or _is_host(address.host) else None


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `host:port` or `unix:/path`. A name other than localhost is not."""
    parsed = parse_address(address)
    if not isinstance(parsed, TcpAddress) or parsed.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(parsed.host).is_loopback
    except ValueError:
        return False


Listen = Annotated[str, accepts("host:port, such as 127.0.0.1:8081 or [::1]:8081", is_listen)]
Server = Annotated[
    str,
    accepts(
        f"host:port (port {defaults.AGENT_PORT} when left out)", lambda text: server_address(text) is not None
    ),
]
Text = Annotated[str, accepts("text that is not empty", lambda text: bool(text.strip()))]


class ClientsWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`clients:` in server.yaml and router.yaml."""

    listen: Listen = defaults.CLIENT_LISTEN
    max_body_mb: Annotated[int, msgspec.Meta(ge=1, le=4096)] = defaults.MAX_BODY_MB


CLIENTS_LATER = ("clients.tls", "clients.trusted_proxies", "clients.timeouts")


class ClientsConfig(msgspec.Struct, frozen=True):
    """The client listener: `host:port`, and the longest request body in MiB."""

    listen: str
    max_body_mb: int


class TimeoutsWritten(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`router.timeouts:`."""

    connect: Duration = write_duration(defaults.CONNECT_TIMEOUT_S)
    first_byte: Duration = write_duration(defaults.FIRST_BYTE_TIMEOUT_S)
    idle: Duration = write_duration(defaults.IDLE_BYTE_TIMEOUT_S)
    total: Duration = write_duration(defaults.TOTAL_TIMEOUT_S)


# ---------------------------------------------------------------- reading


class Settings(msgspec.Struct, frozen=True):
    """A file being read: where it is and what it says, for naming lines and resolving paths."""

    path: Path
    document: Document

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """The error to raise for these problems, in the order of the file."""
        placed = [(self.document.line_of(problem.path), problem) for problem in problems]
        placed.sort(key=lambda pair: pair[0])
        return ConfigError(
            [f"{self.path}{f':{line}' if line else ''}: {problem.line()}" for line, problem in placed]
        )

    def resolved(self, written: str) -> Path:
        """A path as written: `~` is the home folder, a relative one starts at the file's folder."""
        return self.located(written).resolve()

    def located(self, written: str) -> Path:
        """The same with links kept: a virtual environment's interpreter is a link, and means that."""
        return Path(os.path.normpath(self.path.absolute().parent / Path(written).expanduser()))


def read_settings(path: Path, shape: Shape[T]) -> tuple[Settings, T]:
    """The file as `shape` reads it. Raises `ConfigError`, also when it cannot be read."""
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except YamlError as error:
        place = f"{path}:{error.line}" if error.line else str(path)
        raise ConfigError([f"{place}: {error.text}"]) from error
    settings = Settings(path, document)
    written = shape.read({} if document.data is None else document.data)
    if isinstance(written, Wrong):
        raise settings.error(written.problems)
    return settings, written


def servers_of(server: str | None, servers: Sequence[str]) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """Addresses with where each is written: `server` first, then `servers`, without repeats (A2).

    A problem when none is written.
    """
    written = [("server", server)] if server is not None else []
    written += [(f"servers[{index}]", text) for index, text in enumerate(servers)]
    found: dict[str, str] = {}
    for path, text in written:
        address = server_address(text)
        assert address is not None, "the shape checked it"
        found.setdefault(address, path)
    if found:
        return found, ()
    text = "is required: the address of the control plane's agent listener, host:port"
    return {}, (Problem("server", "", text),)


def insecure_problem(path: str, address: str, insecure: bool, remedy: str) -> tuple[Problem, ...]:
    """A problem when plain text would leave this machine without being asked for."""
    if insecure or is_loopback(address):
        return ()
    text = f"beyond loopback this needs TLS, which is not available in this version; {remedy}"
    return (Problem(path, shown(path, address), text),)
