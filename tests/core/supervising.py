"""A supervised node for tests: performs the supervisor's commands on pretended processes and virtual time.

Laws: every command yields the event its docstring names, in order; what a process does is the test's to
say; nothing happens by itself but the passing of time.
"""

from collections import deque

from llmgw.core.orders import (
    Check,
    Checked,
    CheckPort,
    Command,
    Drop,
    Event,
    Exited,
    Order,
    PortLooked,
    Probe,
    Probed,
    Recorded,
    Refuse,
    RememberTerm,
    RemoveRecord,
    Report,
    ReportGone,
    Spawn,
    Spawned,
    StartAsked,
    StopAsked,
    Sweep,
    Swept,
    Terminate,
    Tick,
    WriteRecord,
)
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import ShardId, ShardPhase
from llmgw.core.shard_life import Stage
from llmgw.core.supervisor import SupervisorState, next_due, step

CRASH = Explained(Failure.ENGINE_EXITED, "it crashed", ("last words",))


def shard_id(generation: int = 1, replica: str = "m-1", rank: int = 0) -> ShardId:
    return ShardId(replica, rank, generation)


def order(generation: int = 1, **changes: object) -> Order:
    values: dict[str, object] = {"id": shard_id(generation), "startup_timeout_s": 60.0}
    return Order(**(values | changes))  # type: ignore[arg-type]


class Engine:
    """A pretended process: what it does with TERM and how it answers is switched by the test."""

    def __init__(self, id: ShardId) -> None:
        self.id = id
        self.alive = True
        self.child_alive = False
        self.heeds_term = True
        self.dies_of_kill = True
        self.answers = False
        self.terms = 0


class Bench:
    """The state, its clock, and the pretended world."""

    def __init__(self) -> None:
        self.state = SupervisorState()
        self.now = 100.0
        self.engines: dict[ShardId, Engine] = {}
        self.records: dict[ShardId, bool] = {}
        self.said: list[Report | ReportGone | Refuse] = []
        self.done: list[Command] = []
        self.refusal: Explained | None = None
        self.check_hangs = False
        self.spawn_hangs = False
        self.spawn_failure: Explained | None = None
        self.write_error = ""
        self.port_free = True
        self.ignores_term = False
        self.ready_at_once = True
        self.terms: list[int] = []
        self._events: deque[Event] = deque()

    # ---------------------------------------------------------------- driving

    def send(self, event: Event) -> None:
        """Let something happen, and everything that follows at once."""
        self._events.append(event)
        self._drain()

    def spawn_comes_through(self) -> None:
        """A spawn that hung ends well after all."""
        self.spawned(shard_id())
        self._drain()

    def _drain(self) -> None:
        while self._events:
            self.state, commands = step(self.state, self._events.popleft(), self.now)
            for command in commands:
                self.done.append(command)
                self._perform(command)

    def start(self, term: int = 1, **changes: object) -> None:
        self.send(StartAsked(term, order(**changes)))  # type: ignore[arg-type]

    def stop(self, term: int = 1, generation: int = 1, grace_s: float = 10.0) -> None:
        self.send(StopAsked(term, shard_id(generation), grace_s))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a tick whenever one is due."""
        until = self.now + seconds
        while (due := next_due(self.state)) is not None and due <= until:
            self.now = max(self.now, due)
            self.send(Tick())
        self.now = until

    def exit(self, engine: Engine) -> None:
        engine.alive = False
        self.send(Exited(engine.id, CRASH))

    # ---------------------------------------------------------------- asking

    @property
    def engine(self) -> Engine:
        """The only engine that was started."""
        (engine,) = self.engines.values()
        return engine

    def stage(self, replica: str = "m-1") -> Stage:
        return self.state.shards[replica, 0].stage

    def phases(self) -> list[ShardPhase]:
        return [said.phase for said in self.said if isinstance(said, Report)]

    def last(self) -> Report:
        report = self.said[-1]
        assert isinstance(report, Report)
        return report

    # ---------------------------------------------------------------- the pretended world

    def _perform(self, command: Command) -> None:
        match command:
            case Check(id):
                if not self.check_hangs:
                    self._events.append(Checked(id, self.refusal))
            case WriteRecord(id, ready):
                if not self.write_error:
                    self.records[id] = ready
                self._events.append(Recorded(id, self.write_error))
            case Spawn(id):
                if not self.spawn_hangs:
                    self.spawned(id)
            case Probe(id):
                engine = self.engines[id]
                answers = engine.alive and (engine.answers or self.ready_at_once)
                self._events.append(Probed(id, "" if answers else "connection refused"))
            case Terminate(id):
                engine = self.engines[id]
                engine.terms += 1
                if engine.alive and engine.heeds_term and not self.ignores_term:
                    engine.alive = False
                    self._events.append(Exited(id, CRASH))
            case Sweep(id):
                self._sweep(id)
            case CheckPort(id):
                self._events.append(PortLooked(id, self.port_free))
            case RemoveRecord(id):
                self.records.pop(id, None)
            case RememberTerm(term):
                self.terms.append(term)
            case Report(id, phase):
                ended = phase in (ShardPhase.GONE, ShardPhase.FAILED)
                assert not (ended and id in self.engines and self.engines[id].alive), command
                self.said.append(command)
            case ReportGone() | Refuse():
                self.said.append(command)
            case Drop():
                pass

    def spawned(self, id: ShardId) -> None:
        if self.spawn_failure is None:
            self.engines[id] = Engine(id)
        self._events.append(Spawned(id, self.spawn_failure))

    def _sweep(self, id: ShardId) -> None:
        engine = self.engines.get(id)
        left: list[int] = []
        if engine is not None:
            left = [pid for pid, alive in ((1, engine.alive), (2, engine.child_alive)) if alive]
            engine.child_alive = False
            if engine.alive and engine.dies_of_kill:
                engine.alive = False
                self._events.append(Exited(id, CRASH))
        self._events.append(Swept(id, tuple(left)))
