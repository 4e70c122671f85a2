"""Holds what the control plane believes of the fleet and decides what each piece of news changes in it.

Laws: one owner calls `handle`, one event at a time; nothing here does I/O, reads a clock or draws chance
of its own; replicas are never stored, they are rebuilt from what agents report (law 3); what comes over
an older stream of a node, or of an older incarnation of a shard, changes nothing.
"""

import random
from typing import assert_never

import msgspec

from llmgw.core import happenings as h
from llmgw.core.adoption import hear_known, hear_report
from llmgw.core.catalog import Catalog
from llmgw.core.fleet_state import (
    AgentLink,
    Endpoint,
    FleetSettings,
    FleetState,
    Refusal,
    RouterState,
    endpoints,
)
from llmgw.core.inventory import Node, NodeReport, OperatorMark
from llmgw.core.reconcile import (
    Decision,
    Decline,
    Fail,
    FinishDrain,
    Lose,
    Place,
    Remove,
    Withdraw,
    reconcile,
)
from llmgw.core.replica import (
    Course,
    CourseEvent,
    Ending,
    Recipe,
    Replica,
    Shard,
    ShardEvent,
    ShardPhase,
    note_fetch,
    phase_of,
    step_course,
    step_shard,
)
from llmgw.core.retry import Retry, after_failure
from llmgw.core.settling import Settling, begin, observe, remaining
from llmgw.core.units import format_duration

Effects = list[h.Effect]


