"""Decides how long to wait before trying again.

Law: pure; chance is an argument, so that a simulated run repeats.
"""

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """Exponential delays in seconds: `first`, then `factor` times longer each, at most `cap`.

    Each delay is spread by `jitter` (0.25 = up to a quarter shorter or longer), so that many that
    failed together do not come back together; the spread never exceeds `cap`.
    """

    first: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.25

    def delay(self, failures: int, draw: random.Random) -> float:
        """Seconds to wait after this many failures in a row (1 = the first)."""
        # 64 doublings exceed any cap; without the limit a long outage overflows the float.
        steps = min(max(failures, 1) - 1, 64)
        plain = min(self.cap, self.first * self.factor**steps)
        return min(self.cap, plain * (1 + self.jitter * (2 * draw.random() - 1)))
