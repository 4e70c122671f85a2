"""Decides whether a healed cluster is where it should be, and whether a stopped one left anything.

Laws: the truth is what runs on the machines and what routers hold; the control plane's books are
compared with it, not trusted.
"""

from collections import Counter

from llmgw.core.claims import Claim
from llmgw.core.fleet_state import held_by_node
from llmgw.core.replica import Course, Replica, ReplicaPhase, phase_of
from llmgw.sim.engines import EngineProgram, LeftBehind
from llmgw.sim.facts import EngineFact
from llmgw.sim.server import SimServer
from llmgw.sim.world import World


def why_not_converged(world: World) -> str | None:
    """What is not as it should be; `None` when all is."""
    server = world.server
    if server is None:
        return "no server runs"
    return _engines(world) or _books(world, server) or _routers(world) or _strays(world)


def _model(world: World, engine: EngineFact) -> str:
    spec = world.facts.specs.get(engine.key)
    return "?" if spec is None else spec.model


def _engines(world: World) -> str | None:
    for engine in world.facts.engines.values():
        if engine.answered_at is None:
            return f"{engine.text()} does not answer yet"
        program = engine.process.program
        if isinstance(program, EngineProgram) and program.deaf:
            return f"{engine.text()} does not answer any more"
        if engine.signalled_at is not None:
            return f"{engine.text()} was told to stop"
    running = Counter(_model(world, engine) for engine in world.facts.engines.values())
    wanted = world.wishes.wanted()
    for name in sorted({*running, *wanted}):
        if running[name] != wanted.get(name, 0):
            return f"{name}: {running[name]} engines run, {wanted.get(name, 0)} are wanted"
    return None


def _books(world: World, server: SimServer) -> str | None:
    state = server.plane.owner.state()
    if state.term is None:
        return "the server does not lead"
    # What was on a node that never comes back stays in the books: its engines may still run there.
    known = {id: one for id, one in state.replicas.items() if not _lost_for_ever(world, one)}
    for replica in known.values():
        if replica.course is not Course.KEEP or phase_of(replica) is not ReplicaPhase.READY:
            return f"{replica.id} is {phase_of(replica).value} for the control plane"
    running = {engine.key.replica for engine in world.facts.engines.values()}
    odd = sorted(running ^ known.keys())
    if odd:
        return f"{', '.join(odd)}: runs without being in the books, or the other way round"
    held = Counter((node, one.replica, one.claim) for node, of in held_by_node(known).items() for one in of)
    used = Counter((one.node, one.key.replica, one.claim or Claim()) for one in world.facts.engines.values())
    if held != used:
        return "claims in the books differ from what engines were given"
    return None


def _lost_for_ever(world: World, replica: Replica) -> bool:
    return replica.course is not Course.KEEP and all(shard.node in world.buried for shard in replica.shards)


def _routers(world: World) -> str | None:
    if not world.facts.routers:
        return "no router runs"
    ports = {engine.key.replica: engine.port for engine in world.facts.engines.values()}
    for router in world.facts.routers.values():
        if router.connected_since is None:
            return f"{router.name} is not connected"
        if {name: entry.port for name, entry in router.endpoints.items()} != ports:
            return f"{router.name} sends to {sorted(router.endpoints)}, there are {sorted(ports)}"
    return None


def _strays(world: World) -> str | None:
    for node in world.nodes:
        for process in node.machine.processes():
            program = process.program
            ours = process is node.keeper.process or isinstance(program, EngineProgram)
            if not ours and not (isinstance(program, LeftBehind) and program.parent.alive):
                return f"{process.title} pid {process.pid} is left on {node.machine.name}"
    return None


def what_is_left(world: World) -> str | None:
    """What a stopped cluster left on the network, once its engines were killed too."""
    listening = world.network.listening()
    if listening:
        return f"listeners: {', '.join(listening)}"
    transports = world.network.open_transports()
    if transports:
        return f"connections of {', '.join(sorted({one.process for one in transports}))}"
    return None
