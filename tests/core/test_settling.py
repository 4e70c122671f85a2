"""Settling, driven as the ticker drives it: once a second, with nodes coming and going (R10)."""

from llmgw.core.settling import Settling, begin, observe, remaining

WINDOW_S = 60.0


def settled_at(roster: set[str], arrivals: dict[float, set[str]]) -> float:
    """The tick at which placing may begin; `arrivals` says who is connected from when on."""
    settling: Settling = begin(0.0, WINDOW_S, roster)
    connected: set[str] = set()
    now = 0.0
    while True:
        connected = arrivals.get(now, connected)
        settling = observe(settling, connected, now)
        if remaining(settling, connected, now) == 0.0:
            return now
        now += 1.0


def test_it_ends_at_once_when_every_node_of_the_roster_is_back() -> None:
    assert settled_at({"a", "b"}, {1.0: {"a"}, 4.0: {"a", "b"}}) == 4.0


def test_nodes_outside_the_roster_do_not_stand_for_those_in_it() -> None:
    assert settled_at({"a", "b"}, {1.0: {"a", "x", "y"}}) > 4.0


def test_a_count_that_stands_still_for_half_the_window_ends_it() -> None:
    assert settled_at({"a", "b"}, {2.0: {"a"}}) == 32.0


def test_a_node_that_is_late_starts_the_half_window_again() -> None:
    assert settled_at({"a", "b", "c"}, {1.0: {"a"}, 18.0: {"a", "b"}}) == 48.0


def test_the_window_bounds_a_count_that_keeps_changing() -> None:
    flapping = {float(t): {"a"} if t % 2 else {"a", "b"} for t in range(1, 200)}
    assert settled_at({"a", "b", "c"}, flapping) == WINDOW_S


def test_it_outlasts_an_agents_reconnect_backoff() -> None:
    """One node back after a second, the others after their backoff: a count of one must not settle."""
    assert settled_at({"a", "b", "c"}, {1.0: {"a"}, 29.0: {"a", "b", "c"}}) == 29.0


def test_a_fleet_that_was_never_seen_has_nobody_to_wait_for() -> None:
    assert settled_at(set(), {}) == 0.0


def test_what_remains_is_what_the_operator_is_shown() -> None:
    settling = observe(begin(0.0, WINDOW_S, {"a", "b"}), {"a"}, 10.0)
    assert remaining(settling, {"a"}, 15.0) == 25.0
