"""Performs what the supervisor decides about this node's shards, and tells it how that went.

Laws: one task owns the supervisor's state; everything else reaches it as an event; every command yields
the event it names, failure included; what was ordered is kept here only as long as the supervisor knows
the shard; nothing here blocks.
"""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from typing import assert_never

import msgspec

from llmgw.agent import launching, probing
from llmgw.agent.node import NodeView
from llmgw.agent.records import (
    Record,
    agent_marker,
    encode,
    log_name,
    record_name,
    shard_id,
    shard_key,
    shard_marker,
)
from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.aio.mailbox import Mailbox
from llmgw.aio.tasks import Failed, Tasks, outcome
from llmgw.core.orders import (
    Check,
    Checked,
    CheckPort,
    Command,
    Drop,
    Event,
    Exited,
    ForgetAsked,
    Found,
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
    StopAll,
    StopAsked,
    Sweep,
    Swept,
    Terminate,
    TermSeen,
    Tick,
    WriteRecord,
)
from llmgw.core.reason import Explained, Failure
from llmgw.core.replica import ShardId, ShardPhase
from llmgw.core.shard_life import tell
from llmgw.core.supervisor import SupervisorState, live, next_due, step
from llmgw.engines import ADAPTERS
from llmgw.engines.adapter import Command as EngineCommand
from llmgw.engines.adapter import Exit
from llmgw.ports import ProcessHandle, ProcessId, SpawnFailed, SpawnSpec
from llmgw.wire.agent_v1 import (
    CommandRefused,
    ForgetShard,
    ShardReport,
    ShardSpec,
    ShardStatus,
    StartShard,
    StopShard,
    Up,
)

EVENTS_MAX = 1024  # a node has tens of shards, each with one command on its way
TAIL_LINES = 40  # of the log, with every failure
TAIL_WITHIN_S = 0.5  # the death of an engine is told within a second, with or without its last words
TERM_FILE = "term"

_LOG = logging.getLogger(__name__)


