"""Events and effects are values: printed, compared, and each handled by the fleet."""

import random
from typing import get_args

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.fleet import Fleet
from llmgw.core.inventory import OperatorMark
from llmgw.core.replica import Fetched, ShardId
from tests.core.makers import catalog, report
from tests.core.obedient import SETTINGS
from tests.core.replicas import stranger

EVENTS: tuple[h.Event, ...] = (
    h.CatalogChanged(Catalog({}, {})),
    h.LeaseTaken("c", 1, {"n1": OperatorMark()}),
    h.TermRaised(4),
    h.AgentRegistered(1, "i", report("n1"), (stranger(),), True, None, None),
    h.AgentHeard(1, memory_available_bytes=5),
    h.NodeRedescribed(1, report("n1", memory_gb=128)),
    h.ShardReported(1, stranger()),
    h.FetchProgressed(1, ShardId("m-ffffffff", 0, 1), Fetched(5)),
    h.CommandRefused(1, "stale term", None),
    h.RouterJoined("r"),
    h.RouterApplied("r", 1),
    h.UseReported("r", {"m-ffffffff": h.EndpointUse(1, 0.0)}),
    h.RouterLeft("r"),
    h.KeysChanged(),
    h.MarkSet("n1", OperatorMark()),
    h.Ticked(),
    h.AgentLeft(1, "gone"),
    h.LeaseLost("somebody"),
)


def test_every_kind_of_event_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(h.News)) | set(get_args(h.Routine))


def test_every_event_is_handled_also_when_it_comes_before_all_others_or_twice() -> None:
    for first in EVENTS:
        fleet, draw = Fleet(SETTINGS, catalog()), random.Random(1)
        for event in (first, first, *EVENTS, *EVENTS):
            for effect in fleet.handle(event, 100.0, draw):
                assert type(effect) in get_args(h.Effect)
