"""Wall time, behind a Protocol: nothing but an adapter reads a clock.

Law: Protocols and values only; the errors a port may raise stand beside it.
"""

from typing import Protocol


class Clock(Protocol):
    """Wall time. Durations come from the running loop's `time()`, never from here."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...
