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
from llmgw.core.carry_out import carry_out
from llmgw.core.catalog import Catalog
from llmgw.core.fleet_books import Books, Effects
from llmgw.core.fleet_state import (
    AgentLink,
    Endpoint,
    FleetSettings,
    FleetState,
    RouterState,
    endpoints,
    model_notes,
    placement_view,
    unheard,
)
from llmgw.core.inventory import Node, NodeReport, OperatorMark
from llmgw.core.placement import Placement, PlacementPass, PlacementRequest
from llmgw.core.reconcile import reconcile
from llmgw.core.replica import ENDED, Course, ReplicaPhase, note_fetch, phase_of
from llmgw.core.settling import begin
from llmgw.core.units import format_bytes


class Fleet:
    """The control plane's state machine: events in, effects out."""

    def __init__(self, settings: FleetSettings, catalog: Catalog) -> None:
        self._books = Books(settings, catalog)
        self._why_not_leading = "this server has not taken the lease yet"
        self._published: dict[str, Endpoint] = {}
        self._shown: object = None
        self._said_frozen = False

    def state(self, now: float) -> FleetState:
        """The fleet at this moment, as a value."""
        return self._books.state(now)

    def handle(self, event: h.Event, now: float, draw: random.Random) -> Effects:
        """Everything to be done because of one event, in order."""
        match event:
            case h.Ticked():
                # What routers serve is looked at once a turn: the owner turns right after news, and
                # a thousand reports that came together cost one look.
                return self._turn(now, draw) + self._republish(now)
            case h.AgentHeard():
                return self._agent_heard(event, now)
            case h.FetchProgressed():
                return self._fetch_progressed(event, now)
            case h.UseReported():
                return self._use_reported(event)
            case h.RouterApplied():
                return self._router_applied(event)
            case h.RouterJoined():
                self._books.routers[event.router] = RouterState()
                return []
            case h.RouterLeft():
                self._books.routers.pop(event.router, None)
                return []
            case _:
                return self._react(event, now)

    def _react(self, event: h.News, now: float) -> Effects:
        match event:
            case h.ShardReported():
                return self._shard_reported(event, now)
            case h.AgentRegistered():
                return self._agent_registered(event, now)
            case h.NodeRedescribed():
                return self._node_redescribed(event, now)
            case h.AgentLeft():
                return self._agent_left(event, now)
            case h.CommandRefused():
                return self._command_refused(event)
            case h.CatalogChanged():
                return self._catalog_changed(event)
            case h.LeaseTaken():
                return self._lease_taken(event, now)
            case h.TermRaised():
                return self._term_raised(event)
            case h.LeaseLost():
                return self._lease_lost(event, now)
            case h.KeysChanged():
                self._shown = None  # the table differs, whatever else is the same
                return []
            case h.MarkSet():
                return self._mark_set(event, now)
            case _:
                assert_never(event)

    def _turn(self, now: float, draw: random.Random) -> Effects:
        books, effects = self._books, Effects()
        if books.settled(now):
            books.settling = None  # paid once: a node that leaves later does not bring it back
        plan = reconcile(books.state(now), now, draw)
        if (plan.frozen is not None) is not self._said_frozen:
            self._said_frozen = plan.frozen is not None
            text = plan.frozen or "most nodes are heard again: lost ones are given up as usual"
            effects.append(h.Record("expiry_frozen" if plan.frozen else "expiry_resumed", text))
        for decision in plan.decisions:
            effects += carry_out(books, decision, now, draw)
        return effects

    # ------------------------------------------------------------ leading

    def _lease_taken(self, event: h.LeaseTaken, now: float) -> Effects:
        books = self._books
        # What was believed under an earlier term is not trusted: everybody reports anew.
        effects = books.close_links(set(books.connected), "a new term began; dial again", now)
        books.cluster_id, books.term = event.cluster_id, event.term
        books.settling = begin(now, books.settings.settling_s, event.roster.keys())
        for id, mark in event.roster.items():
            known = books.nodes.get(id) or Node(id, None, mark, None, now)
            books.nodes[id] = msgspec.structs.replace(known, mark=mark)
        return [*effects, h.Record("leading", f"this server leads, term {event.term}")]

    def _term_raised(self, event: h.TermRaised) -> Effects:
        self._books.term = event.term
        text = f"an agent had seen a higher term; ours is {event.term} now"
        effects: Effects = [h.Record("term_raised", text)]
        for node in self._books.links:  # those that refused the older term
            effects += self._books.repeated_commands(node)
        return effects

    def _lease_lost(self, event: h.LeaseLost, now: float) -> Effects:
        self._books.term, self._why_not_leading = None, f"another server leads: {event.holder}"
        closed = self._books.close_links(set(self._books.connected), self._why_not_leading, now)
        return [h.Record("not_leading", self._why_not_leading), *closed]

    def _catalog_changed(self, event: h.CatalogChanged) -> Effects:
        books, before = self._books, self._books.catalog
        books.catalog = event.catalog
        books.refusals.clear()  # said of the catalog before
        for name in books.retries.keys() | books.failed.keys():
            old, new = before.models.get(name), event.catalog.models.get(name)
            if old is None or new is None or old.profiles != new.profiles:
                books.retries.pop(name, None)  # what failed is not what is wanted now
                books.failed.pop(name, None)
        return [h.Record("catalog_changed", f"{len(event.catalog.models)} models")]

    def _mark_set(self, event: h.MarkSet, now: float) -> Effects:
        known = self._books.nodes.get(event.node) or Node(event.node, None, event.mark, None, now)
        self._books.nodes[event.node] = msgspec.structs.replace(known, mark=event.mark)
        text = f"{event.mark.mark.value} by {event.mark.actor or 'an operator'}"
        reason = f": {event.mark.reason}" if event.mark.reason else ""
        return [h.Record("node_marked", text + reason, node=event.node)]

    # ------------------------------------------------------------ agents

    def _agent_registered(self, event: h.AgentRegistered, now: float) -> Effects:
        term = self._books.term
        refusal = self._why_refuse(event)
        if term is None or refusal is not None:
            return [h.RefuseAgent(event.session, refusal or self._why_not_leading)]
        if event.highest_term is not None and event.highest_term > term:
            text = f"the node obeys term {event.highest_term}, this server has {term}; raising it, dial again"
            return [h.RaiseTerm(event.highest_term), h.RefuseAgent(event.session, text)]
        effects = self._bind(event, now)
        effects.append(h.WelcomeAgent(event.session, self._books.cluster_id, term))
        return effects + self._hear_everything(event, term, now)

    def _why_refuse(self, event: h.AgentRegistered) -> str | None:
        if self._books.term is None:
            return self._why_not_leading
        cluster = self._books.cluster_id
        if event.cluster_id is not None and event.cluster_id != cluster:
            return (
                f"the node belongs to cluster {event.cluster_id}, this is {cluster}; "
                "to move it run llmgw agent --forget-cluster"
            )
        link = self._books.links.get(event.node.id)
        if link is not None and link.instance_id != event.instance_id:
            return f"another agent is connected as {event.node.id}; give this one its own id in agent.yaml"
        return None

    def _bind(self, event: h.AgentRegistered, now: float) -> Effects:
        books, node, effects = self._books, event.node, Effects()
        old = books.links.get(node.id)
        if old is not None:
            effects.append(h.RefuseAgent(old.session, "replaced by a newer stream of the same agent"))
        known = books.nodes.get(node.id)
        mark = OperatorMark() if known is None else known.mark
        since = now if known is None else known.known_since
        books.nodes[node.id] = Node(node.id, node, mark, now, since)
        books.bind(node.id, AgentLink(event.session, event.instance_id), now)
        if known is None or known.report is None:
            effects.append(h.RememberNode(node.id, node.address))
            effects.append(h.Record("node_joined", f"{node.id} at {node.address}", node=node.id))
        else:
            effects += self._note_changes(known.report, node, now)
        return effects

    def _hear_everything(self, event: h.AgentRegistered, term: int, now: float) -> Effects:
        books, node, session = self._books, event.node.id, event.session
        heard = hear_report(node, event.shards, event.complete, books.replicas, books.catalog, now)
        effects = Effects()
        for replica in heard.replicas:
            before = books.replicas.get(replica.id)
            if before is not None and before.course is Course.LOST and replica.course is Course.KEEP:
                text = f"{node} is back with it, {phase_of(replica).value}"
                effects.append(h.Record("replica_returned", text, replica.model, replica.id, node))
            books.replicas[replica.id] = replica
        for id in heard.adopted:
            replica = books.replicas[id]
            text = f"found on {node} as {phase_of(replica).value}"
            effects.append(h.Record("adopted", text, replica.model, id, node))
        for shard in heard.unrecognised:
            text = "another incarnation than this server knows"
            effects.append(h.StopShard(session, term, shard, text))
            effects.append(h.Record("stray_stopped", text, None, shard.replica, node))
        effects += [h.ForgetShard(session, term, shard) for shard in heard.forgettable]
        return effects + books.repeated_commands(node)

    def _agent_heard(self, event: h.AgentHeard, now: float) -> Effects:
        node = self._books.hear(event.session, now)
        if node is None or node.report is None:
            return []
        told = {
            name: value
            for name in event.__struct_fields__
            if name != "session" and (value := getattr(event, name)) is not None
        }
        if not told:
            return []
        report: NodeReport = msgspec.structs.replace(node.report, **told)
        self._books.nodes[node.id] = msgspec.structs.replace(node, report=report)
        return self._note_changes(node.report, report, now)

    def _node_redescribed(self, event: h.NodeRedescribed, now: float) -> Effects:
        node = self._books.hear(event.session, now)
        if node is None or node.report is None or event.node.id != node.id:
            return []
        before, after = node.report, event.node
        self._books.nodes[node.id] = msgspec.structs.replace(node, report=after)
        return self._note_changes(before, after, now)

    def _note_changes(self, before: NodeReport, after: NodeReport, now: float) -> Effects:
        """Memory and engines that changed, and which of the models that fitted nowhere now fit (I6)."""
        texts, fits = _differences(before, after), ""
        if texts and self._books.refusals:
            fitting = PlacementPass(placement_view(self._books.state(now), now))
            models = [self._books.catalog.models[name] for name in sorted(self._books.refusals)]
            names = [
                model.name
                for model in models
                if isinstance(fitting.place(PlacementRequest("asked", model)), Placement)
            ]
            fits = f"; {', '.join(names)} fits now" if names else ""
        return [h.Record("node_changed", text + fits, node=after.id) for text in texts]

    def _agent_left(self, event: h.AgentLeft, now: float) -> Effects:
        node = self._books.unbind(event.session, now)
        if node is None:
            return []
        return [h.Record("agent_left", event.reason or "its stream ended", node=node)]

    def _command_refused(self, event: h.CommandRefused) -> Effects:
        term = self._books.term
        effects: Effects = [
            h.Record("command_refused", event.reason, node=self._books.node_of.get(event.session))
        ]
        if term is not None and event.highest_term is not None and event.highest_term > term:
            effects.append(h.RaiseTerm(event.highest_term))
        return effects

    # ------------------------------------------------------------ shards

    def _shard_reported(self, event: h.ShardReported, now: float) -> Effects:
        books, id = self._books, event.shard.id
        node, replica = books.hear(event.session, now), books.replicas.get(id.replica)
        if node is None or books.term is None:
            return []
        shard = None if replica is None else replica.shard(id.rank)
        if replica is None or shard is None or shard.node != node.id or shard.generation != id.generation:
            if event.shard.phase in ENDED:  # a stray that was told to stop, or an end already noted
                return [h.ForgetShard(event.session, books.term, id)]
            return []
        heard = hear_known(replica, event.shard, now)
        books.replicas[replica.id] = heard
        before, after = phase_of(replica), phase_of(heard)
        if before is after or after is not ReplicaPhase.READY:
            return []  # what leads elsewhere is a decision of the next turn, and recorded with its reason
        text = f"{now - replica.created_at:.1f} s after it was {'found' if replica.adopted else 'placed'}"
        return [h.Record("replica_ready", text, replica.model, replica.id, node.id)]

    def _fetch_progressed(self, event: h.FetchProgressed, now: float) -> Effects:
        books = self._books
        node, replica = books.hear(event.session, now), books.replicas.get(event.shard.replica)
        if node is not None and replica is not None:
            books.replicas[replica.id] = note_fetch(replica, event.shard.rank, event.fetched)
        return []

    # ------------------------------------------------------------ routers

    def _router_applied(self, event: h.RouterApplied) -> Effects:
        router = self._books.routers.get(event.router)
        if router is not None:
            applied = max(router.applied, event.revision)
            self._books.routers[event.router] = msgspec.structs.replace(router, applied=applied)
        return []

    def _use_reported(self, event: h.UseReported) -> Effects:
        router = self._books.routers.get(event.router)
        if router is not None:
            self._books.routers[event.router] = RouterState(router.applied, event.endpoints, router.applied)
        return []

    def _republish(self, now: float) -> Effects:
        """Move the revision when what routers serve differs, and note which revision withdrew what."""
        books = self._books
        if books.term is None:
            return []  # routers keep what they have: whoever leads tells them
        current = endpoints(books.replicas)
        notes = model_notes(books.catalog, books.replicas, books.refusals, books.retries)
        silent = unheard(books.nodes, books.settings.presence, now)
        shown = (current, books.catalog, notes, silent)
        changed = shown != self._shown
        books.revision += changed
        for id, replica in books.replicas.items():
            # Also one that was never published here: routers may serve it on an earlier server's word.
            met_and_withdrawn = (
                replica.course is Course.DRAIN
                and replica.ready_at is not None
                and replica.withdrawn_by is None
            )
            if id not in current and (id in self._published or met_and_withdrawn):
                books.replicas[id] = msgspec.structs.replace(replica, withdrawn_by=books.revision)
        self._published, self._shown = current, shown
        return [h.Publish(books.revision)] if changed else []


def _differences(before: NodeReport, after: NodeReport) -> list[str]:
    """What an operator wants to know of a changed node: memory and engines (I6)."""
    texts = []
    if before.memory_total_bytes != after.memory_total_bytes:
        was, is_now = format_bytes(before.memory_total_bytes), format_bytes(after.memory_total_bytes)
        texts.append(f"memory was {was}, is {is_now}")
    if before.engines is not None and after.engines is not None:
        old, new = sorted(before.engines), sorted(after.engines)
        if old != new:
            texts.append(f"engines were {', '.join(old) or 'none'}, are {', '.join(new) or 'none'}")
    return texts
