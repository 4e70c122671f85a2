"""Says which TCP ports are free or in use on this machine.

Law: nothing is connected to and nothing stays bound; only this network namespace is spoken of.
"""

import errno
import socket
from pathlib import Path

_LISTEN = "0A"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def port_free(address: str, port: int) -> bool:
    """Whether a server could listen at a literal address now.

    Raises `OSError` when it could not for another reason, such as an address that is not this node's.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As engines do: connections of a server that has ended do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def listening(ports: range) -> tuple[int, ...] | None:
    """Ports of a range something listens on, sorted; `None` when the kernel's table cannot be read."""
    found: set[int] = set()
    read = False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        read = True
        for line in lines:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == _LISTEN and port in ports:
                found.add(port)
    return tuple(sorted(found)) if read else None