class Running:
    """What is known of one shard beyond what decides its life."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.handle: ProcessHandle | None = None
        self.command: EngineCommand | None = None
        self.logged = ""  # the last line about it

    @property
    def spec(self) -> ShardSpec:
        """What was ordered."""
        return self.record.spec


class Driver:
    """The shards of this node. `say` gets every message for the control plane."""

    def __init__(
        self,
        settings: AgentSettings,
        ports: AgentPorts,
        node: NodeView,
        say: Callable[[Up], None],
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._node = node
        self._say = say
        self._tasks = Tasks()
        self._events: Mailbox[Event] = Mailbox(EVENTS_MAX)
        self._at_once: deque[Event] = deque()
        self._running: dict[ShardId, Running] = {}
        self._marker = agent_marker(settings.id, settings.state_dir)
        self._state = SupervisorState(highest_term=_read_term(ports))
        self._answered: set[ShardId] = set()
        self._changed = asyncio.Event()

    # ---------------------------------------------------------------- for the rest of the agent

    @property
    def highest_term(self) -> int:
        """The highest term any server has shown this node (H2)."""
        return self._state.highest_term

    def reports(self) -> tuple[ShardReport, ...]:
        """Every shard of this node, as a registration tells them."""
        return tuple(self._report(tell(shard)) for shard in self._state.shards.values())

    async def obey(self, order: StartShard | StopShard | ForgetShard) -> None:
        """Take an order of the control plane."""
        match order:
            case StartShard(term, spec):
                id = shard_id(spec.key)
                if id not in self._running:
                    log = log_name(id.replica, id.rank)
                    self._running[id] = Running(Record(spec=spec, term=term, log=log))
                await self._events.put(StartAsked(term, self.order_of(spec)))
            case StopShard(term, key, grace_s):
                await self._events.put(StopAsked(term, shard_id(key), grace_s))
            case ForgetShard(term, key):
                await self._events.put(ForgetAsked(term, shard_id(key)))
            case _:
                assert_never(order)

    async def see_term(self, term: int) -> None:
        """A server showed its term."""
        await self._events.put(TermSeen(term))

    async def stop_all(self, grace_s: float) -> None:
        """Stop every shard and wait until none is left."""
        await self._events.put(StopAll(grace_s))
        await self._until(lambda: not live(self._state) and not self._events and not self._at_once)

    async def adopted_answered(self, within: float) -> None:
        """Wait until every adopted engine was asked once, but not longer than `within` seconds."""
        waiting = {id for id, running in self._running.items() if running.handle is not None}
        try:
            async with asyncio.timeout(within):
                await self._until(lambda: waiting <= self._answered)
        except TimeoutError:
            pass

    def take_over(self, record: Record, handle: ProcessHandle | None, failure: Explained | None) -> None:
        """Begin with a shard of an earlier agent; called before `run`."""
        id = shard_id(record.spec.key)
        running = Running(record)
        running.handle = handle
        self._running[id] = running
        alive = handle is not None
        order = self.order_of(record.spec)
        self._at_once.append(Found(order, alive=alive, ready=record.ready, failure=failure))
        if handle is not None:
            self._tasks.start(self._watch(id, running, handle), name=f"watch {id.replica}/{id.rank}")

    async def run(self) -> None:
        """Own the state: take events one after another, for ever."""
        while True:
            event = await self._next()
            self._state, commands = step(self._state, event, self._now())
            for command in commands:
                self._perform(command)
            self._note(event)

    async def aclose(self) -> None:
        """Stop watching; processes go on."""
        await self._tasks.aclose()

    # ---------------------------------------------------------------- events

    async def _next(self) -> Event:
        if self._at_once:
            return self._at_once.popleft()
        due = next_due(self._state)
        if due is not None and due <= self._now():
            return Tick()
        try:
            async with asyncio.timeout_at(due):
                return await self._events.get()
        except TimeoutError:
            return Tick()

    def _note(self, event: Event) -> None:
        if isinstance(event, Probed | Exited):
            self._answered.add(event.id)
        kept = {shard.id for shard in self._state.shards.values()}
        kept |= {shard.then.id for shard in self._state.shards.values() if shard.then is not None}
        if isinstance(event, StartAsked) and event.order.id not in kept:
            self._running.pop(event.order.id, None)  # refused
        self._answered &= kept
        self._changed.set()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._changed.clear()
            await self._changed.wait()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # ---------------------------------------------------------------- commands

    def _perform(self, command: Command) -> None:
        match command:
            case Check(id):
                checked = self._running[id]
                self._later(lambda: self._check(id, checked), lambda why: Checked(id, _broken(why)))
            case WriteRecord(id, ready):
                self._at_once.append(Recorded(id, self._write(id, ready)))
            case Spawn(id):
                self._tasks.start(self._spawn(id, self._running[id]), name="shard process")
            case Probe(id, identify):
                asked = self._running[id].spec
                self._later(lambda: self._probe(asked, identify), lambda why: Probed(id, why))
            case Sweep(id):
                self._later(lambda: self._sweep(id), lambda why: Swept(id, (0,)))
            case CheckPort(id):
                left = self._running[id].spec
                self._later(lambda: self._look_at_port(left), lambda why: PortLooked(id, free=True))
            case Terminate(id):
                self._signal(id, signal.SIGTERM)
            case Report():
                self._tell(self._report(command))
            case ReportGone(id):
                self._tell(ShardReport(key=shard_key(id), phase=ShardPhase.GONE.value))
            case RemoveRecord(id):
                self._remove(id)
            case Drop(id):
                self._running.pop(id, None)
            case RememberTerm(term):
                _write_term(self._ports, term)
            case Refuse(id, reason):
                _LOG.warning("not obeyed for %s rank %d: %s", id.replica, id.rank, reason)
                self._say(CommandRefused(shard_key(id), reason, self._state.highest_term))
            case _:
                assert_never(command)

    def _later(self, work: Callable[[], Awaitable[Event]], failed: Callable[[str], Event]) -> None:
        """Run a command's work; the event it names reaches the state whatever happens."""

        async def performed() -> None:
            ended = await outcome(work())
            await self._events.put(failed(_unexpected(ended)) if isinstance(ended, Failed) else ended)

        self._tasks.start(performed(), name="shard command")

    async def _check(self, id: ShardId, running: Running) -> Event:
        prepared = await launching.prepare(running.spec, self._node.report, self._settings, self._ports)
        match prepared:
            case Explained():
                return Checked(id, prepared)
            case launching.Ready(command):
                running.command = command
                return Checked(id)
            case _:
                assert_never(prepared)

    async def _spawn(self, id: ShardId, running: Running) -> None:
        ended = await outcome(self._start(id, running))
        match ended:
            case Failed(SpawnFailed() as failure):
                await self._events.put(Spawned(id, Explained(Failure.SPAWN_FAILED, str(failure))))
            case Failed():
                await self._events.put(Spawned(id, _broken(_unexpected(ended))))
            case _:
                await self._events.put(Spawned(id))  # before anything can be heard of its end
                await self._watch(id, running, ended)

    async def _start(self, id: ShardId, running: Running) -> ProcessHandle:
        assert running.command is not None, "checked before"
        env = launching.environment(
            running.command, running.spec, shard_marker(self._marker, id), self._settings
        )
        argv = running.command.argv
        log = self._ports.logs.path(running.record.log)
        handle = await self._ports.processes.spawn(SpawnSpec(argv, env, log, self._settings.state_dir))
        pid = handle.identity.pid
        _LOG.info("started %s rank %d as pid %d: %s", id.replica, id.rank, pid, " ".join(argv))
        running.handle = handle
        running.record = msgspec.structs.replace(
            running.record, process=handle.identity, started_at=self._ports.clock.now()
        )
        return handle

    async def _watch(self, id: ShardId, running: Running, handle: ProcessHandle) -> None:
        ended = await outcome(self._ended(running, handle))
        await self._events.put(
            Exited(id, _broken(_unexpected(ended)) if isinstance(ended, Failed) else ended)
        )

    async def _ended(self, running: Running, handle: ProcessHandle) -> Explained:
        status = await handle.wait()
        tail = await self.log_tail(running.record.log)
        self._ports.upstream.close_idle(running.spec.address, running.spec.port)
        return ADAPTERS[running.spec.engine].explain_exit(Exit(status, tail))

    async def log_tail(self, name: str) -> tuple[str, ...]:
        """The last lines of a log, or none when its disk does not answer at once."""
        try:
            async with asyncio.timeout(TAIL_WITHIN_S):
                return await self._ports.logs.tail(name, TAIL_LINES)
        except (TimeoutError, OSError):
            return ()

    async def _probe(self, spec: ShardSpec, identify: bool) -> Event:
        within = self._settings.timings.probe
        miss = await probing.ask(self._ports.upstream, spec, identify=identify, within=within)
        return Probed(shard_id(spec.key), miss)

    async def _sweep(self, id: ShardId) -> Event:
        self._signal(id, signal.SIGKILL)
        found: list[ProcessId] | None = None
        while found is None:
            try:
                found = await self._ports.processes.marked(shard_marker(self._marker, id))
            except TimeoutError:
                _LOG.warning("looking for processes of %s rank %d took too long; again", id.replica, id.rank)
        for identity in found:
            self._ports.processes.kill(identity, signal.SIGKILL)
        return Swept(id, tuple(identity.pid for identity in found))

    async def _look_at_port(self, spec: ShardSpec) -> Event:
        id = shard_id(spec.key)
        try:
            return PortLooked(id, await self._ports.checks.port_free(spec.address, spec.port))
        except OSError:  # not an address of this node any more: nothing of ours can hold it
            return PortLooked(id, free=True)

    def _signal(self, id: ShardId, signum: signal.Signals) -> None:
        running = self._running.get(id)
        if running is not None and running.handle is not None:
            running.handle.signal_group(signum)

    # ---------------------------------------------------------------- what is told, what is kept

    def order_of(self, spec: ShardSpec) -> Order:
        """What decides the life of a shard with this spec."""
        adapter = ADAPTERS.get(spec.engine)
        return Order(
            shard_id(spec.key),
            startup_timeout_s=spec.startup_timeout_s,
            has_port=adapter is not None and adapter.serves_http(spec.key.rank),
            stop_grace_s=self._settings.timings.stop_grace,
        )

    def _report(self, told: Report) -> ShardReport:
        running = self._running.get(told.id)
        key, phase, failure = shard_key(told.id), told.phase.value, told.failure
        reason = failure.text if failure is not None else told.note or None
        if running is None:
            return ShardReport(key=key, phase=phase, reason=reason)
        record, spec = running.record, running.spec
        process = record.process
        age = None if record.started_at is None else max(0.0, self._ports.clock.now() - record.started_at)
        return ShardReport(
            key=key,
            phase=phase,
            model=spec.model,
            profile=spec.profile,
            fingerprint=spec.fingerprint,
            term=record.term,
            shard_count=spec.shard_count,
            fabric=spec.fabric,
            address=spec.address,
            port=spec.port,
            claim=spec.claim,
            engine_key=spec.engine_key,
            pid=None if process is None else process.pid,
            start_time=None if process is None else process.start_time,
            started_at=record.started_at,
            running_s=age,
            failure=None if failure is None else failure.code.value,
            reason=reason,
            log_tail=None if failure is None else failure.log_tail,
        )

    def _tell(self, report: ShardReport) -> None:
        running = self._running.get(shard_id(report.key))
        why = f": {report.reason}" if report.reason else ""
        text = f"{report.key.replica} rank {report.key.rank} is {report.phase}{why}"
        if running is None or running.logged != text:
            _LOG.info("%s", text)
        if running is not None:
            running.logged = text
        self._say(ShardStatus(report))

    def _write(self, id: ShardId, ready: bool) -> str:
        running = self._running[id]
        running.record = msgspec.structs.replace(running.record, ready=ready)
        try:
            self._ports.files.write(record_name(id), encode(running.record))
        except OSError as error:
            _LOG.error("cannot write the state of %s rank %d: %s", id.replica, id.rank, error)
            return error.strerror or str(error)
        return ""

    def _remove(self, id: ShardId) -> None:
        try:
            self._ports.files.remove(record_name(id))
        except OSError as error:
            _LOG.error("cannot remove the state of %s rank %d: %s", id.replica, id.rank, error)


def _unexpected(ended: Failed) -> str:
    _LOG.error("unexpected: %r", ended.failure, exc_info=ended.failure)
    return str(ended.failure) or type(ended.failure).__name__


def _broken(why: str) -> Explained:
    return Explained(Failure.UNKNOWN, f"the agent itself failed: {why}")


def _read_term(ports: AgentPorts) -> int:
    data = ports.files.read(TERM_FILE) or b""
    return int(data) if data.strip().isdigit() else 0


def _write_term(ports: AgentPorts, term: int) -> None:
    try:
        ports.files.write(TERM_FILE, b"%d\n" % term)
    except OSError as error:
        _LOG.error("cannot remember term %d for after a restart: %s", term, error)
