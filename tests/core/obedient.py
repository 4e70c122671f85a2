"""Agents and routers that do what they are told, around a real `Fleet`: what a test changes is one thing."""

import random
from collections.abc import Callable

import msgspec

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.claims import PortRange
from llmgw.core.fleet import Fleet
from llmgw.core.fleet_state import FleetSettings, FleetState, endpoints
from llmgw.core.inventory import EngineInstall, NodeReport, OperatorMark, PresenceLimits
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import Replica, ReportedShard, ShardId, ShardPhase, phase_of
from llmgw.core.units import GB

SETTINGS = FleetSettings(
    presence=PresenceLimits(15.0, 120.0),
    settling_s=60.0,
    drain_grace_s=600.0,
    withdrawal_ack_s=2.0,
    ports=PortRange(20000, 20099),
    foreign_memory_bytes=GB,
)
CLUSTER = "cluster-1"


def node(id: str, memory_gb: int = 64) -> NodeReport:
    engines = {"sim": EngineInstall("sim")}
    return NodeReport(id, f"10.0.0.{id[-1]}", memory_total_bytes=memory_gb * GB, gpus=(), engines=engines)


class World:
    """A fleet with obedient agents; time passes only by `pass_time`."""

    def __init__(self, catalog: Catalog, settings: FleetSettings = SETTINGS, seed: int = 1) -> None:
        self.fleet = Fleet(settings, catalog)
        self.now = 1000.0
        self.draw = random.Random(seed)
        self.effects: list[h.Effect] = []
        self.sessions: dict[str, int] = {}
        self.shards: dict[str, dict[ShardId, ReportedShard]] = {}
        self.routers: list[str] = []
        self.in_flight: dict[str, int] = {}
        self.obeys: Callable[[str], bool] = lambda node: True
        self._next_session = 1

    # ------------------------------------------------------------ what happens

    def lead(self, *roster: str) -> None:
        self.tell(h.LeaseTaken(CLUSTER, 1, {id: OperatorMark() for id in roster}))

    def register(self, report: NodeReport, **fields: object) -> int:
        """An agent's stream opens and reports all its shards."""
        session, self._next_session = self._next_session, self._next_session + 1
        self.sessions[report.id] = session
        running = tuple(self.shards.setdefault(report.id, {}).values())
        event = h.AgentRegistered(session, f"instance-{report.id}", report, running, True, CLUSTER, None)
        self.tell(msgspec.structs.replace(event, **fields))
        return session

    def restarted(self) -> "World":
        """Another server over the same engines: it knows the roster and the catalog, and nothing else."""
        other = World(self.state.catalog, self.state.settings, self.draw.getrandbits(32))
        other.now, other.shards = self.now, self.shards
        other.lead(*self.state.nodes)
        for router in self.routers:
            other.join_router(router)
        for id in list(self.sessions):
            report = self.state.nodes[id].report
            if report is not None:
                other.register(report)
        return other

    def leave(self, id: str) -> None:
        self.tell(h.AgentLeft(self.sessions.pop(id), "cut"))

    def join_router(self, id: str = "router") -> None:
        self.routers.append(id)
        self.tell(h.RouterJoined(id))
        self._acknowledge()

    def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Ticks, heartbeats and use reports, once a step."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            for session in list(self.sessions.values()):
                self.tell(h.AgentHeard(session))
            for router in self.routers:
                use = {id: h.EndpointUse(self.in_flight.get(id, 0), 1.0) for id in self.state.replicas}
                self.tell(h.UseReported(router, use))
            self.tell(h.Ticked())

    def say(self, id: str, shard: ShardId, phase: ShardPhase, failure: Explained | None = None) -> None:
        """An agent speaks of one of its shards."""
        self.shards[id][shard] = msgspec.structs.replace(self.shards[id][shard], phase=phase, failure=failure)
        self.tell(h.ShardReported(self.sessions[id], self.shards[id][shard]))

    def crash(self, replica: Replica) -> None:
        """Its engine dies."""
        shard = replica.shards[0]
        failure = Explained(Failure.ENGINE_EXITED, "exit 1")
        self.say(shard.node, replica.shard_id(shard), ShardPhase.FAILED, failure)

    def tell(self, event: h.Event) -> None:
        effects = self.fleet.handle(event, self.now, self.draw)
        self.effects += effects
        for effect in effects:
            self._perform(effect)

    # ------------------------------------------------------------ obedience

    def _perform(self, effect: h.Effect) -> None:
        match effect:
            case h.StartShard():
                self._start(effect)
            case h.StopShard():
                id = self._node_of(effect.session)
                if id is not None and self.obeys(id) and effect.shard in self.shards[id]:
                    self.say(id, effect.shard, ShardPhase.GONE)
            case h.ForgetShard():
                id = self._node_of(effect.session)
                if id is not None:
                    self.shards[id].pop(effect.shard, None)
            case h.Publish():
                self._acknowledge()
            case _:
                pass

    def _start(self, effect: h.StartShard) -> None:
        id = self._node_of(effect.session)
        if id is None or not self.obeys(id):
            return
        replica, shard = effect.replica, effect.shard
        key = replica.shard_id(shard)
        self.shards[id][key] = ReportedShard(
            id=key,
            phase=ShardPhase.STARTING,
            model=replica.model,
            profile=replica.profile,
            fingerprint=replica.fingerprint,
            engine=replica.engine,
            shard_count=replica.shard_count,
            address=shard.address,
            port=shard.port,
            claim=shard.claim,
            engine_key=replica.engine_key,
            pid=4000,
        )
        self.say(id, key, ShardPhase.STARTING)
        self.say(id, key, ShardPhase.READY)

    def _acknowledge(self) -> None:
        for router in self.routers:
            self.tell(h.RouterApplied(router, self.state.revision))

    def _node_of(self, session: int) -> str | None:
        return next((id for id, one in self.sessions.items() if one == session), None)

    # ------------------------------------------------------------ looking

    @property
    def state(self) -> FleetState:
        return self.fleet.state(self.now)

    def phases(self) -> list[str]:
        return sorted(phase_of(one).value for one in self.state.replicas.values())

    def published(self) -> set[str]:
        return set(endpoints(self.state.replicas))

    def kinds(self) -> list[str]:
        return [one.kind for one in self.effects if isinstance(one, h.Record)]

    def started(self) -> list[str]:
        return [one.replica.id for one in self.effects if isinstance(one, h.StartShard)]

    def stopped(self) -> list[str]:
        return [one.shard.replica for one in self.effects if isinstance(one, h.StopShard)]
