"""Owns the permits: which endpoint each request holds, how many each has in flight, what was asked in vain.

Laws: a permit is a `with` block, so that it is given back on every way out; between choosing and
holding there is no await; an endpoint that was withdrawn gets nothing new from that moment on, and is
reported until its last request has ended (R16a); counts survive every change of the table.
"""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final

import msgspec

from llmgw.core import breaker as br
from llmgw.core import defaults
from llmgw.core.admission import admit, refusal, resting
from llmgw.core.exchange import Dial, Fault
from llmgw.core.refusal import Refuse
from llmgw.gateway.state import Header, Served, Table, opaque_replica
from llmgw.wire.watch_v1 import EndpointEntry, EndpointUse

# A model asked for in vain stops being news after this long.
DEMAND_KEPT_S = 120.0
# Names in one report; who asks for thousands of models in two minutes is not demand.
DEMAND_MAX = 1000
# An engine that asks for a longer pause is looked at again after this.
HELD_MAX_S = 60.0

# Faults after which an endpoint is as good as before.
NOT_ITS_FAULT: Final = frozenset({Fault.MISTAKEN, Fault.OVERFLOW, Fault.LACKING})


class Seat:
    """One endpoint and what this router has going on there."""

    __slots__ = (
        "breaker", "entry", "estranged", "headers", "held_until", "id", "in_flight", "last_s", "permit",
        "replica", "trouble", "weight",
    )  # fmt: skip

    def __init__(self, entry: EndpointEntry, cluster_id: str, desk: "Desk") -> None:
        self.id = entry.id
        self.permit = Permit(desk, self)
        self.in_flight = 0
        self.last_s: float | None = None  # when its last request ended, loop time
        self.breaker = br.CLOSED
        self.held_until = 0.0  # it asked for a pause until then, loop time
        self.estranged = False  # it is not what we think, until it proves that it is
        self.trouble: str | None = None  # why it could not be reached, last time
        self.replica: Header = (b"x-llmgw-replica", opaque_replica(cluster_id, entry.id))
        self.describe(entry)

    def describe(self, entry: EndpointEntry) -> None:
        """Take what the control plane says of it now."""
        self.entry = entry
        self.weight = entry.weight if entry.weight > 0 else 1.0
        key = entry.engine_key.encode()
        self.headers: tuple[Header, ...] = ((b"authorization", b"Bearer " + key),) if key else ()


class Patience(msgspec.Struct, frozen=True):
    """How failures are borne."""

    breaker: br.Limits = br.Limits()
    retry_share: float = defaults.RETRY_BUDGET  # retries a request earns


