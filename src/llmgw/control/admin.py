"""Answers the admin API from the fleet's state: what is, and why it is not otherwise.

Laws: every answer is derived when asked; unknown is `None`, never zero; the same placement function
that decides also explains.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from llmgw.control import rows
from llmgw.control.plane import ControlPlane
from llmgw.core import happenings as h
from llmgw.core.catalog import Model
from llmgw.core.fleet_state import FleetState, placement_view, presences
from llmgw.core.inventory import Mark, OperatorMark
from llmgw.core.placement import Placement, PlacementRequest, explain
from llmgw.core.units import format_duration
from llmgw.ports import AdminRefused, LogFollower, StoreUnavailable
from llmgw.wire import admin_v1 as wire


class Admin:
    """Implements `ports.ClusterAdmin` on one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def _state(self) -> tuple[FleetState, float]:
        return self._plane.owner.state(), asyncio.get_running_loop().time()

    def status(self) -> wire.Status:
        """The fleet in one screen."""
        state, now = self._state()
        replicas = rows.replica_rows(state, now)
        nodes = rows.node_rows(state, now)
        models = rows.model_rows(state, now)
        return wire.Status(
            version=self._plane.settings.version,
            cluster_id=state.cluster_id,
            term=state.term or 0,
            leading=state.term is not None,
            settling_s=state.settling_left_s or None,
            revision=state.revision,
            nodes=Counter(node.state for node in nodes),
            replicas=Counter(replica.state for replica in replicas),
            models=models,
            routers=self.routers(),
            gpus=rows.gpu_counts(nodes),
            store=self._plane.keeper.trouble or "ok",
            problems=self._problems(state, nodes, models),
        )

    def _problems(
        self, state: FleetState, nodes: Sequence[wire.NodeRow], models: Sequence[wire.ModelRow]
    ) -> tuple[str, ...]:
        found = []
        if state.term is None:
            found.append("this server does not lead: it decides nothing")
        if self._plane.keeper.trouble is not None:
            found.append(f"the store does not answer: {self._plane.keeper.trouble}")
        if self._plane.keeper.dropped_events:
            found.append(f"{self._plane.keeper.dropped_events} events were lost while the store was away")
        found += [
            f"{node.id} is {node.state}, last heard {format_duration(node.heard_s)} ago"
            for node in nodes
            if node.state != "ready"
        ]
        found += [
            f"{model.name}: {model.ready} of {model.wanted} ready"
            + (f": {model.reason}" if model.reason else "")
            for model in models
            if model.ready < model.wanted
        ]
        return tuple(found)

    def nodes(self) -> tuple[wire.NodeRow, ...]:
        """Every node of the roster."""
        return rows.node_rows(*self._state())

    def replicas(self) -> tuple[wire.ReplicaRow, ...]:
        """Every replica whose claims are not released, and the last failure of each model that is short."""
        return rows.replica_rows(*self._state())

    def models(self) -> tuple[wire.ModelRow, ...]:
        """Every model of the catalog."""
        return rows.model_rows(*self._state())

    def routers(self) -> tuple[wire.RouterRow, ...]:
        """Every connected router."""
        state, _ = self._state()
        found = []
        for hello in self._plane.routers.hellos():
            router = state.routers.get(hello.router_id)
            applied = None if router is None or router.applied < 0 else router.applied
            found.append(wire.RouterRow(hello.router_id, hello.pid, hello.version, applied, hello.address))
        return tuple(found)

    async def explain(self, model: str) -> wire.Explanation:
        """Where one more replica would go, and why not elsewhere. Raises `AdminRefused`."""
        state, now = self._state()
        known = self._model(state, model)
        view = placement_view(state, now)
        explained = explain(PlacementRequest("explain", known), view)
        profiles = tuple(rows.profile_explanation(one) for one in explained.profiles)
        if isinstance(explained.outcome, Placement):
            placed = explained.outcome
            outcome = f"one more would go to {placed.shards[0].node} with {placed.profile}: {placed.why}"
        else:
            outcome = f"one more fits nowhere: {explained.outcome.line()}"
        return wire.Explanation(known.name, self._preface(state, known, now) + outcome, profiles)

    def _preface(self, state: FleetState, model: Model, now: float) -> str:
        """What keeps the model from being placed before any node is looked at."""
        row = next(one for one in rows.model_rows(state, now) if one.name == model.name)
        if row.ready + row.starting >= row.wanted:
            return f"{row.ready} ready and {row.starting} starting of {row.wanted} wanted; "
        if state.settling_left_s > 0:
            return f"settling for {format_duration(state.settling_left_s)} more; "
        if row.retry_s:
            return f"tried again in {format_duration(row.retry_s)} ({row.reason}); "
        return ""

    def _model(self, state: FleetState, name: str) -> Model:
        catalog = state.catalog
        targets = [target for target, _ in catalog.aliases.get(name, ())]
        if len(targets) > 1:
            drawn = f"{name!r} is drawn from {', '.join(targets)}; name one of them"
            raise AdminRefused(404, "model_not_found", drawn)
        known = catalog.models.get(targets[0] if targets else name)
        if known is None:
            near = ", ".join(catalog.near_names(name))
            hint = f"names that are close: {near}" if near else "none has a name close to it"
            raise AdminRefused(404, "model_not_found", f"no model {name!r}; {hint}")
        return known

    async def events(self, limit: int, model: str | None, node: str | None) -> tuple[wire.EventRow, ...]:
        """Decisions, newest first."""
        return await self._plane.keeper.events(limit, model, node)

    async def set_mark(self, node: str, mark: OperatorMark) -> wire.NodeRow:
        """Cordon or free a node: kept in the store first (I2). Raises `AdminRefused`."""
        state, _ = self._state()
        if node not in state.nodes:
            known = ", ".join(sorted(state.nodes)[:10]) or "none"
            raise AdminRefused(404, "node_not_found", f"no node {node!r}; known: {known}")
        if mark.mark is Mark.DRAINING:
            text = "moving replicas off a node is not available in this version; cordon keeps new ones away"
            raise AdminRefused(400, "not_available", text)
        try:
            await self._plane.store.set_mark(node, mark)
        except StoreUnavailable as error:
            text = f"the mark could not be stored, nothing was changed: {error}"
            raise AdminRefused(503, "store_unavailable", text) from error
        await self._plane.owner.ask(h.MarkSet(node, mark))
        state, now = self._state()
        return next(row for row in rows.node_rows(state, now) if row.id == node)

    async def logs(self, replica: str, rank: int, lines: int, follow: bool) -> LogFollower:
        """An engine's log from its node. Raises `AdminRefused`."""
        state, now = self._state()
        known = state.replicas.get(replica) or next(
            (one for one in state.failed.values() if one.id == replica), None
        )
        shard = None if known is None else known.shard(rank)
        if shard is None:
            running = ", ".join(sorted(state.replicas)[:10]) or "none"
            text = f"no replica {replica!r} with rank {rank}; running: {running}"
            raise AdminRefused(404, "replica_not_found", text)
        link = state.links.get(shard.node)
        channel = None
        if link is not None:
            channel = self._plane.agents.open_log(link.session, replica, rank, lines, follow)
        if channel is None:
            how = presences(state, now)[shard.node].value if shard.node in state.nodes else "forgotten"
            text = f"{shard.node} is not connected ({how}); the log is on that machine"
            raise AdminRefused(503, "node_not_connected", text)
        return channel
