"""Permits: taken at the least loaded, given back on every way out, kept across changes of the table."""

import contextlib

import pytest

from llmgw.core.exchange import Dial
from llmgw.core.refusal import Code, Refuse
from llmgw.gateway.desk import DEMAND_KEPT_S, Desk, Seat
from llmgw.gateway.state import Served, Table, from_snapshot
from llmgw.ports import HttpTimeouts
from llmgw.wire.watch_v1 import EndpointEntry, EndpointUse, ModelEntry, Snapshot

MODEL = ModelEntry("m", "always")


def table(*endpoints: EndpointEntry) -> Table:
    return from_snapshot(Snapshot(1, "c", 1, models=(MODEL,), endpoints=endpoints), HttpTimeouts())


def at(id: str, weight: float = 1.0) -> EndpointEntry:
    return EndpointEntry(id, "m", "10.0.0.1", 8000, weight=weight)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def desk_of(*endpoints: EndpointEntry) -> tuple[Desk, Served, Clock]:
    clock = Clock()
    desk = Desk(clock)
    whole = table(*endpoints)
    assert desk.adopt(whole) == []
    return desk, whole.models["m"], clock


def chosen(desk: Desk, model: Served, dial: Dial | None = None) -> Seat:
    seat = desk.choose(model, dial or Dial())
    assert isinstance(seat, Seat), seat
    return seat


def test_a_permit_comes_back_also_from_a_failure() -> None:
    desk, model, _ = desk_of(at("a"))
    with pytest.raises(ZeroDivisionError), desk.permit(chosen(desk, model)):
        assert desk.use()["a"].in_flight == 1
        raise ZeroDivisionError
    assert desk.in_flight() == 0


def test_the_least_loaded_for_its_weight_is_chosen() -> None:
    desk, model, _ = desk_of(at("small"), at("big", weight=3.0))
    with contextlib.ExitStack() as held:
        for _ in range(8):
            held.enter_context(desk.permit(chosen(desk, model)))
        assert {id: use.in_flight for id, use in desk.use().items()} == {"small": 2, "big": 6}


def test_a_weight_that_is_no_weight_counts_as_one() -> None:
    desk, model, _ = desk_of(at("a", weight=0.0))
    assert chosen(desk, model).weight == 1.0


def test_a_withdrawn_endpoint_is_reported_until_its_last_request_ends_and_chosen_never() -> None:
    desk, model, _ = desk_of(at("a"), at("b"))
    seat = chosen(desk, model, Dial(tried=("b",)))
    with desk.permit(seat):
        assert desk.adopt(table(at("b"))) == [at("a")]
        assert desk.use()["a"].in_flight == 1
        assert all(chosen(desk, model).id == "b" for _ in range(5))
    assert set(desk.use()) == {"b"}


def test_an_endpoint_that_comes_back_has_its_requests_still() -> None:
    desk, model, _ = desk_of(at("a"))
    with desk.permit(chosen(desk, model)):
        desk.adopt(table())
        desk.adopt(table(at("a", weight=2.0)))
        assert desk.use()["a"].in_flight == 1
        assert chosen(desk, model).weight == 2.0
    assert desk.use()["a"] == EndpointUse(0, 0.0)


def test_use_says_for_how_long_an_endpoint_has_been_idle() -> None:
    desk, model, clock = desk_of(at("a"))
    assert desk.use()["a"] == EndpointUse(0, None)
    with desk.permit(chosen(desk, model)):
        clock.now += 5
        assert desk.use()["a"] == EndpointUse(1, 0.0)
    clock.now += 7
    assert desk.use()["a"] == EndpointUse(0, 7.0)


def test_what_is_asked_for_in_vain_is_demand_for_a_while() -> None:
    desk, model, clock = desk_of()
    refused = desk.choose(model, Dial())
    assert isinstance(refused, Refuse) and refused.code is Code.NO_ENDPOINT
    clock.now += 3
    assert desk.demand() == {"m": 3.0}
    clock.now += DEMAND_KEPT_S
    assert desk.demand() == {}
