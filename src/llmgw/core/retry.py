"""Decides when a model that failed is tried again (R3).

Laws: the backoff belongs to the model, not to the replica; it doubles with each failure in a row up to
a cap, spread so that models that failed together do not come back together; a replica that was ready
long enough forgives what came before.
"""

import random

import msgspec

from llmgw.core import defaults
from llmgw.core.reason import Explained


class Retry(msgspec.Struct, frozen=True):
    """Failures of a model in a row, and when it may be placed again (control plane's clock)."""

    failures: int
    not_before: float
    last: Explained


def after_failure(
    before: Retry | None, failure: Explained, ready_s: float, now: float, draw: random.Random
) -> Retry:
    """The retry after one more failure of a replica that had been ready for `ready_s` seconds."""
    forgiven = before is None or ready_s >= defaults.BACKOFF_RESET_AFTER_READY_S
    failures = 1 if before is None or forgiven else before.failures + 1
    doublings = min(failures - 1, 32)  # 2**32 seconds is beyond any cap; more would overflow a float
    plain = min(defaults.BACKOFF_CAP_S, defaults.BACKOFF_FIRST_S * 2.0**doublings)
    spread = 1 + defaults.BACKOFF_JITTER * (2 * draw.random() - 1)
    return Retry(failures, now + min(defaults.BACKOFF_CAP_S, plain * spread), failure)
