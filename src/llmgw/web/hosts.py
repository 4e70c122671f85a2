"""Decides by which names the admin listener may be asked, against DNS rebinding (N0).

Laws: a page of somebody else reaches us only through a name of its own, so a name we do not know is
refused; an address cannot be rebound, so where the listener has no one address every address is fine.
"""

import ipaddress


class Hosts:
    """The names and addresses accepted in `Host`; ports are not compared, as tunnels change them."""

    def __init__(self, listen: str, further: tuple[str, ...]) -> None:
        own = host_of(listen) or ""
        self._any_address = own in {"0.0.0.0", "::", ""}
        self._names = frozenset(name.lower() for name in (*further, own, "localhost"))

    def accepts(self, header: str | None) -> bool:
        """Whether a request with this `Host` header may go on."""
        name = host_of(header or "")
        if name is None:
            return False
        if name in self._names or name.endswith(".localhost"):
            return True
        address = _address(name)
        return address is not None and (self._any_address or address.is_loopback)


def host_of(text: str) -> str | None:
    """The host in `host`, `host:port` or `[address]:port`, lower case; None when it is none of these."""
    if text.startswith("["):
        inside, closed, rest = text[1:].partition("]")
        good = closed and (not rest or (rest.startswith(":") and rest[1:].isascii() and rest[1:].isdigit()))
        return inside.lower() if good and _address(inside) is not None else None
    host, colon, port = text.partition(":")
    if not host or (colon and not (port.isascii() and port.isdigit())):
        return None
    return host.lower().removesuffix(".")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
