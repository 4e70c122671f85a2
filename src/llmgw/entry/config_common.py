"""Decides what the config files share: how one is read, how addresses are written, how errors read.

Laws: every problem in a file is reported, one line each, with file, line, path, value and what is
accepted (C1); nothing is started from a file with a problem.
"""

import ipaddress

import msgspec


class ConfigError(Exception):
    """A config file that cannot be used; `lines` has one line per problem, `str()` all of them."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Address(msgspec.Struct, frozen=True):
    """A TCP address as written in a file; an IPv6 host is kept without brackets."""

    host: str
    port: int

    def text(self) -> str:
        """`host:port`, with brackets around an IPv6 host: what ports take."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
