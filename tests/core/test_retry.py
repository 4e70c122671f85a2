"""A model's backoff: 5 s doubled, a quarter spread, five minutes at most, forgiven after ten ready (R3)."""

import random

from llmgw.core.retry import Retry, after_failure
from tests.core.replicas import OOM


def delays(count: int, seed: int, ready_s: float = 0.0) -> list[float]:
    draw, retry, found = random.Random(seed), None, []
    for _ in range(count):
        retry = after_failure(retry, OOM, ready_s, 100.0, draw)
        found.append(retry.not_before - 100.0)
    return found


def test_delays_double_within_their_spread_up_to_the_cap() -> None:
    for seed in range(50):
        for index, delay in enumerate(delays(20, seed)):
            plain = min(300.0, 5.0 * 2**index)
            assert 0.75 * plain <= delay <= min(300.0, 1.25 * plain)


def test_models_that_failed_together_do_not_come_back_together() -> None:
    assert len({delays(1, seed)[0] for seed in range(20)}) > 15


def test_a_replica_that_was_ready_long_enough_forgives_what_came_before() -> None:
    assert all(delay <= 6.25 for delay in delays(8, 1, ready_s=600.0))


def test_one_that_was_ready_for_less_does_not() -> None:
    assert delays(8, 1, ready_s=599.0)[-1] > 6.25


def test_the_last_failure_is_kept_for_the_operator() -> None:
    assert after_failure(Retry(3, 0.0, OOM), OOM, 0.0, 1.0, random.Random(1)).last == OOM


def test_a_failure_count_beyond_all_reason_does_not_overflow() -> None:
    assert after_failure(Retry(10**6, 0.0, OOM), OOM, 0.0, 0.0, random.Random(1)).not_before <= 300.0
