"""Sees everything that happens in a simulated cluster: notes it, keeps the facts, shows it to the checkers.

Laws: everything comes by here once, from the machines, the wire and the routers; the first broken promise
is kept, and those after it are only its consequences.
"""

import asyncio
from collections.abc import Iterable

from llmgw.entry.process import CannotRun
from llmgw.sim.checkers import Checker, all_checkers
from llmgw.sim.engines import EngineProgram
from llmgw.sim.facts import EngineFact, Facts, RouterFact, Violation
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import End, SimProcess
from llmgw.sim.network import current_process
from llmgw.sim.trace import Trace
from llmgw.wire import agent_v1
from llmgw.wire.envelope import Unknown
from llmgw.wire.watch_v1 import EndpointEntry

MARK_SHARD = "LLMGW_MARK_SHARD"
MARK_GENERATION = "LLMGW_MARK_GENERATION"


class Eyes:
    """Implements `machine.Watcher`, `router.RouterEyes` and `tap.AgentEars` for one cluster."""

    def __init__(self, loop: SimLoop) -> None:
        self.trace = Trace(loop.time)
        self.facts = Facts(loop.time)
        self.checkers: tuple[Checker, ...] = all_checkers(self.facts)
        self.violation: Violation | None = None
        self._loop = loop
        self._broken: asyncio.Future[None] = loop.create_future()

    def note(self, kind: str, text: str, *subjects: str) -> None:
        """Something happened."""
        self.trace.note(kind, text, *subjects)

    def fail(self, checker: str, text: str, *subjects: str) -> None:
        """Something must not be."""
        self._take([Violation(checker, self._loop.time(), text, subjects)])

    def _take(self, found: Iterable[Violation]) -> None:
        for violation in found:
            if self.violation is None:
                self.violation = violation
                self.note("BROKEN", f"{violation.checker}: {violation.text}", *violation.subjects)
                self._broken.set_result(None)

    async def broken(self) -> None:
        """Wait for a broken promise."""
        await asyncio.shield(self._broken)

    def look(self) -> None:
        """Have every checker look at everything."""
        for checker in self.checkers:
            self._take(checker.look())

    # ------------------------------------------------------------ machine.Watcher

    def started(self, process: SimProcess) -> None:
        """A process runs."""
        node = process.machine.name
        if process.title == "agent":
            self.facts.fine_since.pop(node, None)
        shard = process.spec.env.get(MARK_SHARD, "")
        self.note("started", f"{process.title} pid {process.pid} on {node} {shard}", node, _replica(shard))
        if isinstance(process.program, EngineProgram):
            self._engine_started(process, process.program, shard)

    def _engine_started(self, process: SimProcess, program: EngineProgram, shard: str) -> None:
        replica, _, rank = shard.rpartition("/")
        generation = int(process.spec.env.get(MARK_GENERATION, "0"))
        key = agent_v1.ShardKey(replica, int(rank or 0), generation)
        engine = EngineFact(process.machine.name, key, process, self._loop.time())
        spec = self.facts.specs.get(key)
        if spec is not None:
            engine.claim, engine.port = spec.claim, spec.port
        self.facts.engines[process.name] = engine
        program.on_answer = lambda: self._engine_answered(engine)
        engine.answers = lambda: engine.answered_at is not None and not program.deaf
        self.note("fate", f"{engine.text()}: {program.fate.text()}", replica, engine.node)
        for checker in self.checkers:
            self._take(checker.spawned(engine))
        self.look()

    def _engine_answered(self, engine: EngineFact) -> None:
        if engine.answered_at is None:
            engine.answered_at = self._loop.time()
            self.note("answered", engine.text(), engine.key.replica, engine.node)

    def signalled(self, process: SimProcess, signum: int) -> None:
        """A process is about to get a signal; the simulator's own have no sender."""
        sender = current_process.get() or "a fault"
        engine = self.facts.engines.get(process.name)
        about = (process.machine.name,) if engine is None else (process.machine.name, engine.key.replica)
        self.note(
            "signal", f"{signum} to {process.title} pid {process.pid} on {about[0]} by {sender}", *about
        )
        if engine is not None and engine.signalled_at is None and current_process.get():
            for checker in self.checkers:
                self._take(checker.signalled(engine))
            engine.signalled_at = self._loop.time()

    def ended(self, process: SimProcess, end: End) -> None:
        """A process is over."""
        self.facts.engines.pop(process.name, None)
        self.facts.routers.pop(process.name, None)
        node, shard = process.machine.name, process.spec.env.get(MARK_SHARD, "")
        text = f"{process.title} pid {process.pid} on {node} {shard}: status {end.status}"
        why = f" ({end.crash!r})" if end.crash is not None else ""
        self.note("ended", text + why, node, _replica(shard))
        if end.crash is not None and not isinstance(end.crash, CannotRun):
            self.fail("no_crash", f"{process.title} of {node} died of {end.crash!r}", node)
        if end.leaked:
            self.fail("no_leak", f"{process.title} of {node} left tasks: {', '.join(end.leaked)}", node)

    # ------------------------------------------------------------ router.RouterEyes

    def router_started(self, router: RouterFact) -> None:
        """A router runs."""
        self.facts.routers[router.name] = router

    def published(self, router: RouterFact, endpoint: EndpointEntry) -> None:
        """A router sends to an endpoint from now."""
        where = f"{endpoint.host}:{endpoint.port}"
        self.note("published", f"{endpoint.id} at {where} in {router.name}", endpoint.id)
        for checker in self.checkers:
            self._take(checker.published(router, endpoint))

    def withdrawn(self, router: RouterFact, endpoint: str) -> None:
        """A router sends to it no more."""
        self.note("withdrawn", f"{endpoint} from {router.name}", endpoint)

    # ------------------------------------------------------------ tap.AgentEars

    def node_told(self, node: str, message: agent_v1.Down | Unknown) -> None:
        """A control plane said something to a node."""
        match message:
            case agent_v1.StartShard():
                self.facts.told_to_start(node, message.term, message.spec)
                key = message.spec.key
                self.note("told", f"{node}: start {_shard(key)} under term {message.term}", node, key.replica)
            case agent_v1.StopShard():
                self.facts.told_term(node, message.term)
                self.facts.told_to_stop.add(message.key)
                self.note(
                    "told", f"{node}: stop {_shard(message.key)}: {message.reason}", node, message.key.replica
                )
            case agent_v1.ForgetShard():
                self.facts.told_term(node, message.term)
            case agent_v1.Welcome():
                self.facts.told_term(node, message.term)
                self.facts.welcomed[node] = message.term
                self.note("told", f"{node}: welcome to term {message.term}", node)
            case agent_v1.Refused():
                self.note("told", f"{node}: refused: {message.reason}", node)
            case agent_v1.LogRequest() | agent_v1.LogCancel() | Unknown():
                pass

    def node_said(self, node: str, message: agent_v1.Up | Unknown) -> None:
        """A node said something to a control plane."""
        match message:
            case agent_v1.Register():
                runs = ", ".join(f"{_shard(one.key)} {one.phase}" for one in message.shards) or "nothing"
                self.note("said", f"{node}: runs {runs}", node, *(one.key.replica for one in message.shards))
            case agent_v1.ShardStatus():
                shard = message.shard
                why = f": {shard.reason}" if shard.reason else ""
                text = f"{node}: {_shard(shard.key)} is {shard.phase}{why}"
                self.note("said", text, node, shard.key.replica)
            case agent_v1.CommandRefused():
                self.note("said", f"{node}: refuses: {message.reason}", node)
            case _:
                pass


def _replica(shard: str) -> str:
    return shard.rpartition("/")[0]


def _shard(key: agent_v1.ShardKey) -> str:
    return f"{key.replica}/{key.rank}" + (f"#{key.generation}" if key.generation != 1 else "")
