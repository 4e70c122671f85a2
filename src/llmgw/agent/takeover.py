"""Finds what an earlier agent of this node left running, and decides what becomes of each (A14).

Laws: a process that is exactly the recorded one is taken over; what carries our marker and is in no
record that can be read is killed; what carries another marker, or none, is never touched.
"""

import asyncio
import logging
import signal
from collections.abc import Collection, Mapping

from llmgw.agent.driver import Driver
from llmgw.agent.records import (
    PREFIX,
    Record,
    agent_marker,
    decode,
    record_name,
    shard_id,
    shard_marker,
)
from llmgw.agent.settings import AgentPorts, AgentSettings
from llmgw.core.reason import Explained, Failure
from llmgw.engines import ADAPTERS
from llmgw.engines.adapter import Exit
from llmgw.ports import ProcessId

SCANS = 3  # of 5 s each; the node must be heard of also when /proc hangs
LOOKS = 50  # 5 s; what KILL has not ended by then is stuck in the kernel
LOOK_AGAIN_S = 0.1

_LOG = logging.getLogger(__name__)


async def take_over(settings: AgentSettings, ports: AgentPorts, driver: Driver) -> None:
    """Give the driver every recorded shard and kill strays; awaited once, before the driver runs."""
    marker = agent_marker(settings.id, settings.state_dir)
    records = _readable(ports)
    accounted: set[ProcessId] = set()
    for record in records:
        accounted |= set(await _marked(ports, shard_marker(marker, shard_id(record.spec.key))))
    await _kill_strays(ports, marker, accounted)
    for record in records:
        await _adopt(record, ports, driver)


async def _kill_strays(
    ports: AgentPorts, marker: Mapping[str, str], accounted: Collection[ProcessId]
) -> None:
    """Kill what is ours and unaccounted for, and see it dead: it may hold cards that are handed out next."""
    for _ in range(LOOKS):
        strays = [found for found in await _marked(ports, marker) if found not in accounted]
        if not strays:
            return
        for stray in strays:
            _LOG.warning("killing pid %d: it carries our marker, and nothing says what it is", stray.pid)
            ports.processes.kill(stray, signal.SIGKILL)
        await asyncio.sleep(LOOK_AGAIN_S)
    _LOG.error("processes that carry our marker do not die; going on without")


async def _marked(ports: AgentPorts, marker: Mapping[str, str]) -> list[ProcessId]:
    for _ in range(SCANS):
        try:
            return await ports.processes.marked(marker)
        except TimeoutError:
            _LOG.warning("looking at the node's processes took too long; looking again")
    _LOG.error("the node's processes cannot be looked at; strays of an earlier agent may be left")
    return []


async def _adopt(record: Record, ports: AgentPorts, driver: Driver) -> None:
    key = record.spec.key
    handle = None if record.process is None else ports.processes.adopt(record.process)
    if handle is not None:
        _LOG.info("taking over %s rank %d, pid %d", key.replica, key.rank, handle.identity.pid)
        driver.take_over(record, handle, None)
        return
    driver.take_over(record, None, await _why_dead(record, ports, driver))


async def _why_dead(record: Record, ports: AgentPorts, driver: Driver) -> Explained:
    if record.process is None:
        return Explained(Failure.STATE_LOST, "the agent ended while it was starting this engine")
    if record.process.boot_id != ports.processes.boot_id():
        return Explained(Failure.ENGINE_EXITED, "the node was restarted")
    tail = await driver.log_tail(record.log)
    return ADAPTERS[record.spec.engine].explain_exit(Exit(None, tail))


def _readable(ports: AgentPorts) -> list[Record]:
    """Records that can be read, one a shard: the newest incarnation. Others are removed."""
    newest: dict[tuple[str, int], Record] = {}
    for name in ports.files.names(PREFIX):
        record = decode(ports.files.read(name) or b"")
        if record is None or record.spec.engine not in ADAPTERS:
            _LOG.warning("cannot read the record %s; its engine, if any, is killed", name)
            ports.files.remove(name)
            continue
        slot = (record.spec.key.replica, record.spec.key.rank)
        other = newest.get(slot)
        if other is not None:
            older = min(record, other, key=lambda one: one.spec.key.generation)
            ports.files.remove(record_name(shard_id(older.spec.key)))
            record = max(record, other, key=lambda one: one.spec.key.generation)
        newest[slot] = record
    return list(newest.values())
