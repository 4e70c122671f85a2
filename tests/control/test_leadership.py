"""Leading, on the real lease: taken, renewed, kept through outages, lost by the store's word alone (H2)."""

import asyncio
from collections.abc import Callable

from llmgw.control.leadership import Leadership
from llmgw.core import happenings as h
from llmgw.core.inventory import Mark, OperatorMark
from llmgw.ports import LeaseOwner, StoreUnavailable
from tests.control.harness import Site

LEASE_S = 3.0


class Listener:
    """Notes what the fleet is told."""

    def __init__(self) -> None:
        self.told: list[h.Event] = []

    async def tell(self, event: h.Event) -> None:
        self.told.append(event)

    def terms(self) -> list[int]:
        return [event.term for event in self.told if isinstance(event, h.LeaseTaken | h.TermRaised)]


def server(site: Site, name: str = "a", address: str | None = None) -> tuple[Leadership, Listener]:
    listener = Listener()
    owner = LeaseOwner(name, "boot", 100, 1, address)
    return Leadership(site.store(), owner, LEASE_S, listener.tell), listener


async def test_the_first_beat_takes_an_empty_lease_with_the_roster_and_its_marks(site: Site) -> None:
    cordoned = OperatorMark(Mark.CORDONED, "disk", "ops")
    await site.store().remember_node("n1", "10.0.0.1")
    await site.store().set_mark("n1", cordoned)
    leadership, listener = server(site)
    await leadership.beat()
    (taken,) = listener.told
    assert isinstance(taken, h.LeaseTaken)
    assert (taken.term, taken.cluster_id) == (1, await site.store().cluster_id())
    assert taken.roster["n1"].mark is Mark.CORDONED
    assert taken.roster["n1"].reason == "disk"


async def test_renewals_tell_nothing_and_come_three_times_a_lease(site: Site) -> None:
    leadership, listener = server(site)
    for _ in range(3):
        await leadership.beat()
    assert len(listener.told) == 1
    assert leadership.renew_every_s == LEASE_S / 3


async def test_a_store_that_is_away_ends_nothing(site: Site) -> None:
    leadership, listener = server(site)
    await leadership.beat()
    site.faults.away = True
    for _ in range(10):
        await leadership.beat()
    site.faults.away = False
    await leadership.beat()
    assert [type(event) for event in listener.told] == [h.LeaseTaken]


async def test_a_store_that_fails_while_the_roster_is_read_is_asked_again(site: Site) -> None:
    leadership, listener = server(site)
    taken: Callable[..., object] = site.faults.before

    async def away_after_the_take(kind: object) -> None:
        site.faults.before = fail  # type: ignore[method-assign]
        await taken(kind)  # type: ignore[misc]

    async def fail(kind: object) -> None:
        site.faults.before = taken  # type: ignore[method-assign,assignment]
        raise StoreUnavailable("cut between two questions")

    site.faults.before = away_after_the_take  # type: ignore[method-assign]
    await leadership.beat()
    assert listener.told == [], "not leading before the roster is known"
    await leadership.beat()
    assert listener.terms() == [1]


async def test_a_standby_waits_and_leads_with_a_higher_term_when_the_holder_gave_up(site: Site) -> None:
    first, _ = server(site, "a")
    second, listener = server(site, "b")
    await first.beat()
    await second.beat()
    assert listener.told == []
    await first.release()
    await second.beat()
    assert listener.terms() == [2]


async def test_a_holder_steps_down_the_moment_the_store_says_another_holds_it(site: Site) -> None:
    first, listener = server(site, "a")
    second, _ = server(site, "b", "10.0.0.2:8443")
    await first.beat()
    site.dead.add("a")  # taken for dead by the other
    await second.beat()
    await first.beat()
    assert listener.told[1:] == [h.LeaseLost("10.0.0.2:8443")]


async def test_a_lease_that_somebody_else_held_in_between_is_a_new_leadership(site: Site) -> None:
    first, listener = server(site, "a")
    second, _ = server(site, "b")
    await first.beat()
    site.dead.add("a")
    await second.beat()
    await second.release()
    await first.beat()
    assert listener.terms() == [1, 3]


async def test_a_higher_term_is_written_before_it_is_used(site: Site) -> None:
    leadership, listener = server(site)
    await leadership.beat()
    await leadership.raise_above(41)
    assert listener.told[1:] == [h.TermRaised(42)]
    await leadership.beat()
    await leadership.raise_above(41)
    assert len(listener.told) == 2, "not taken for somebody else's term, and not raised twice"


async def test_a_beat_that_crosses_a_raise_does_not_take_it_for_another_leader(site: Site) -> None:
    leadership, listener = server(site)
    await leadership.beat()
    await asyncio.gather(leadership.raise_above(9), leadership.beat(), leadership.raise_above(9))
    assert listener.terms() == [1, 10]


async def test_who_does_not_lead_raises_nothing(site: Site) -> None:
    first, _ = server(site, "a")
    second, listener = server(site, "b")
    await first.beat()
    await second.beat()
    await second.raise_above(7)
    assert listener.told == []
