"""Usage rows on their way to the store: none lost below the bound, none counted twice."""

import random

from hypothesis import given
from hypothesis import strategies as st

from llmgw.gateway.usage import BATCH_ROWS, BATCHES_OUT_MAX, RESEND_AFTER_S, UsageBuffer
from llmgw.wire.watch_v1 import UsageRow


def row(number: int) -> UsageRow:
    return UsageRow(f"req-{number}", 0.0, "key-1", "m")


def filled(count: int, rows_max: int = 100_000) -> UsageBuffer:
    buffer = UsageBuffer(rows_max)
    for number in range(count):
        buffer.add(row(number))
    return buffer


def test_a_batch_is_sent_once_until_its_answer_is_overdue() -> None:
    buffer = filled(3)
    (batch,) = buffer.due(10.0)
    assert [one.request_id for one in batch.rows] == ["req-0", "req-1", "req-2"]
    assert buffer.due(10.0 + RESEND_AFTER_S - 0.1) == []
    assert buffer.due(10.0 + RESEND_AFTER_S) == [batch]


def test_a_stored_batch_is_forgotten_and_may_be_stored_twice() -> None:
    buffer = filled(3)
    (batch,) = buffer.due(0.0)
    assert len(buffer) == 3
    buffer.stored(batch.batch)
    buffer.stored(batch.batch)
    buffer.stored(999)
    assert len(buffer) == 0 and buffer.due(100.0) == []


def test_after_a_broken_stream_everything_unanswered_goes_again_under_its_number() -> None:
    buffer = filled(BATCH_ROWS + 1)
    before = buffer.due(0.0)
    buffer.stream_ended()
    assert buffer.due(0.1) == before and len(before) == 2


def test_a_slow_store_is_not_buried() -> None:
    buffer = filled(BATCH_ROWS * (BATCHES_OUT_MAX + 2))
    assert len(buffer.due(0.0)) == BATCHES_OUT_MAX
    assert len(buffer) == BATCH_ROWS * (BATCHES_OUT_MAX + 2)


def test_beyond_the_bound_rows_are_dropped_counted_and_told() -> None:
    buffer = filled(12, rows_max=10)
    assert (len(buffer), buffer.dropped) == (10, 2)
    (batch,) = buffer.due(0.0)
    assert batch.dropped == 2
    buffer.add(row(99))
    assert buffer.dropped == 3, "rows that are out count against the bound"


@given(st.integers(0, 10_000), st.lists(st.sampled_from(["add", "send", "store", "break"]), max_size=60))
def test_every_row_is_stored_exactly_once_whatever_happens_on_the_way(seed: int, steps: list[str]) -> None:
    draw, buffer, now, added = random.Random(seed), UsageBuffer(), 0.0, 0
    stored: dict[int, tuple[str, ...]] = {}
    sent: dict[int, tuple[str, ...]] = {}
    for step in [*steps, "break", "send", "store"]:
        now += draw.random() * RESEND_AFTER_S
        match step:
            case "add":
                buffer.add(row(added))
                added += 1
            case "send":
                for batch in buffer.due(now):
                    ids = tuple(one.request_id for one in batch.rows)
                    assert sent.setdefault(batch.batch, ids) == ids
            case "break":
                buffer.stream_ended()
            case _:
                for number, ids in sent.items():
                    stored[number] = ids
                    buffer.stored(number)
    assert len(buffer) == 0
    assert sorted(id for ids in stored.values() for id in ids) == sorted(f"req-{i}" for i in range(added))
