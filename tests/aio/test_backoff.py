"""Delays grow, are spread, and stay under the cap."""

import random

from hypothesis import given
from hypothesis import strategies as st

from llmgw.aio.backoff import Backoff


class Middle(random.Random):
    def random(self) -> float:
        return 0.5


def test_delays_double_up_to_the_cap() -> None:
    plan = Backoff(first=1.0, cap=30.0)
    assert [plan.delay(n, Middle()) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


@given(st.integers(0, 10_000), st.integers())
def test_a_delay_stays_in_its_spread_and_under_the_cap(failures: int, seed: int) -> None:
    plan = Backoff(first=5.0, cap=300.0)
    plain = plan.delay(failures, Middle())
    delay = plan.delay(failures, random.Random(seed))
    assert 0.75 * plain <= delay <= min(1.25 * plain, 300.0)


def test_the_same_chance_gives_the_same_delay() -> None:
    plan = Backoff(first=1.0, cap=30.0)
    assert plan.delay(3, random.Random(7)) == plan.delay(3, random.Random(7))
    assert plan.delay(3, random.Random(7)) != plan.delay(3, random.Random(8))
