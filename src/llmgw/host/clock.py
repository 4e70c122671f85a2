"""Tells the wall time of this machine; the only place that does.

Law: for stamps that people read and for expiry dates; durations come from the running loop.
"""

import time


class SystemClock:
    """The `Clock` of production."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
