"""Keeps this node connected to a control plane: dials, registers, beats, obeys, redials for ever (A8, A9).

Laws: engines are not touched by a lost stream; every address is tried in turn, the preferred one first,
and the agent waits only when all of them have just been tried; what a refusing server said is logged;
a message that is not understood is counted and ignored (A11); a server of another cluster is not obeyed.
"""

import asyncio
import logging
from typing import NoReturn, assert_never

import msgspec

from llmgw.agent.driver import Driver
from llmgw.agent.logs import LogDesk
from llmgw.agent.node import NodeView
from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.agent.uplink import Uplink
from llmgw.aio.backoff import Backoff
from llmgw.aio.every import every
from llmgw.aio.tasks import Tasks
from llmgw.ports import MessageStream, StreamClosed
from llmgw.wire.agent_v1 import (
    ForgetShard,
    Heartbeat,
    LogCancel,
    LogRequest,
    Refused,
    Register,
    StartShard,
    StopShard,
    Welcome,
    decode_down,
)
from llmgw.wire.envelope import Unknown

PATH = "/agent"
CLUSTER_FILE = "cluster"
HEARTBEAT_LEAST_S = 0.2  # whatever a server asks for

_LOG = logging.getLogger(__name__)


class Attempt(msgspec.Struct, frozen=True):
    """How one connection ended: whether it was ever accepted, why it ended, where to go instead."""

    welcomed: bool
    why: str
    leader: str | None = None


class Parts(msgspec.Struct, frozen=True):
    """The parts of the agent a connection speaks for."""

    driver: Driver
    node: NodeView
    uplink: Uplink


