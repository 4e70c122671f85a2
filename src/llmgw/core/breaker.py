"""Decides when an endpoint that fails is left alone and tried again, and how many retries are fair (G10).

    CLOSED --failures--> OPEN --time--> HALF OPEN --one success--> CLOSED
                          ^__________________|  one failure, for twice as long

Laws: pure, `now` in seconds of any one clock; only an endpoint's own failures count, never a client's
mistake; half open takes one request at a time; retries cost what requests earned, so that an outage
is not multiplied.
"""

import msgspec

from llmgw.core import defaults


class Limits(msgspec.Struct, frozen=True):
    """When a breaker opens, and for how long. Seconds."""

    in_row: int = defaults.BREAKER_IN_ROW  # failures in a row
    window: int = defaults.BREAKER_WINDOW  # results looked at
    share: float = defaults.BREAKER_SHARE  # of failures in a full window
    open_first_s: float = defaults.BREAKER_OPEN_FIRST_S
    open_cap_s: float = defaults.BREAKER_OPEN_CAP_S


class Breaker(msgspec.Struct, frozen=True):
    """What an endpoint's last results were. `until`: not before then; `None` while it is closed."""

    in_row: int = 0
    recent: int = 0  # one bit a result, the last one lowest; 1 is a failure
    seen: int = 0  # how many results `recent` holds
    openings: int = 0  # in a row
    until: float | None = None
    probing: bool = False  # half open, and a request is on its way


CLOSED = Breaker()


def takes(breaker: Breaker, now: float) -> bool:
    """Whether a request may go there."""
    return breaker.until is None or (now >= breaker.until and not breaker.probing)


def begun(breaker: Breaker) -> Breaker:
    """A request goes there; half open it is the probe."""
    return breaker if breaker.until is None else msgspec.structs.replace(breaker, probing=True)


def abandoned(breaker: Breaker) -> Breaker:
    """A request ended without a result, because its client left."""
    return msgspec.structs.replace(breaker, probing=False) if breaker.probing else breaker


def succeeded(breaker: Breaker, limits: Limits) -> Breaker:
    """A request was answered."""
    if breaker.until is not None:
        # While it is open only what began before can end well, and that says nothing of new requests.
        return CLOSED if breaker.probing else breaker
    if breaker.recent == 0 and breaker.seen >= limits.window:
        return breaker
    return _noted(breaker, 0, limits)


def failed(breaker: Breaker, now: float, limits: Limits) -> Breaker:
    """A request failed through the endpoint's fault."""
    if breaker.until is not None:
        return _opened(breaker.openings, now, limits) if breaker.probing else breaker
    noted = _noted(breaker, 1, limits)
    full = noted.seen >= limits.window
    if noted.in_row >= limits.in_row or (full and noted.recent.bit_count() >= limits.share * limits.window):
        return _opened(0, now, limits)
    return noted


def _noted(breaker: Breaker, result: int, limits: Limits) -> Breaker:
    recent = (breaker.recent << 1 | result) & ((1 << limits.window) - 1)
    return Breaker(breaker.in_row + 1 if result else 0, recent, min(breaker.seen + 1, limits.window))


def _opened(openings: int, now: float, limits: Limits) -> Breaker:
    time_s = min(limits.open_first_s * 2.0 ** min(openings, 30), limits.open_cap_s)
    return Breaker(openings=openings + 1, until=now + time_s)


# ---------------------------------------------------------------- the budget of retries

BUDGET_CAP = 10.0  # retries that a quiet time saves up


def earned(budget: float, share: float) -> float:
    """What is left for retries after another request."""
    return min(BUDGET_CAP, budget + share)


def spent(budget: float) -> float | None:
    """What is left after a retry; `None`: there is not enough for one."""
    return budget - 1.0 if budget >= 1.0 else None
