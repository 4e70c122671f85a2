"""Owns the permits: which endpoint each request holds, how many each has in flight, what was asked in vain.

Laws: a permit is a `with` block, so that it is given back on every way out; between choosing and
holding there is no await; an endpoint that was withdrawn gets nothing new from that moment on, and is
reported until its last request has ended (R16a); counts survive every change of the table.
"""

from collections.abc import Callable, Mapping
from types import TracebackType

from llmgw.core.admission import admit
from llmgw.core.exchange import Dial
from llmgw.core.refusal import Refuse
from llmgw.gateway.state import Header, Served, Table, opaque_replica
from llmgw.wire.watch_v1 import EndpointEntry, EndpointUse

# A model asked for in vain stops being news after this long.
DEMAND_KEPT_S = 120.0
# Names in one report; who asks for thousands of models in two minutes is not demand.
DEMAND_MAX = 1000


class Seat:
    """One endpoint and what this router has going on there."""

    __slots__ = ("entry", "headers", "id", "in_flight", "last_s", "permit", "replica", "trouble", "weight")

    def __init__(self, entry: EndpointEntry, cluster_id: str, desk: "Desk") -> None:
        self.id = entry.id
        self.permit = Permit(desk, self)
        self.in_flight = 0
        self.last_s: float | None = None  # when its last request ended, loop time
        self.trouble: str | None = None  # why it could not be reached, last time
        self.replica: Header = (b"x-llmgw-replica", opaque_replica(cluster_id, entry.id))
        self.describe(entry)

    def describe(self, entry: EndpointEntry) -> None:
        """Take what the control plane says of it now."""
        self.entry = entry
        self.weight = entry.weight if entry.weight > 0 else 1.0
        key = entry.engine_key.encode()
        self.headers: tuple[Header, ...] = ((b"authorization", b"Bearer " + key),) if key else ()


class Desk:
    """Every endpoint of the table in force, and those that still have requests."""

    def __init__(self, time: Callable[[], float]) -> None:
        """`time`: the loop's."""
        self.time = time
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
        return [seat.entry for seat in known.values()]

    def ready(self, model: str) -> int:
        """How many endpoints a model has."""
        return len(self._by_model.get(model, ()))

    def choose(self, model: Served, dial: Dial) -> Seat | Refuse:
        """Where the request goes next; take the permit before anything is awaited."""
        self._turn += 1
        seats = self._by_model.get(model.entry.name, [])
        chosen = admit(model.entry, seats, tried=dial.tried, barred=dial.barred, turn=self._turn)
        if isinstance(chosen, Refuse) and not seats:
            self._asked_in_vain(model.entry.name)
        return chosen

    def has_other(self, model: Served, tried: tuple[str, ...]) -> bool:
        """Whether the model has an endpoint that did not fail this request."""
        return any(seat.id not in tried for seat in self._by_model.get(model.entry.name, ()))

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


def _use(seat: Seat, now: float) -> EndpointUse:
    if seat.in_flight:
        idle_s: float | None = 0.0
    else:
        idle_s = None if seat.last_s is None else max(0.0, now - seat.last_s)
    return EndpointUse(seat.in_flight, idle_s, seat.trouble)
