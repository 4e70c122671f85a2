"""Least loaded: in flight over weight, equals in turn."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.routing import least_loaded


class Seat(msgspec.Struct, frozen=True):
    id: str
    in_flight: int = 0
    weight: float = 1.0


SEATS = st.lists(
    st.builds(
        Seat,
        st.uuids().map(str),
        st.integers(0, 50),
        st.floats(0.1, 10, allow_nan=False, allow_infinity=False),
    ),
    max_size=8,
    unique_by=lambda seat: seat.id,
)


def test_the_least_loaded_takes_the_request() -> None:
    assert least_loaded([Seat("a", 3), Seat("b", 1), Seat("c", 2)], (), 0) == Seat("b", 1)


def test_weight_is_a_share_of_the_work() -> None:
    chosen = least_loaded([Seat("small", 2, 1.0), Seat("big", 6, 4.0)], (), 0)
    assert chosen is not None and chosen.id == "big"


def test_equals_are_taken_in_turn() -> None:
    seats = [Seat("a"), Seat("b"), Seat("c")]
    taken = [least_loaded(seats, (), turn) for turn in range(6)]
    assert [seat.id for seat in taken if seat] == ["a", "b", "c", "a", "b", "c"]


def test_who_is_avoided_is_not_chosen() -> None:
    assert least_loaded([Seat("a"), Seat("b", 9)], ("a",), 0) == Seat("b", 9)
    assert least_loaded([Seat("a")], ("a",), 0) is None
    assert least_loaded([], (), 7) is None


@given(SEATS, st.integers(0, 1000))
def test_the_chosen_one_has_no_more_load_than_any_other(seats: list[Seat], turn: int) -> None:
    chosen = least_loaded(seats, (), turn)
    if not seats:
        assert chosen is None
    else:
        assert chosen is not None
        assert chosen.in_flight / chosen.weight == min(seat.in_flight / seat.weight for seat in seats)
