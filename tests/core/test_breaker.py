"""A breaker opens on failures alone, is patient longer each time, and lets one request try."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.breaker import (
    BUDGET_CAP,
    CLOSED,
    Breaker,
    Limits,
    abandoned,
    begun,
    earned,
    failed,
    spent,
    succeeded,
    takes,
)

LIMITS = Limits()


def after(results: str, breaker: Breaker = CLOSED, now: float = 0.0) -> Breaker:
    for result in results:
        breaker = failed(breaker, now, LIMITS) if result == "x" else succeeded(breaker, LIMITS)
    return breaker


def test_five_failures_in_a_row_open_it_and_four_do_not() -> None:
    assert takes(after("xxxx"), 0.0)
    assert after("xxxxx").until == 5.0
    assert takes(after("xxxx.xxxx"), 0.0)


def test_half_of_the_last_twenty_open_it_and_fewer_or_fewer_than_twenty_do_not() -> None:
    assert after("x." * 9).until is None, "a window that is not full says nothing"
    assert after(".x" * 10).until == 5.0
    assert after(".x" * 9 + ".." + "..x" * 20).until is None


def test_open_it_takes_nothing_and_then_one_at_a_time() -> None:
    opened = after("xxxxx")
    assert not takes(opened, 4.99) and takes(opened, 5.0)
    probe = begun(opened)
    assert not takes(probe, 6.0)
    assert takes(abandoned(probe), 6.0), "a client that leaves ends the probe without a result"
    assert succeeded(probe, LIMITS) == CLOSED


def test_each_failed_probe_doubles_the_wait_up_to_the_cap() -> None:
    breaker, now, waits = after("xxxxx"), 0.0, []
    for _ in range(6):
        assert breaker.until is not None
        waits.append(breaker.until - now)
        now = breaker.until
        breaker = failed(begun(breaker), now, LIMITS)
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_what_began_before_it_opened_changes_nothing() -> None:
    opened = after("xxxxx")
    assert succeeded(opened, LIMITS) == opened
    assert failed(opened, 3.0, LIMITS) == opened


def test_a_healthy_one_stays_the_same_value() -> None:
    healthy = after("." * 20)
    assert succeeded(healthy, LIMITS) is healthy


@given(st.text("x.ab ", max_size=200))
def test_no_history_leaves_it_shut_for_ever(history: str) -> None:
    """x failure, . success, a abandoned, b begun, space: five seconds pass."""
    breaker, now = CLOSED, 0.0
    for one in history:
        if one == " ":
            now += 5.0
        elif one == "b" and takes(breaker, now):
            breaker = begun(breaker)
        elif one == "a":
            breaker = abandoned(breaker)
        elif one in "x.":
            breaker = after(one, breaker, now)
        assert breaker.until is None or breaker.until <= now + LIMITS.open_cap_s
        assert not breaker.probing or breaker.until is not None
        assert breaker.in_row < LIMITS.in_row and 0 <= breaker.recent < 1 << LIMITS.window
    assert takes(abandoned(breaker), now + LIMITS.open_cap_s)


@given(st.text("rq", max_size=300), st.floats(0, 1))
def test_retries_are_never_more_than_their_share_and_what_was_saved(history: str, share: float) -> None:
    budget, requests, retries = BUDGET_CAP, 0, 0
    for one in history:
        if one == "q":
            budget, requests = earned(budget, share), requests + 1
            continue
        left = spent(budget)
        if left is not None:
            budget, retries = left, retries + 1
        assert 0 <= budget <= BUDGET_CAP
    assert retries <= BUDGET_CAP + share * requests + 1e-6