class Desk:
    """Every endpoint of the table in force, and those that still have requests."""

    def __init__(self, time: Callable[[], float], patience: Patience | None = None) -> None:
        """`time`: the loop's."""
        self.time = time
        self._patience = patience or Patience()
        self._unwell: dict[str, Seat] = {}  # those that may have to be left alone
        self._budgets: dict[str, float] = {}  # retries a model has left
        self.on_estranged: Callable[[Seat], None] = _nobody
        self._seats: dict[str, Seat] = {}
        self._by_model: dict[str, list[Seat]] = {}
        self._withdrawn: dict[str, Seat] = {}
        self._demand: dict[str, float] = {}
        self._turn = 0

    def adopt(self, table: Table) -> list[EndpointEntry]:
        """Serve from this table; returns the endpoints that were withdrawn by it."""
        known, self._seats = self._seats, {}
        self._by_model = {}
        for id, entry in table.endpoints.items():
            seat = known.pop(id, None) or self._withdrawn.pop(id, None) or Seat(entry, table.cluster_id, self)
            if seat.entry != entry:
                seat.describe(entry)
            self._seats[id] = seat
            self._by_model.setdefault(entry.model, []).append(seat)
        self._withdrawn.update(known)
        for id in known:
            self._unwell.pop(id, None)
        self._budgets = {name: left for name, left in self._budgets.items() if name in table.models}
        return [seat.entry for seat in known.values()]

    def ready(self, model: str) -> int:
        """How many endpoints a model has."""
        return len(self._by_model.get(model, ()))

    def choose(self, model: Served, dial: Dial) -> Seat | Refuse:
        """Where the request goes next; take the permit before anything is awaited."""
        self._turn += 1
        name = model.entry.name
        seats = self._by_model.get(name, [])
        if dial.tried and not self._may_retry(name):
            return refusal(model.entry)
        if not dial.tried:
            self._budgets[name] = br.earned(
                self._budgets.get(name, br.BUDGET_CAP), self._patience.retry_share
            )
        shut = self._shut(seats) if self._unwell else ()
        barred = (*dial.barred, *shut) if shut else dial.barred
        chosen = admit(model.entry, seats, tried=dial.tried, barred=barred, turn=self._turn)
        if isinstance(chosen, Refuse):
            if not seats:
                self._asked_in_vain(name)
            elif len(shut) == len(seats):
                return self._resting(model, seats)
        return chosen

    def _may_retry(self, model: str) -> bool:
        left = br.spent(self._budgets.get(model, br.BUDGET_CAP))
        if left is None:
            return False
        self._budgets[model] = left
        return True

    def _shut(self, seats: list[Seat]) -> tuple[str, ...]:
        """Those of a model's endpoints that are left alone now."""
        now = self.time()
        return tuple(seat.id for seat in seats if seat.id in self._unwell and not _open(seat, now))

    def _resting(self, model: Served, seats: list[Seat]) -> Refuse:
        now = self.time()
        busy = any(not seat.estranged and br.takes(seat.breaker, now) for seat in seats)
        waits = [max(seat.held_until, seat.breaker.until or 0.0) - now for seat in seats]
        return resting(model.entry, min(waits), busy=busy)

    def has_other(self, model: Served, tried: tuple[str, ...]) -> bool:
        """Whether the model has an endpoint that did not fail this request."""
        return any(seat.id not in tried for seat in self._by_model.get(model.entry.name, ()))

    # ------------------------------------------------------------ what became of requests

    def began(self, seat: Seat) -> None:
        """A request goes to an endpoint."""
        if seat.breaker.until is not None:
            seat.breaker = br.begun(seat.breaker)

    def succeeded(self, seat: Seat) -> None:
        """It answered well, or told the client of its own mistake."""
        seat.breaker = br.succeeded(seat.breaker, self._patience.breaker)
        if self._unwell:
            self._look_at(seat)

    def failed(self, seat: Seat, fault: Fault, retry_after_s: float | None) -> None:
        """A request failed there."""
        now = self.time()
        if fault is Fault.BUSY:
            seat.breaker = br.abandoned(seat.breaker)
            if retry_after_s:
                seat.held_until = now + min(retry_after_s, HELD_MAX_S)
        elif fault in NOT_ITS_FAULT:
            seat.breaker = br.succeeded(seat.breaker, self._patience.breaker)
        elif fault is Fault.OVERDUE:
            seat.breaker = br.abandoned(seat.breaker)
        else:
            seat.breaker = br.failed(seat.breaker, now, self._patience.breaker)
        if fault is Fault.ESTRANGED and not seat.estranged:
            seat.estranged = True
            self.on_estranged(seat)
        self._look_at(seat)

    def abandoned(self, seat: Seat) -> None:
        """The client left before there was a result."""
        seat.breaker = br.abandoned(seat.breaker)

    def verified(self, seat: Seat) -> None:
        """It has proved that it is what we think."""
        seat.estranged, seat.trouble = False, None
        self._look_at(seat)

    def serves(self, seat: Seat) -> bool:
        """Whether it is still one of the endpoints."""
        return self._seats.get(seat.id) is seat

    def _look_at(self, seat: Seat) -> None:
        """Keep in mind whether this endpoint may have to be left alone."""
        if seat.estranged or seat.breaker.until is not None or seat.held_until > self.time():
            if self._seats.get(seat.id) is seat:
                self._unwell[seat.id] = seat
        elif self._unwell:
            self._unwell.pop(seat.id, None)

    def permit(self, seat: Seat) -> "Permit":
        """Hold one place at an endpoint for the length of a `with` block."""
        return seat.permit

    def emptied(self, seat: Seat) -> None:
        """The last permit at an endpoint came back."""
        self._withdrawn.pop(seat.id, None)

    def in_flight(self) -> int:
        """Permits that are out."""
        return sum(seat.in_flight for seat in (*self._seats.values(), *self._withdrawn.values()))

    def use(self) -> dict[str, EndpointUse]:
        """Use by endpoint id, for the control plane."""
        now = self.time()
        self._withdrawn = {id: seat for id, seat in self._withdrawn.items() if seat.in_flight}
        seats = (*self._seats.values(), *self._withdrawn.values())
        return {seat.id: _use(seat, now) for seat in seats}

    def demand(self) -> Mapping[str, float]:
        """Models asked for in vain, with how many seconds ago it was last."""
        now = self.time()
        self._demand = {name: at for name, at in self._demand.items() if now - at < DEMAND_KEPT_S}
        return {name: now - at for name, at in self._demand.items()}

    def _asked_in_vain(self, model: str) -> None:
        if model in self._demand or len(self._demand) < DEMAND_MAX:
            self._demand[model] = self.time()


class Permit:
    """Places at an endpoint: one for as long as each `with` block lasts. Holds nothing of a request's own."""

    __slots__ = ("_desk", "_seat")

    def __init__(self, desk: Desk, seat: Seat) -> None:
        self._desk = desk
        self._seat = seat

    def __enter__(self) -> Seat:
        self._seat.in_flight += 1
        return self._seat

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        seat, desk = self._seat, self._desk
        seat.in_flight -= 1
        seat.last_s = desk.time()
        if not seat.in_flight:
            desk.emptied(seat)


def _nobody(_: Seat) -> None:
    """Whoever verifies endpoints is not there yet."""


def _open(seat: Seat, now: float) -> bool:
    return not seat.estranged and seat.held_until <= now and br.takes(seat.breaker, now)


def _use(seat: Seat, now: float) -> EndpointUse:
    if seat.in_flight:
        idle_s: float | None = 0.0
    else:
        idle_s = None if seat.last_s is None else max(0.0, now - seat.last_s)
    return EndpointUse(seat.in_flight, idle_s, seat.trouble)
