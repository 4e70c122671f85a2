"""The one mutable thing of the control plane: what is believed of the fleet, between two events.

Laws: only `Fleet` and what it calls write here; everybody else reads the immutable `state`; nothing is
kept that could be computed from what is.
"""

from collections.abc import Set

import msgspec

from llmgw.core import happenings as h
from llmgw.core.catalog import Catalog
from llmgw.core.fleet_state import AgentLink, FleetSettings, FleetState, Refusal, RouterState
from llmgw.core.inventory import Node
from llmgw.core.replica import Replica, Shard, ShardPhase
from llmgw.core.retry import Retry
from llmgw.core.settling import Settling, observe, remaining

Effects = list[h.Effect]


class Books:
    """Nodes, streams, replicas, routers and the leadership they are looked at under."""

    def __init__(self, settings: FleetSettings, catalog: Catalog) -> None:
        self.settings = settings
        self.catalog = catalog
        self.cluster_id = ""
        self.term: int | None = None
        self.settling: Settling | None = None
        self.nodes: dict[str, Node] = {}
        self.links: dict[str, AgentLink] = {}
        self.node_of: dict[h.Session, str] = {}
        self.replicas: dict[str, Replica] = {}
        self.retries: dict[str, Retry] = {}
        self.failed: dict[str, Replica] = {}
        self.refusals: dict[str, Refusal] = {}
        self.routers: dict[str, RouterState] = {}
        self.revision = 0

    @property
    def connected(self) -> Set[str]:
        """Ids of the nodes whose agents have a stream."""
        return self.links.keys()

    def settled(self, now: float) -> bool:
        """Whether placing may begin."""
        return self.settling is None or remaining(self.settling, self.connected, now) == 0.0

    def state(self, now: float) -> FleetState:
        """The fleet at this moment, as a value."""
        left = 0.0 if self.settling is None else remaining(self.settling, self.connected, now)
        return FleetState(
            settings=self.settings,
            catalog=self.catalog,
            nodes=dict(self.nodes),
            links=dict(self.links),
            replicas=dict(self.replicas),
            retries=dict(self.retries),
            failed=dict(self.failed),
            refusals=dict(self.refusals),
            routers=dict(self.routers),
            revision=self.revision,
            term=self.term,
            cluster_id=self.cluster_id,
            settling_left_s=left,
        )

    # ------------------------------------------------------------ streams

    def bind(self, node: str, link: AgentLink, now: float) -> None:
        """This stream speaks for the node from now on."""
        old = self.links.get(node)
        if old is not None:
            self.node_of.pop(old.session, None)
        self.links[node] = link
        self.node_of[link.session] = node
        self._observe(now)

    def unbind(self, session: h.Session, now: float) -> str | None:
        """The stream is over; the node it spoke for, unless a newer one does."""
        node = self.node_of.pop(session, None)
        if node is not None:
            del self.links[node]
            self._observe(now)
        return node

    def hear(self, session: h.Session, now: float) -> Node | None:
        """The node that spoke over this stream, heard now; `None` for an older stream of a node."""
        id = self.node_of.get(session)
        if id is None:
            return None
        node = msgspec.structs.replace(self.nodes[id], last_heard=now)
        self.nodes[id] = node
        return node

    def close_links(self, nodes: Set[str], reason: str, now: float) -> Effects:
        """End streams, so that their agents dial again and report everything."""
        effects = Effects()
        for node in sorted(nodes & self.links.keys()):
            session = self.links[node].session
            self.unbind(session, now)
            effects.append(h.RefuseAgent(session, reason))
        return effects

    def _observe(self, now: float) -> None:
        if self.settling is not None:
            self.settling = observe(self.settling, self.connected, now)

    # ------------------------------------------------------------ commands

    def start_command(self, replica: Replica, shard: Shard) -> Effects:
        """The command that runs a shard of a replica placed here; nothing while its node is away."""
        link = self.links.get(shard.node)
        if link is None or self.term is None or replica.recipe is None:
            return []
        return [h.StartShard(link.session, self.term, replica, shard)]

    def stop_command(self, replica: Replica, shard: Shard) -> Effects:
        """The command that stops a shard that was decided to stop; nothing while its node is away."""
        link = self.links.get(shard.node)
        if link is None or self.term is None or replica.ending is None:
            return []
        return [h.StopShard(link.session, self.term, replica.shard_id(shard), replica.ending.why)]

    def repeated_commands(self, node: str) -> Effects:
        """Commands that may not have been obeyed; each changes nothing when repeated."""
        effects = Effects()
        for replica in self.replicas.values():
            for shard in replica.shards:
                if shard.node != node:
                    continue
                if shard.phase is ShardPhase.STOPPING:
                    effects += self.stop_command(replica, shard)
                elif shard.phase is ShardPhase.ASSIGNED:
                    effects += self.start_command(replica, shard)
        return effects