class Fleet:
    """The control plane's state machine: events in, effects out."""

    def __init__(self, settings: FleetSettings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._cluster_id = ""
        self._term: int | None = None
        self._why_not_leading = "this server has not taken the lease yet"
        self._settling: Settling | None = None
        self._nodes: dict[str, Node] = {}
        self._links: dict[str, AgentLink] = {}
        self._node_of: dict[h.Session, str] = {}
        self._replicas: dict[str, Replica] = {}
        self._retries: dict[str, Retry] = {}
        self._refusals: dict[str, Refusal] = {}
        self._routers: dict[str, RouterState] = {}
        self._revision = 0
        self._published: dict[str, Endpoint] = {}
        self._shown: object = None

    def state(self, now: float) -> FleetState:
        """The fleet at this moment, as a value."""
        left = 0.0 if self._settling is None else remaining(self._settling, self._links.keys(), now)
        return FleetState(
            settings=self._settings,
            catalog=self._catalog,
            nodes=dict(self._nodes),
            links=dict(self._links),
            replicas=dict(self._replicas),
            retries=dict(self._retries),
            refusals=dict(self._refusals),
            routers=dict(self._routers),
            revision=self._revision,
            term=self._term,
            cluster_id=self._cluster_id,
            settling_left_s=left,
        )

    def handle(self, event: h.Event, now: float, draw: random.Random) -> Effects:
        """Everything to be done because of one event, in order."""
        effects = self._react(event, now)
        if isinstance(event, h.Ticked):
            self._end_settling(now)
            for decision in reconcile(self.state(now), now, draw):
                effects += self._carry_out(decision, now, draw)
        effects += self._republish()
        return effects

    def _react(self, event: h.Event, now: float) -> Effects:
        match event:
            case h.AgentHeard():
                return self._agent_heard(event, now)
            case h.ShardReported():
                return self._shard_reported(event, now)
            case h.FetchProgressed():
                return self._fetch_progressed(event, now)
            case h.UseReported():
                return self._use_reported(event)
            case h.Ticked():
                return []
            case h.AgentRegistered():
                return self._agent_registered(event, now)
            case h.NodeRedescribed():
                return self._node_redescribed(event, now)
            case h.AgentLeft():
                return self._agent_left(event, now)
            case h.CommandRefused():
                return self._command_refused(event)
            case h.RouterJoined():
                self._routers[event.router] = RouterState()
                return []
            case h.RouterApplied():
                return self._router_applied(event)
            case h.RouterLeft():
                self._routers.pop(event.router, None)
                return []
            case h.CatalogChanged():
                return self._catalog_changed(event)
            case h.LeaseTaken():
                return self._lease_taken(event, now)
            case h.TermRaised():
                self._term = event.term
                return [h.Record("term_raised", f"an agent had seen a higher term; ours is {event.term} now")]
            case h.LeaseLost():
                return self._lease_lost(event)
            case h.KeysChanged():
                self._shown = None  # the table differs, whatever else is the same
                return []
            case h.MarkSet():
                return self._mark_set(event, now)
            case _:
                assert_never(event)

    # ------------------------------------------------------------ leading

    def _lease_taken(self, event: h.LeaseTaken, now: float) -> Effects:
        self._cluster_id, self._term = event.cluster_id, event.term
        self._settling = begin(now, self._settings.settling_s, event.roster.keys())
        for id, mark in event.roster.items():
            known = self._nodes.get(id)
            self._nodes[id] = (
                Node(id, None, mark, None, now)
                if known is None
                else msgspec.structs.replace(known, mark=mark)
            )
        return [h.Record("leading", f"this server leads, term {event.term}")]

    def _end_settling(self, now: float) -> None:
        """Settling is paid once: a node that leaves later does not bring it back."""
        if self._settling is not None and remaining(self._settling, self._links.keys(), now) == 0.0:
            self._settling = None

    def _lease_lost(self, event: h.LeaseLost) -> Effects:
        self._term, self._why_not_leading = None, f"another server leads: {event.holder}"
        effects: Effects = [h.Record("not_leading", self._why_not_leading)]
        effects += [h.RefuseAgent(link.session, self._why_not_leading) for link in self._links.values()]
        return effects

    def _catalog_changed(self, event: h.CatalogChanged) -> Effects:
        self._catalog = event.catalog
        self._refusals.clear()  # said of the catalog before
        return [h.Record("catalog_changed", f"{len(event.catalog.models)} models")]

    def _mark_set(self, event: h.MarkSet, now: float) -> Effects:
        known = self._nodes.get(event.node) or Node(event.node, None, event.mark, None, now)
        self._nodes[event.node] = msgspec.structs.replace(known, mark=event.mark)
        text = f"{event.mark.mark.value} by {event.mark.actor or 'an operator'}"
        reason = f": {event.mark.reason}" if event.mark.reason else ""
        return [h.Record("node_marked", text + reason, node=event.node)]

    # ------------------------------------------------------------ agents

    def _agent_registered(self, event: h.AgentRegistered, now: float) -> Effects:
        term = self._term
        refusal = self._why_refuse(event)
        if term is None or refusal is not None:
            return [h.RefuseAgent(event.session, refusal or self._why_not_leading)]
        if event.highest_term is not None and event.highest_term > term:
            text = f"the node obeys term {event.highest_term}, this server has {term}; raising it, dial again"
            return [h.RaiseTerm(event.highest_term), h.RefuseAgent(event.session, text)]
        effects = self._bind(event, now)
        effects.append(h.WelcomeAgent(event.session, self._cluster_id, term))
        return effects + self._hear_everything(event, term, now)

    def _why_refuse(self, event: h.AgentRegistered) -> str | None:
        if self._term is None:
            return self._why_not_leading
        if event.cluster_id is not None and event.cluster_id != self._cluster_id:
            return (
                f"the node belongs to cluster {event.cluster_id}, this is {self._cluster_id}; "
                "to move it run llmgw agent --forget-cluster"
            )
        link = self._links.get(event.node.id)
        if link is not None and link.instance_id != event.instance_id:
            return f"another agent is connected as {event.node.id}; give this one its own id in agent.yaml"
        return None

    def _bind(self, event: h.AgentRegistered, now: float) -> Effects:
        node, effects = event.node, Effects()
        old = self._links.get(node.id)
        if old is not None:
            self._node_of.pop(old.session, None)
            effects.append(h.RefuseAgent(old.session, "replaced by a newer stream of the same agent"))
        known = self._nodes.get(node.id)
        mark = OperatorMark() if known is None else known.mark
        since = now if known is None else known.known_since
        self._nodes[node.id] = Node(node.id, node, mark, now, since)
        self._links[node.id] = AgentLink(event.session, event.instance_id)
        self._node_of[event.session] = node.id
        self._observe(now)
        if known is None or known.report is None:
            effects.append(h.RememberNode(node.id, node.address))
            effects.append(h.Record("node_joined", f"{node.id} at {node.address}", node=node.id))
        return effects

    def _hear_everything(self, event: h.AgentRegistered, term: int, now: float) -> Effects:
        node, session = event.node.id, event.session
        heard = hear_report(node, event.shards, event.complete, self._replicas, self._catalog, now)
        self._replicas.update((replica.id, replica) for replica in heard.replicas)
        effects = Effects()
        for id in heard.adopted:
            replica = self._replicas[id]
            text = f"found running on {node} as {phase_of(replica).value}"
            effects.append(h.Record("adopted", text, replica.model, id, node))
        for shard in heard.unrecognised:
            text = "another incarnation than this server knows"
            effects.append(h.StopShard(session, term, shard, text))
            effects.append(h.Record("stray_stopped", text, None, shard.replica, node))
        effects += [h.ForgetShard(session, term, shard) for shard in heard.forgettable]
        return effects + self._repeat_commands(node, session, term)

    def _repeat_commands(self, node: str, session: h.Session, term: int) -> Effects:
        """Commands that may have been lost with the stream before; each changes nothing when repeated."""
        effects = Effects()
        for replica in self._replicas.values():
            for shard in replica.shards:
                if shard.node != node:
                    continue
                if shard.phase is ShardPhase.STOPPING and replica.ending is not None:
                    id = replica.shard_id(shard)
                    effects.append(h.StopShard(session, term, id, replica.ending.why))
                elif shard.phase is ShardPhase.ASSIGNED and replica.recipe is not None:
                    effects.append(h.StartShard(session, term, replica, shard))
        return effects

    def _agent_heard(self, event: h.AgentHeard, now: float) -> Effects:
        node = self._hear_node(event.session, now)
        if node is None or node.report is None:
            return []
        told = {
            name: value
            for name in event.__struct_fields__
            if name != "session" and (value := getattr(event, name)) is not None
        }
        if told:
            report: NodeReport = msgspec.structs.replace(node.report, **told)
            self._nodes[node.id] = msgspec.structs.replace(node, report=report)
        return []

    def _node_redescribed(self, event: h.NodeRedescribed, now: float) -> Effects:
        node = self._hear_node(event.session, now)
        if node is None or node.report is None or event.node.id != node.id:
            return []
        before, after = node.report, event.node
        self._nodes[node.id] = msgspec.structs.replace(node, report=after)
        return [h.Record("node_changed", text, node=node.id) for text in _differences(before, after)]

    def _agent_left(self, event: h.AgentLeft, now: float) -> Effects:
        node = self._node_of.pop(event.session, None)
        if node is None:
            return []
        del self._links[node]
        self._observe(now)
        return [h.Record("agent_left", event.reason or "its stream ended", node=node)]

    def _command_refused(self, event: h.CommandRefused) -> Effects:
        node = self._node_of.get(event.session)
        effects: Effects = [h.Record("command_refused", event.reason, node=node)]
        if self._term is not None and event.highest_term is not None and event.highest_term > self._term:
            effects.append(h.RaiseTerm(event.highest_term))
        return effects

    def _hear_node(self, session: h.Session, now: float) -> Node | None:
        id = self._node_of.get(session)
        if id is None:
            return None  # an older stream of the node
        node = msgspec.structs.replace(self._nodes[id], last_heard=now)
        self._nodes[id] = node
        return node

    def _observe(self, now: float) -> None:
        if self._settling is not None:
            self._settling = observe(self._settling, self._links.keys(), now)

    # ------------------------------------------------------------ shards

    def _shard_reported(self, event: h.ShardReported, now: float) -> Effects:
        node, id = self._hear_node(event.session, now), event.shard.id
        replica = self._replicas.get(id.replica)
        if node is None or replica is None:
            return []
        shard = replica.shard(id.rank)
        if shard is None or shard.node != node.id or shard.generation != id.generation:
            return []
        self._replicas[replica.id] = heard = hear_known(replica, event.shard, now)
        before, after = phase_of(replica), phase_of(heard)
        if before is after:
            return []
        return [h.Record(f"replica_{after.value}", f"was {before.value}", replica.model, replica.id, node.id)]

    def _fetch_progressed(self, event: h.FetchProgressed, now: float) -> Effects:
        node, replica = self._hear_node(event.session, now), self._replicas.get(event.shard.replica)
        if node is not None and replica is not None:
            self._replicas[replica.id] = note_fetch(replica, event.shard.rank, event.fetched)
        return []

    # ------------------------------------------------------------ routers

    def _router_applied(self, event: h.RouterApplied) -> Effects:
        router = self._routers.get(event.router)
        if router is not None:
            applied = max(router.applied, event.revision)
            self._routers[event.router] = msgspec.structs.replace(router, applied=applied)
        return []

    def _use_reported(self, event: h.UseReported) -> Effects:
        router = self._routers.get(event.router)
        if router is not None:
            self._routers[event.router] = RouterState(router.applied, event.endpoints, router.applied)
        return []

    def _republish(self) -> Effects:
        """Move the revision when what routers serve differs, and note which revision withdrew what."""
        current = endpoints(self._replicas)
        shown = (current, self._catalog, _model_notes(self._catalog, self._replicas, self._refusals))
        if shown == self._shown:
            return []
        self._revision += 1
        for id in self._published.keys() - current.keys():
            replica = self._replicas.get(id)
            if replica is not None:
                self._replicas[id] = msgspec.structs.replace(replica, withdrawn_by=self._revision)
        self._published, self._shown = current, shown
        return [h.Publish(self._revision)]

    # ------------------------------------------------------------ decisions

    def _carry_out(self, decision: Decision, now: float, draw: random.Random) -> Effects:
        match decision:
            case Lose():
                return self._lose(decision, now)
            case Fail():
                return self._fail(decision, now, draw)
            case Withdraw():
                return self._withdraw(decision, now)
            case FinishDrain():
                return self._finish_drain(decision, now)
            case Remove():
                return self._remove(decision)
            case Place():
                return self._place(decision, now, draw)
            case Decline():
                return self._decline(decision, now)
            case _:
                assert_never(decision)

    def _lose(self, decision: Lose, now: float) -> Effects:
        replica = step_course(self._replicas[decision.replica], CourseEvent.NODES_LOST, now)
        for shard in replica.shards:
            replica = step_shard(replica, shard.rank, ShardEvent.NODE_LOST, now)
        self._replicas[replica.id] = replica
        node = replica.shards[0].node if replica.shards else None
        return [h.Record("replica_lost", decision.why, replica.model, replica.id, node)]

    def _fail(self, decision: Fail, now: float, draw: random.Random) -> Effects:
        replica = self._replicas[decision.replica]
        failure = decision.failure
        ready_s = 0.0 if replica.ready_at is None else now - replica.ready_at
        retry = after_failure(self._retries.get(replica.model), failure, ready_s, now, draw)
        self._retries[replica.model] = retry
        ending = Ending(failure.text, now, failure)
        effects = self._end(step_course(replica, CourseEvent.BROKE, now, ending))
        again = format_duration(max(0.0, retry.not_before - now))
        text = f"{failure.text}; {replica.model} is tried again in {again}"
        effects.append(h.Record("replica_failed", text, replica.model, replica.id, _leader_node(replica)))
        return effects

    def _withdraw(self, decision: Withdraw, now: float) -> Effects:
        replica = self._replicas[decision.replica]
        stepped = step_course(replica, CourseEvent.WITHDRAWN, now, Ending(decision.why, now))
        effects = self._end(stepped)
        text = decision.why
        effects.append(h.Record("replica_draining", text, replica.model, replica.id, _leader_node(replica)))
        return effects

    def _finish_drain(self, decision: FinishDrain, now: float) -> Effects:
        replica = self._replicas[decision.replica]
        effects = self._end(step_course(replica, CourseEvent.DRAINED, now))
        text = decision.why
        effects.append(h.Record("replica_stopping", text, replica.model, replica.id, _leader_node(replica)))
        return effects

    def _end(self, replica: Replica) -> Effects:
        """Keep the replica as stepped; tell the agents of shards that were decided to stop."""
        before = self._replicas[replica.id]
        self._replicas[replica.id] = replica
        effects = Effects()
        if replica.course in (Course.STOP, Course.FAIL) and before.course is not replica.course:
            assert replica.ending is not None and self._term is not None
            for shard in replica.shards:
                link = self._links.get(shard.node)
                if not shard.ended and link is not None:
                    id = replica.shard_id(shard)
                    effects.append(h.StopShard(link.session, self._term, id, replica.ending.why))
        return effects

    def _remove(self, decision: Remove) -> Effects:
        replica = self._replicas.pop(decision.replica)
        effects = Effects()
        for shard in replica.shards:
            link = self._links.get(shard.node)
            if link is not None and self._term is not None:
                effects.append(h.ForgetShard(link.session, self._term, replica.shard_id(shard)))
        text = "its processes are gone, its claims are free"
        node = _leader_node(replica)
        effects.append(h.Record("replica_gone", text, replica.model, replica.id, node))
        return effects

    def _place(self, decision: Place, now: float, draw: random.Random) -> Effects:
        replica = new_replica(decision, self._nodes, now, draw)
        self._replicas[replica.id] = replica
        self._refusals.pop(replica.model, None)
        node = _leader_node(replica)
        text = f"on {node} with profile {replica.profile}: {decision.placement.why}"
        effects: Effects = [h.Record("placed", text, replica.model, replica.id, node)]
        for shard in replica.shards:
            link = self._links.get(shard.node)
            if link is not None and self._term is not None:
                effects.append(h.StartShard(link.session, self._term, replica, shard))
        return effects

    def _decline(self, decision: Decline, now: float) -> Effects:
        if decision.refusal is None:
            self._refusals.pop(decision.model, None)
            return []
        line, known = decision.refusal.line(), self._refusals.get(decision.model)
        if known is not None and known.line == line:
            return []
        self._refusals[decision.model] = Refusal(line, now)
        return [h.Record("not_placed", line, decision.model)]


# ---------------------------------------------------------------- helpers


def new_replica(decision: Place, nodes: dict[str, Node], now: float, draw: random.Random) -> Replica:
    """The replica a placement describes, with a fresh engine key (A17a)."""
    model, profile, placement = decision.model, decision.profile, decision.placement
    shards = []
    for placed in placement.shards:
        report = nodes[placed.node].report
        shards.append(
            Shard(
                rank=placed.rank,
                node=placed.node,
                claim=placed.claim,
                phase=ShardPhase.ASSIGNED,
                address=None if report is None else report.address,
                port=placed.claim.ports[0] if placed.claim.ports else None,
            )
        )
    return Replica(
        id=placement.replica,
        model=model.name,
        profile=profile.name,
        fingerprint=profile.fingerprint,
        engine=profile.engine,
        engine_key=f"{draw.getrandbits(256):064x}",
        shard_count=len(shards),
        shards=tuple(shards),
        created_at=now,
        startup_timeout_s=profile.startup_timeout_s,
        recipe=Recipe(model, profile),
    )


def _leader_node(replica: Replica) -> str | None:
    return None if replica.leader is None else replica.leader.node


def _differences(before: NodeReport, after: NodeReport) -> list[str]:
    """What an operator wants to know of a changed node: memory and engines (I6)."""
    texts = []
    if before.memory_total_bytes != after.memory_total_bytes:
        texts.append(f"memory was {before.memory_total_bytes}, is {after.memory_total_bytes} bytes")
    if before.engines is not None and after.engines is not None:
        old, new = sorted(before.engines), sorted(after.engines)
        if old != new:
            texts.append(f"engines were {', '.join(old) or 'none'}, are {', '.join(new) or 'none'}")
    return texts


def _model_notes(
    catalog: Catalog, replicas: dict[str, Replica], refusals: dict[str, Refusal]
) -> dict[str, tuple[bool, str | None]]:
    """What routers say of models without an endpoint: whether one is starting, and why not."""
    starting = {one.model for one in replicas.values() if one.course is Course.KEEP and one.ready_at is None}
    return {
        name: (name in starting, refusals[name].line if name in refusals else None) for name in catalog.models
    }
