"""Reads listen and dial addresses.

Law: `host:port`, `[v6]:port` and `unix:/path` are the only forms; whatever is printed can be read back.
"""

import msgspec


class BadAddress(ValueError):
    """An address that cannot be read; the text says what was given and what is accepted."""


class TcpAddress(msgspec.Struct, frozen=True):
    """A host (name or literal) and a port; port 0 lets the system choose when listening."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixAddress(msgspec.Struct, frozen=True):
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read an address. Raises `BadAddress`."""
    if text.startswith("unix:"):
        path = text[len("unix:") :]
        if not path.startswith("/"):
            raise BadAddress(
                f"{text!r}: the path of a Unix socket must be absolute, like unix:/run/llmgw.sock"
            )
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host) != bracketed or not _is_port(port):
        raise BadAddress(f"{text!r} is not an address; write host:port, [v6]:port or unix:/path")
    return TcpAddress(host, int(port))


def tcp_address(text: str) -> TcpAddress:
    """Read an address that must be TCP. Raises `BadAddress`."""
    address = parse_address(text)
    if isinstance(address, UnixAddress):
        raise BadAddress(f"{text!r}: a Unix socket cannot serve here; write host:port")
    return address


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535