class Connection:
    """The stream to the control plane, whichever it is at the moment."""

    def __init__(self, settings: AgentSettings, ports: AgentPorts, parts: Parts, instance: str) -> None:
        self._settings = settings
        self._ports = ports
        self._driver = parts.driver
        self._node = parts.node
        self._uplink = parts.uplink
        self._instance = instance
        self._obeying = True
        # The last reason logged of each server, so that an hour without one is not a full disk.
        self._said: dict[str, str] = {}
        self._unknown: dict[str, int] = {}

    def stop_obeying(self) -> None:
        """Take no more orders: the agent is ending."""
        self._obeying = False

    async def run(self) -> None:
        """Stay connected, for ever."""
        timings = self._settings.timings
        backoff = Backoff(timings.reconnect_first, timings.reconnect_cap)
        failures = 0
        while True:
            failures = 0 if await self._round() else failures + 1
            await asyncio.sleep(backoff.delay(max(failures, 1), self._ports.draw))

    async def _round(self) -> bool:
        """Try every address until one accepts, and stay there; whether one did."""
        waiting = list(self._settings.servers)
        tried: set[str] = set()
        while waiting:
            server = waiting.pop(0)
            if server in tried:
                continue
            tried.add(server)
            attempt = await self._try(server)
            self._explain(server, attempt)
            if attempt.welcomed:
                return True
            if attempt.leader is not None:
                waiting.insert(0, attempt.leader)
        return False

    def _explain(self, server: str, attempt: Attempt) -> None:
        happened = "lost" if attempt.welcomed else "not connected to"
        text = f"{happened} {server}: {attempt.why}"
        again = text == self._said.get(server)
        _LOG.log(logging.DEBUG if again else logging.WARNING, "%s", text)
        if server in self._settings.servers:  # not every leader a server may name
            self._said[server] = text

    async def _try(self, server: str) -> Attempt:
        timings = self._settings.timings
        try:
            stream = await self._ports.dialer.dial(server, PATH, within=timings.dial)
        except StreamClosed as closed:
            return Attempt(False, closed.reason)
        try:
            return await self._speak(server, stream)
        finally:
            self._uplink.shut()
            await stream.close()

    async def _speak(self, server: str, stream: MessageStream) -> Attempt:
        welcomed = False
        try:
            # Nothing is awaited between reading the shards and opening the queue: what changes after
            # is said after.
            self._uplink.open(self._registration())
            async with Tasks() as tasks:
                tasks.start(self._pump(stream), name="uplink")
                answer = await self._welcome(stream)
                if isinstance(answer, Attempt):
                    return answer
                welcomed = True
                _LOG.info("connected to %s, cluster %s, term %d", server, answer.cluster_id, answer.term)
                self._said.clear()
                await self._driver.see_term(answer.term)
                tasks.start(self._beat(answer), name="heartbeat")
                await self._listen(stream)
        except StreamClosed as closed:
            return Attempt(welcomed, closed.reason)

    async def _pump(self, stream: MessageStream) -> None:
        try:
            await self._uplink.pump(stream)
        except StreamClosed:
            return  # whoever reads it hears of it

    def _registration(self) -> Register:
        return Register(
            instance_id=self._instance,
            boot_id=self._ports.processes.boot_id(),
            node=self._node.report,
            shards=self._driver.reports(),
            cluster_id=self._cluster(),
            highest_term=self._driver.highest_term,
        )

    async def _welcome(self, stream: MessageStream) -> Welcome | Attempt:
        try:
            async with asyncio.timeout(self._settings.timings.welcome):
                while True:
                    message = decode_down(await stream.receive())
                    match message:
                        case Welcome():
                            return await self._join(message, stream)
                        case Refused(reason, leader):
                            return Attempt(False, reason, leader)
                        case _:
                            self._ignore(message)
        except TimeoutError:
            return Attempt(False, f"no welcome within {self._settings.timings.welcome:g} s")

    async def _join(self, welcome: Welcome, stream: MessageStream) -> Welcome | Attempt:
        ours = self._cluster()
        if ours is None:
            try:
                self._ports.files.write(CLUSTER_FILE, welcome.cluster_id.encode())
            except OSError as error:
                why = error.strerror or str(error)
                return Attempt(False, f"cannot note the cluster in {self._settings.state_dir}: {why}")
        elif ours != welcome.cluster_id:
            why = f"this node belongs to cluster {ours}, the server to {welcome.cluster_id}"
            await stream.close(why)
            return Attempt(False, f"{why}; `llmgw agent --forget-cluster` lets it join another")
        return welcome

    def _cluster(self) -> str | None:
        data = self._ports.files.read(CLUSTER_FILE)
        return None if data is None else data.decode().strip() or None

    async def _beat(self, welcome: Welcome) -> None:
        ports = range(0)
        if welcome.port_first is not None and welcome.port_last is not None:
            ports = range(welcome.port_first, welcome.port_last + 1)

        async def beat() -> None:
            vitals = await self._ports.probe.vitals(ports)
            self._uplink.say(
                Heartbeat(
                    memory_total_bytes=vitals.memory_total_bytes,
                    memory_available_bytes=vitals.memory_available_bytes,
                    gpus=vitals.gpus,
                    filesystems=vitals.filesystems,
                    ports_in_use=vitals.ports_in_use if ports else None,
                    stale_s=vitals.stale_s or None,
                )
            )

        await every(max(welcome.heartbeat_s, HEARTBEAT_LEAST_S), beat, name="heartbeat")

    async def _listen(self, stream: MessageStream) -> NoReturn:
        desk = LogDesk(self._ports.logs, self._uplink, self._settings.timings.follow)
        try:
            while True:
                message = decode_down(await stream.receive())
                match message:
                    case StartShard() | StopShard() | ForgetShard():
                        if self._obeying:
                            await self._driver.obey(message)
                    case LogRequest():
                        desk.ask(message)
                    case LogCancel():
                        desk.cancel(message)
                    case Refused(reason, _):
                        raise StreamClosed(reason)
                    case Welcome() | Unknown():
                        self._ignore(message)
                    case _:
                        assert_never(message)
        finally:
            await desk.aclose()

    def _ignore(self, message: msgspec.Struct) -> None:
        kind = type(message).__name__
        why = "is not expected now"
        if isinstance(message, Unknown):
            kind = message.type or "without a type"
            why = f"cannot be read: {message.error}" if message.error else "is not known to this version"
        seen = self._unknown.get(kind, 0)
        if len(self._unknown) < 64:  # what a hostile peer may make us remember
            self._unknown[kind] = seen + 1
        if not seen:
            _LOG.warning("a message %s from the server %s; ignored from now on", kind, why)
