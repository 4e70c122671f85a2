"""Runs a node: looks at it, takes over what runs, supervises, keeps the control plane told.

Laws: what runs is taken over before anyone is told what runs; a broken part ends the agent, and engines
go on without it; an agent that ends leaves engines running unless it was told to stop them.
"""

import asyncio
import logging

from llmgw.agent.connection import Connection, Parts
from llmgw.agent.driver import Driver
from llmgw.agent.node import NodeView
from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.agent.takeover import take_over
from llmgw.agent.uplink import Uplink
from llmgw.aio.every import every
from llmgw.aio.tasks import Tasks
from llmgw.core.inventory import NodeReport
from llmgw.core.shard_life import PORT_WITHIN_S
from llmgw.wire.agent_v1 import NodeChanged

INSTANCE_FILE = "instance"
STOP_MARGIN_S = 5.0  # for KILL to work, beyond the grace
LAST_WORDS_S = 1.0  # to tell the control plane what was stopped

_LOG = logging.getLogger(__name__)


class Agent:
    """One node's agent. `run` once; `aclose` from anywhere."""

    def __init__(self, settings: AgentSettings, ports: AgentPorts) -> None:
        self._settings = settings
        self._ports = ports
        self._tasks = Tasks()
        self._uplink = Uplink()
        self._node = NodeView(ports.probe)
        self._driver = Driver(settings, ports, self._node, self._uplink.say)
        parts = Parts(self._driver, self._node, self._uplink)
        self._connection = Connection(settings, ports, parts, _instance(ports))
        self._supervising: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until closed; raises what broke it."""
        timings = self._settings.timings
        await self._node.look()
        await take_over(self._settings, self._ports, self._driver)
        self._supervising = self._tasks.start(self._driver.run(), name="supervisor")
        await self._driver.adopted_answered(timings.verify_adopted)
        parts = [
            self._supervising,
            self._tasks.start(self._connection.run(), name="connection"),
            self._tasks.start(self._look_again(), name="look at the node"),
            self._tasks.start(every(timings.trim, self._ports.logs.trim, name="trim logs"), name="trim logs"),
        ]
        ended, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for part in ended:
            if not part.cancelled():
                part.result()

    async def aclose(self) -> None:
        """End. Engines go on, unless the settings say to stop them. Idempotent."""
        self._connection.stop_obeying()
        if self._settings.stop_engines and self._supervising is not None and not self._supervising.done():
            await self._stop_engines()
        await self._driver.aclose()
        await self._tasks.aclose()

    async def _stop_engines(self) -> None:
        grace = self._settings.timings.stop_grace
        try:
            async with asyncio.timeout(grace + PORT_WITHIN_S + STOP_MARGIN_S):
                await self._driver.stop_all(grace)
        except TimeoutError:
            _LOG.error("some engines do not end; they are left, and a later agent takes them over")
        else:
            _LOG.info("every engine of this node is stopped")
        await self._uplink.sent(LAST_WORDS_S)

    async def _look_again(self) -> None:
        pause = self._settings.timings.look
        await asyncio.sleep(pause)
        await every(pause, lambda: self._node.look_again(self._changed), name="look at the node")

    def _changed(self, report: NodeReport) -> None:
        _LOG.info("this node is not what it was; telling the control plane")
        self._uplink.say(NodeChanged(report))


def _instance(ports: AgentPorts) -> str:
    """A random name that stays with the state directory (A10)."""
    held = ports.files.read(INSTANCE_FILE)
    if held:
        return held.decode(errors="replace").strip()
    made = f"{ports.draw.getrandbits(128):032x}"
    ports.files.write(INSTANCE_FILE, made.encode())
    return made
