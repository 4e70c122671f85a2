"""Decides when a server that began to lead may place replicas: not before the fleet had time to report (R10).

Laws: paid once per leadership; adoption, expiry, drains and reaping never wait for it; it ends at once
when every node of the stored roster is back, when the number of nodes stood still for half the window,
or when the window has passed.
"""

from collections.abc import Set

import msgspec


class Settling(msgspec.Struct, frozen=True):
    """Since when this leadership lasts and what it waits for; times are the control plane's clock."""

    began: float
    window_s: float
    awaited: frozenset[str]  # node ids of the stored roster
    present: int = 0  # how many nodes are connected
    steady_since: float = 0.0  # since when that number stands


def begin(now: float, window_s: float, roster: Set[str]) -> Settling:
    """Leadership began at `now`."""
    return Settling(now, window_s, frozenset(roster), 0, now)


def observe(settling: Settling, connected: Set[str], now: float) -> Settling:
    """The connected nodes may have changed."""
    if len(connected) == settling.present:
        return settling
    return msgspec.structs.replace(settling, present=len(connected), steady_since=now)


def remaining(settling: Settling, connected: Set[str], now: float) -> float:
    """Seconds until placing may begin, at the latest; 0 when it may."""
    if settling.awaited <= connected:
        return 0.0
    ends = settling.began + settling.window_s
    steady = settling.steady_since + settling.window_s / 2
    return max(0.0, min(ends, steady) - now)
